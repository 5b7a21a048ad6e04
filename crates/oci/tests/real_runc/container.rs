//! A container made for one test and gone with it.
//!
//! Its input is never the host's `/dev/null`: `crun` 1.8 gives the files that are its standard
//! streams to the Space's root, for good.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use airlock_oci::{CgroupMount, ContainerConfig, DEFAULT_OPEN_FILES, IdMapping, build};
use oci_spec::runtime::Spec;

/// The host's id for the Space's root: far from any that a person or a package has.
pub(crate) const FIRST_ID: u32 = 700_000_000;
pub(crate) const IDS: u32 = 65_536;

const BUSYBOX: &str = "/bin/busybox";
const DEADLINE: Duration = Duration::from_secs(30);

/// The runtime under test; another one that takes the same command line may be named.
fn runtime() -> String {
    std::env::var("AIRLOCK_TEST_RUNTIME").unwrap_or_else(|_| "runc".to_owned())
}

/// What the kernel has to say is in the output; what a test wants to know it prints.
pub(crate) fn text(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    format!("{out}{err}")
}

fn success(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(output));
    text(output)
}

/// One container's folder: its bundle, its root and the runtime's own state.
pub(crate) struct Container {
    folder: tempfile::TempDir,
    id: String,
    /// Who calls the runtime, if not this process's own user.
    user: Option<u32>,
}

impl Container {
    /// A root with busybox in it, owned by the mapped ids; `None`, with a printed reason, where
    /// this host cannot run it.
    pub(crate) fn new(name: &str) -> Option<Self> {
        if own_id() != 0 {
            eprintln!("skipped: the id map of these tests needs root");
            return None;
        }
        Self::owned_by(name, FIRST_ID, None)
    }

    /// The same for a user who is not root, and that user's id: this one, or one nobody has.
    pub(crate) fn of_ordinary_user(name: &str) -> Option<(Self, u32)> {
        let user = match own_id() {
            0 => FIRST_ID - 1,
            own => own,
        };
        let mut namespace = Command::new("unshare");
        namespace.args(["--user", "true"]).uid(user).gid(user);
        if !namespace.status().is_ok_and(|status| status.success()) {
            eprintln!("skipped: an ordinary user may not make a user namespace here");
            return None;
        }
        Some((Self::owned_by(name, user, Some(user))?, user))
    }

    fn owned_by(name: &str, owner: u32, user: Option<u32>) -> Option<Self> {
        if Command::new(runtime()).arg("--version").output().is_err() {
            eprintln!("skipped: {} is not installed", runtime());
            return None;
        }
        if !Path::new(BUSYBOX).exists() {
            eprintln!("skipped: {BUSYBOX} is missing (package busybox-static)");
            return None;
        }
        let folder = tempfile::Builder::new()
            .prefix("airlock-oci-")
            .tempdir()
            .unwrap();
        // The Space's root passes through, and sees nothing else.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let container = Self {
            id: format!("airlock-oci-{name}-{}", std::process::id()),
            folder,
            user,
        };
        container.fill_root();
        let given = match user {
            // The runtime writes its state beside the root.
            Some(_) => container.folder.path().to_owned(),
            None => container.root(),
        };
        give(&given, owner);
        Some(container)
    }

    fn fill_root(&self) {
        let bin = self.root().join("bin");
        fs::create_dir_all(&bin).unwrap();
        for folder in ["proc", "sys", "dev", "run", "tmp", "etc"] {
            fs::create_dir(self.root().join(folder)).unwrap();
        }
        fs::copy(BUSYBOX, bin.join("busybox")).unwrap();
        let list = Command::new(BUSYBOX).arg("--list").output().unwrap();
        for applet in String::from_utf8(list.stdout).unwrap().lines() {
            if applet != "busybox" {
                symlink("busybox", bin.join(applet)).unwrap();
            }
        }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// A file or folder beside the root, of the host's alone.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The strictest configuration, running this shell script.
    pub(crate) fn config(&self, script: &str) -> ContainerConfig {
        let map = vec![IdMapping {
            inside: 0,
            outside: FIRST_ID,
            count: IDS,
        }];
        ContainerConfig {
            hostname: "walled".to_owned(),
            args: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            env: vec![("PATH".to_owned(), "/bin".to_owned())],
            rootfs: self.root(),
            uid_map: map.clone(),
            gid_map: map,
            netns: None,
            sysfs: None,
            cgroup: None,
            cgroup_mount: CgroupMount::Hidden,
            mounts: Vec::new(),
            host_cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
            zero: airlock_oci::Zero::HostRoot,
            open_files: own_open_files().min(DEFAULT_OPEN_FILES),
        }
    }

    fn runc(&self) -> Command {
        let mut runc = Command::new(runtime());
        runc.arg("--root").arg(self.beside("state"));
        if let Some(user) = self.user {
            runc.uid(user)
                .gid(user)
                .env("XDG_RUNTIME_DIR", self.folder.path());
        }
        runc
    }

    fn write(&self, spec: &Spec) {
        let spec = serde_json::to_vec_pretty(spec).unwrap();
        fs::write(self.beside("config.json"), spec).unwrap();
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, config: &ContainerConfig) -> Output {
        self.run_spec(&build(config).unwrap())
    }

    fn run_spec(&self, spec: &Spec) -> Output {
        self.write(spec);
        self.runc()
            .args(["run", "--bundle"])
            .arg(self.folder.path())
            .arg(&self.id)
            .stdin(Stdio::piped())
            .output()
            .unwrap()
    }

    /// Runs a script to its successful end and hands over what it said.
    pub(crate) fn says(&self, config: &ContainerConfig) -> String {
        success(&self.run(config))
    }

    /// The same with every system call let by; everything else stays as strict.
    pub(crate) fn says_unfiltered(&self, config: &ContainerConfig) -> String {
        let mut spec = build(config).unwrap();
        spec.linux_mut().as_mut().unwrap().set_seccomp(None);
        success(&self.run_spec(&spec))
    }

    /// Starts it and leaves it running.
    pub(crate) fn start(&self, config: &ContainerConfig) {
        self.write(&build(config).unwrap());
        let mut child = self
            .runc()
            .args(["run", "--detach", "--bundle"])
            .arg(self.folder.path())
            .arg(&self.id)
            .stdin(Stdio::piped())
            .stdout(fs::File::create(self.beside("out")).unwrap())
            .stderr(fs::File::create(self.beside("err")).unwrap())
            .spawn()
            .unwrap();
        let status = child.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    fn state(&self) -> Option<serde_json::Value> {
        let output = self.runc().arg("state").arg(&self.id).output().unwrap();
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Ends what [`Self::start`] started, and removes it.
    pub(crate) fn delete(&self) {
        let killed = self.runc().args(["kill", &self.id, "KILL"]).status();
        assert!(killed.unwrap().success());
        let deadline = Instant::now() + DEADLINE;
        while self.state().unwrap()["status"] != "stopped" {
            assert!(Instant::now() < deadline, "it does not stop");
            std::thread::sleep(Duration::from_millis(5));
        }
        let deleted = self.runc().args(["delete", &self.id]).status();
        assert!(deleted.unwrap().success());
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if self.state().is_some() {
            let _ = self.runc().args(["delete", "--force", &self.id]).status();
        }
    }
}

fn own_id() -> u32 {
    fs::metadata("/proc/self").unwrap().uid()
}

/// Hands a tree to its owner.
fn give(path: &Path, owner: u32) {
    if path.is_symlink() {
        lchown(path, Some(owner), Some(owner)).unwrap();
        return;
    }
    chown(path, Some(owner), Some(owner)).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path(), owner);
        }
    }
}

/// The hard limit of this process: raising it takes a capability that even root may lack.
fn own_open_files() -> u64 {
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let hard = line.split_whitespace().nth(4).unwrap();
    hard.parse().unwrap_or(u64::MAX)
}
