//! Container Spaces of an ordinary user, with and without subordinate ids.
//!
//! The tests run as root and become a user of their own making: `/etc/passwd`, `/etc/subuid` and
//! `/etc/subgid` are replaced within a mount namespace of the test.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on shall end, and say why"
)]

use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use airlock_e2e::{Ran, program, run, same_bytes, write_random};

/// The user, whom no system has.
const UID: u32 = 54_321;
/// The first of its subordinate ids.
const SUBORDINATE: u32 = 700_000_000;

/// A user with a home of its own.
struct User {
    home: tempfile::TempDir,
    files: PathBuf,
}

impl User {
    fn new(has_subordinate_ids: bool) -> Self {
        let home = tempfile::tempdir().unwrap();
        chown(home.path(), Some(UID), Some(UID)).unwrap();
        let files = home.path().join("etc");
        std::fs::create_dir(&files).unwrap();
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
        let line = format!("someone:x:{UID}:{UID}::{}:/bin/sh\n", home.path().display());
        std::fs::write(files.join("passwd"), passwd + &line).unwrap();
        let range = if has_subordinate_ids {
            format!("someone:{SUBORDINATE}:65536\n")
        } else {
            String::new()
        };
        // The user may not be able to pass the folders above the program under test.
        std::fs::create_dir(home.path().join("bin")).unwrap();
        std::fs::copy(program(), home.path().join("bin/airlock")).unwrap();
        if let Some(guestd) = std::env::var_os("AIRLOCK_GUESTD") {
            std::fs::copy(guestd, home.path().join("guestd")).unwrap();
        }
        for table in ["subuid", "subgid"] {
            std::fs::write(files.join(table), &range).unwrap();
        }
        Self { home, files }
    }

    fn airlock_home(&self) -> PathBuf {
        self.home.path().join("airlock")
    }

    /// Runs `airlock` as this user.
    fn airlock(&self, args: &[&str]) -> Ran {
        let script = format!(
            "for f in passwd subuid subgid; do mount --bind {}/$f /etc/$f || exit 99; done; \
             exec setpriv --reuid {UID} --regid {UID} --clear-groups \"$0\" \"$@\"",
            self.files.display()
        );
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", &script])
            .arg(self.home.path().join("bin/airlock"))
            .args(args)
            .env("HOME", self.home.path())
            .env("AIRLOCK_HOME", self.airlock_home())
            .env_remove("AIRLOCK_KEEPER")
            .current_dir("/");
        let guestd = self.home.path().join("guestd");
        if guestd.exists() {
            command.env("AIRLOCK_GUESTD", guestd);
        }
        run(&mut command)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let ran = self.airlock(&["spaces", "delete", "--all"]);
        assert!(
            ran.code == 0 || std::thread::panicking(),
            "a Space stays behind: {ran:#?}"
        );
    }
}

fn owner_on_the_host(home: &Path, file: &str) -> (u32, u32) {
    let path = home.join("spaces/mine/upper").join(file);
    let metadata = std::fs::metadata(path).unwrap();
    (metadata.uid(), metadata.gid())
}

fn copies_and_starts_again(user: &User) {
    let source = user.home.path().join("source");
    write_random(&source, 3_000_001, 7);
    chown(&source, Some(UID), Some(UID)).unwrap();
    let back = user.home.path().join("back");
    let (source, back) = (source.to_str().unwrap(), back.to_str().unwrap());
    let _ran = user.airlock(&["cp", source, "mine:/root/f"]).expect(0);
    let _ran = user.airlock(&["spaces", "stop", "mine"]).expect(0);
    let _ran = user.airlock(&["spaces", "start", "mine"]).expect(0);
    let receipt = user
        .airlock(&["cp", "--json", "mine:/root/f", back])
        .expect(0)
        .json();
    assert_eq!(receipt["route"], "lane");
    assert!(same_bytes(Path::new(source), Path::new(back)));
}

const CREATE: [&str; 9] = [
    "spaces",
    "create",
    "tiny",
    "--name",
    "mine",
    "--kind",
    "container",
    "--network",
    "none",
];

/// Whether this process may become another user; says so if not.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: only root can become the user of this test");
    }
    root
}

#[test]
fn subordinate_ids_give_files_other_owners() {
    if !is_root() {
        return;
    }
    let user = User::new(true);
    let _ran = user.airlock(&CREATE).expect(0);
    let line = "id -u; touch /root/a; chown 33:44 /root/a; cat /proc/self/status";
    let ran = user
        .airlock(&["exec", "mine", "--", "sh", "-c", line])
        .expect(0);
    assert!(ran.text().starts_with("0\n"), "{ran:?}");
    assert!(ran.text().contains("NoNewPrivs:\t1"), "{ran:?}");
    let owner = owner_on_the_host(&user.airlock_home(), "root/a");
    assert_eq!(owner, (SUBORDINATE + 33, SUBORDINATE + 44));
    copies_and_starts_again(&user);
    let info = user.airlock(&["spaces", "info", "mine"]).expect(0).text();
    assert!(info.contains("subordinate id 700000000"), "{info}");
    // Files of many owners are removed as well.
    let _ran = user.airlock(&["spaces", "delete", "mine"]).expect(0);
    let left: Vec<_> = std::fs::read_dir(user.airlock_home().join("spaces"))
        .unwrap()
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_single_id_works_and_its_price_is_said() {
    if !is_root() {
        return;
    }
    let user = User::new(false);
    let _ran = user.airlock(&CREATE).expect(0);
    let line = "touch /root/a; chown 33 /root/a 2>/dev/null; echo $?";
    let ran = user
        .airlock(&["exec", "mine", "--", "sh", "-c", line])
        .expect(0);
    assert_eq!(ran.text(), "1\n", "a file was given to another user");
    assert_eq!(
        owner_on_the_host(&user.airlock_home(), "root/a"),
        (UID, UID)
    );
    copies_and_starts_again(&user);
    let info = user.airlock(&["spaces", "info", "mine"]).expect(0).text();
    assert!(info.contains("/etc/subuid"), "{info}");
}

#[test]
fn a_network_that_cannot_be_made_is_4_and_leaves_nothing() {
    if !is_root() {
        return;
    }
    let tun = std::fs::metadata("/dev/net/tun").map(|metadata| metadata.mode() & 0o006);
    if tun.is_ok_and(|others| others == 0o006) {
        println!("skipped: everyone may use /dev/net/tun here");
        return;
    }
    let user = User::new(true);
    let args = [
        "spaces",
        "create",
        "tiny",
        "--name",
        "mine",
        "--kind",
        "container",
    ];
    let _ran = user.airlock(&args).expect(4).says("--network none");
    assert!(!user.airlock_home().join("spaces/mine").exists());
}
