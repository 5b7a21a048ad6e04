//! What the end-to-end tests share: the program under test, a home for images, and Spaces that
//! are deleted whatever happens.
//!
//! `cargo xtask test` builds the program and sets the variables; without them a test says so and
//! fails, because a skipped end-to-end test proves nothing.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

mod kind;
pub mod processes;

pub use kind::Kind;
use processes::Traces;

/// The program under test.
///
/// # Panics
/// When the tests were not started by `cargo xtask test`.
pub fn program() -> PathBuf {
    let set = std::env::var_os("AIRLOCK_TEST_PROGRAM");
    PathBuf::from(set.expect("AIRLOCK_TEST_PROGRAM is not set: run `cargo xtask test`"))
}

/// The home that all tests share, so that images are built once. Spaces have names of their own.
pub fn home() -> PathBuf {
    let set = std::env::var_os("AIRLOCK_TEST_HOME").map(PathBuf::from);
    set.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/e2e-home"))
}

/// `airlock` with arguments, in the shared home.
pub fn command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    command_in(&home(), args)
}

/// `airlock` with arguments, in another home.
pub fn command_in<S: AsRef<OsStr>>(home: &Path, args: impl IntoIterator<Item = S>) -> Command {
    // A shell that runs tests in the background makes them ignore Ctrl-C, and so would every
    // program that they start.
    let mut command = Command::new("env");
    command
        .arg("--default-signal=INT")
        .arg(program())
        .args(args)
        .env("AIRLOCK_HOME", home)
        .stdin(Stdio::null());
    command
}

/// A finished run.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; 128 + N when signal N ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: String,
}

impl Ran {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard output as JSON.
    ///
    /// # Panics
    /// When it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts the exit code.
    ///
    /// # Panics
    /// When it is another one.
    #[must_use]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Asserts that standard error has `part`.
    ///
    /// # Panics
    /// When it has not.
    #[must_use]
    pub fn says(self, part: &str) -> Self {
        assert!(self.stderr.contains(part), "no {part:?} in {self:#?}");
        self
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let signal = output.status.signal().map(|signal| 128 + signal);
        Self {
            code: output.status.code().or(signal).unwrap_or(-1),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs a command to its end.
///
/// # Panics
/// When it cannot be started.
pub fn run(command: &mut Command) -> Ran {
    command.output().expect("the program starts").into()
}

/// Runs `airlock` in the shared home.
pub fn airlock<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Ran {
    run(&mut command(args))
}

/// A name that no other test uses.
pub fn name(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "{what}-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// A running Space, deleted when it is dropped.
///
/// A container must leave nothing on the host then, and that is looked for after every test.
#[derive(Debug)]
pub struct TestSpace {
    /// Its name.
    pub name: String,
    home: PathBuf,
    traces: Traces,
}

impl TestSpace {
    /// A `tiny` Space.
    pub fn tiny(kind: Kind, what: &str) -> Self {
        Self::with(kind, what, "tiny", &[])
    }

    /// A Space of `image` with more options.
    pub fn with(kind: Kind, what: &str, image: &str, options: &[&str]) -> Self {
        let mut space = Self::adopt(name(what), home());
        let create = ["spaces", "create", image, "--name", &space.name, "--kind"];
        let _ran = airlock([&create[..], &[kind.word()], options].concat()).expect(0);
        space.look();
        space
    }

    /// Takes charge of a Space that a test made itself.
    pub fn adopt(name: String, home: PathBuf) -> Self {
        Self {
            name,
            home,
            traces: Traces::default(),
        }
    }

    /// Remembers what the running Space has on the host, to look for it after its end.
    pub fn look(&mut self) {
        self.traces.add(&self.dir());
    }

    /// `NAME:path`.
    pub fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.name)
    }

    /// Runs a command in the Space.
    pub fn exec(&self, args: &[&str]) -> Ran {
        run(&mut command_in(
            &self.home,
            [&["exec", &self.name, "--"], args].concat(),
        ))
    }

    /// Runs a shell line in the Space and returns what it prints.
    pub fn sh(&self, line: &str) -> String {
        self.exec(&["sh", "-c", line])
            .expect(0)
            .text()
            .trim_end()
            .to_owned()
    }

    /// `spaces info --json`.
    pub fn info(&self) -> serde_json::Value {
        run(&mut command_in(
            &self.home,
            ["spaces", "info", &self.name, "--json"],
        ))
        .expect(0)
        .json()
    }

    /// Its state.
    pub fn state(&self) -> String {
        self.info()["state"].as_str().unwrap_or_default().to_owned()
    }

    /// Its private folder.
    pub fn dir(&self) -> PathBuf {
        self.home.join("spaces").join(&self.name)
    }

    /// What the keeper last wrote.
    ///
    /// # Panics
    /// When there is no state file.
    pub fn keeper_state(&self) -> serde_json::Value {
        let text = std::fs::read(self.dir().join("state.json")).expect("a state file");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// Deletes it now, and asserts that nothing of it is left on the host.
    ///
    /// # Panics
    /// When something is.
    pub fn delete(&mut self) {
        self.look();
        let ran = run(&mut command_in(
            &self.home,
            ["spaces", "delete", &self.name],
        ));
        // A second panic while the first unwinds would hide it.
        if std::thread::panicking() {
            return;
        }
        assert!(ran.code == 0, "a Space stays behind: {ran:#?}");
        assert!(!self.dir().exists(), "{} stays", self.dir().display());
        self.traces.assert_gone();
    }
}

impl Drop for TestSpace {
    fn drop(&mut self) {
        self.delete();
    }
}

/// Whether a process lives (a zombie does not).
pub fn is_alive(pid: u64) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}

/// Waits until `condition` holds.
///
/// # Panics
/// When it does not within half a minute.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !condition() {
        assert!(
            std::time::Instant::now() < deadline,
            "waited in vain for: {what}"
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A file of `len` bytes that do not compress and differ between `seed`s.
///
/// # Panics
/// When it cannot be written.
pub fn write_random(path: &Path, len: u64, seed: u64) {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).expect("a file"));
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut block = [0u8; 4096];
    let mut left = len;
    while left > 0 {
        for word in block.chunks_exact_mut(8) {
            // xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators".
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            word.copy_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
        }
        let part = left.min(block.len() as u64) as usize;
        std::io::Write::write_all(&mut file, &block[..part]).expect("room on the disk");
        left -= part as u64;
    }
    std::io::Write::flush(&mut file).expect("room on the disk");
}

/// Whether two files have the same bytes.
///
/// # Panics
/// When one cannot be read.
pub fn same_bytes(a: &Path, b: &Path) -> bool {
    let mut a = std::io::BufReader::new(std::fs::File::open(a).expect("a file"));
    let mut b = std::io::BufReader::new(std::fs::File::open(b).expect("a file"));
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let got = fill(&mut a, &mut left);
        if got != fill(&mut b, &mut right) || left[..got] != right[..got] {
            return false;
        }
        if got == 0 {
            return true;
        }
    }
}

fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> usize {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]).expect("a readable file") {
            0 => break,
            read => filled += read,
        }
    }
    filled
}

/// SHA-256 of a file, in hexadecimal.
///
/// # Panics
/// When it cannot be read.
pub fn sha256(path: &Path) -> String {
    use sha2::Digest;
    let bytes = std::fs::read(path).expect("a file");
    sha2::Sha256::digest(bytes)
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Starts a command whose output nobody reads.
///
/// # Panics
/// When it cannot be started.
pub fn start(command: &mut Command) -> Child {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts")
}

/// Bytes that a child has read or written so far: how far a transfer is.
pub fn moved_bytes(child: &Child) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse::<u64>().ok())
            .unwrap_or_default()
    };
    field("rchar:").max(field("wchar:"))
}

/// Freezes a transfer once it has moved `bytes`: the fast ones would be over before anything can
/// happen to them. Let it go on with `Signal::CONT`.
///
/// # Panics
/// When it ends before, or does not get there.
pub fn freeze_under_way(child: &Child, bytes: u64) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while moved_bytes(child) < bytes {
        assert!(is_alive(u64::from(child.id())), "it ended before");
        assert!(std::time::Instant::now() < deadline, "it does not move");
        std::thread::yield_now();
    }
    signal(child, rustix::process::Signal::STOP);
}

/// Sends a signal to a child.
///
/// # Panics
/// When it is gone.
pub fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).expect("the child runs");
}
