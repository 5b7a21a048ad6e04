//! What the program refuses, and how: exit codes and messages that need no Space.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall end")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;

use assert_cmd::Command;

/// A home of its own for each test, and a folder to stand in.
struct Place {
    home: tempfile::TempDir,
    cwd: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
            cwd: tempfile::tempdir().unwrap(),
        }
    }

    fn airlock<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_airlock"));
        command
            .args(args)
            .env_clear()
            .env("AIRLOCK_HOME", self.home.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir(self.cwd.path());
        command
    }

    /// Runs the words of `line` and checks the exit code and parts of stderr; stdout stays empty.
    fn refuses(&self, line: &str, code: i32, parts: &[&str]) {
        let args: Vec<&OsStr> = line.split_ascii_whitespace().map(OsStr::new).collect();
        self.refuses_args(&args, code, parts);
    }

    fn refuses_args(&self, args: &[&OsStr], code: i32, parts: &[&str]) {
        let output = self.airlock(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        for part in parts {
            assert!(
                stderr.contains(part),
                "{args:?}: {part:?} is not in:\n{stderr}"
            );
        }
        assert!(
            output.stdout.is_empty(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
}

#[test]
fn a_command_line_without_sense_is_usage() {
    let place = Place::new();
    for line in [
        "spaces create",
        "spaces create Linux",
        "spaces create linux --name a_b",
        "spaces create linux --cpus 0",
        "spaces create linux --kind pod",
        "spaces delete",
        "cp a",
        "image build ../x",
        "bench run file-transfer --files 1:",
        "no-such-command",
        "--no-such-flag",
    ] {
        place.refuses(line, 2, &["error: "]);
    }
}

#[test]
fn a_bad_name_says_what_is_allowed() {
    let place = Place::new();
    place.refuses(
        "spaces info My_Box",
        2,
        &["'My_Box'", "allowed are a-z, 0-9"],
    );
    place.refuses("spaces info -- -x", 2, &["not in first place"]);
}

#[test]
fn what_is_not_supported_yet_is_4_and_makes_nothing() {
    let place = Place::new();
    place.refuses(
        "spaces create linux --on other",
        4,
        &["\"other\"", "hint: "],
    );
    assert_eq!(place.home.path().read_dir().unwrap().count(), 0);
}

#[test]
fn wishes_that_exclude_each_other_are_usage_and_make_nothing() {
    let place = Place::new();
    for (line, part) in [
        (
            "spaces create linux --kind container --accel kvm",
            "--kind container does not go with --accel kvm",
        ),
        (
            "spaces create linux --kind vm --runtime runc",
            "--kind vm does not go with --runtime runc",
        ),
    ] {
        place.refuses(line, 2, &[part, "hint: "]);
    }
    let spaces = place.home.path().join("spaces");
    assert_eq!(spaces.read_dir().unwrap().count(), 0);
}

#[test]
fn settings_are_refused_by_name() {
    let place = Place::new();
    place.refuses("config set default.kind pod", 2, &["auto, vm, container"]);
    place.refuses("config set default.king vm", 2, &["default.king", "hint: "]);
    place.refuses("config get nothing", 2, &["nothing", "hint: "]);
    assert!(!place.home.path().join("config.toml").exists());
}

#[test]
fn an_unknown_space_is_3_everywhere_but_in_delete() {
    let place = Place::new();
    std::fs::write(place.cwd.path().join("f"), "x").unwrap();
    for line in [
        "spaces info nope",
        "spaces start nope",
        "spaces stop nope",
        "spaces ls nope",
        "cp f nope:/f",
        "cp nope:/f g",
        "cp nope:/f -",
        "bench run file-transfer --space nope --files 1:1 --iters 1",
    ] {
        place.refuses(line, 3, &["error: ", "no Space nope"]);
    }
    assert!(!place.cwd.path().join("g").exists());
    assert!(!place.cwd.path().join("bench-results").join("x").exists());
    place.airlock(["spaces", "delete", "nope"]).assert().code(0);
}

#[test]
fn exec_keeps_the_codes_of_commands_free() {
    let place = Place::new();
    place.refuses("exec nope -- true", 125, &["error: ", "no Space nope"]);
    place.refuses("exec nope --no-such-flag -- true", 125, &["error: "]);
    place.refuses("--quiet exec nope true", 125, &["error: "]);
    let output = place
        .airlock(["exec", "nope", "--json", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["outcome"], "airlock_failed");
    assert_eq!(json["exit_code"], serde_json::Value::Null);
    assert!(json["message"].as_str().unwrap().contains("nope"));
}

#[test]
fn cp_wants_exactly_one_side_in_a_space() {
    let place = Place::new();
    place.refuses("cp a b", 2, &["neither", "hint: write NAME:/path"]);
    place.refuses("cp - -", 2, &["neither"]);
    place.refuses(
        "cp a:x b:y",
        2,
        &["both sides are in a Space", "hint: go by a pipe"],
    );
    place.refuses(
        "cp My_Box:/x f",
        2,
        &["\"My_Box:/x\" is taken for a local file"],
    );
    place.refuses("cp a:~root/x f", 2, &["homes of other users"]);
}

#[test]
fn a_local_file_with_a_colon_asks_for_clarity() {
    let place = Place::new();
    std::fs::write(place.cwd.path().join("space1:foo"), "x").unwrap();
    place.refuses(
        "cp space1:foo web:/x",
        2,
        &["hint: write ./space1:foo for the local file"],
    );
    // With the marker it gets as far as the Space.
    place.refuses("cp ./space1:foo web:/x", 3, &["no Space web"]);
}

#[test]
fn a_local_mistake_is_found_before_the_space_is_spoken_to() {
    let place = Place::new();
    std::fs::create_dir(place.cwd.path().join("d")).unwrap();
    std::fs::write(place.cwd.path().join("f"), "x").unwrap();
    place.refuses(
        "cp missing web:/x",
        3,
        &["cannot read missing: No such file"],
    );
    place.refuses("cp d web:/x", 4, &["d is a folder", "hint: go by tar"]);
    place.refuses("cp web:/x none/y", 3, &["there is no folder none"]);
    place.refuses("cp web:/x none/", 3, &["there is no folder none/"]);
    place.refuses("cp web:/x f/", 3, &["cannot write f/: Not a directory"]);
    place.refuses("cp web:/x/ d", 2, &["no file name"]);
    place.refuses("cp - web:/x/", 2, &["standard input has no name"]);
    place.refuses("cp --json web:/x -", 2, &["--json does not go with"]);
    // Airlock's home was not even looked at.
    assert_eq!(place.home.path().read_dir().unwrap().count(), 0);
}

#[test]
fn names_that_are_not_utf8_reach_the_file_system_as_they_are() {
    let place = Place::new();
    let name = OsStr::from_bytes(b"\xe4\xff");
    std::fs::write(place.cwd.path().join(name), "x").unwrap();
    let cp = OsStr::new("cp");
    let target = OsStr::new("web:/x");
    place.refuses_args(&[cp, name, target], 3, &["no Space web"]);
    place.refuses_args(
        &[cp, OsStr::from_bytes(b"\xe5"), target],
        3,
        &["cannot read"],
    );
}

#[test]
fn a_home_that_cannot_be_used_is_named() {
    let place = Place::new();
    let file = place.cwd.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let output = place
        .airlock(["spaces", "ls"])
        .env("AIRLOCK_HOME", file.join("home"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_ne!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.starts_with("error: "), "{stderr}");
    assert!(stderr.contains("file/home"), "{stderr}");

    let output = place
        .airlock(["spaces", "ls"])
        .env_remove("AIRLOCK_HOME")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("hint: set AIRLOCK_HOME"), "{stderr}");
}

#[test]
fn a_results_folder_is_never_overwritten() {
    let place = Place::new();
    std::fs::create_dir(place.cwd.path().join("out")).unwrap();
    place.refuses(
        "bench run file-transfer --space nope --out out",
        1,
        &[
            "out is there already",
            "hint: name another folder with --out",
        ],
    );
}

#[test]
fn lists_are_data_and_the_rest_is_talk() {
    let place = Place::new();
    let output = place.airlock(["spaces", "ls", "--json"]).output().unwrap();
    assert_eq!(output.stdout, b"[]\n");
    let output = place.airlock(["spaces", "ls"]).output().unwrap();
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("there are no Spaces"));
    let output = place.airlock(["-q", "spaces", "ls"]).output().unwrap();
    assert!(output.stdout.is_empty() && output.stderr.is_empty());
    let output = place.airlock(["image", "ls"]).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.starts_with("NAME "), "{stdout}");
    assert!(
        stdout.contains("\ntiny ") && stdout.contains("\nlinux "),
        "{stdout}"
    );
    assert!(!stdout.contains('\x1b'), "{stdout}");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let place = Place::new();
    for args in [
        vec!["image", "ls"],
        vec!["completions", "bash"],
        vec!["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = std::process::Command::new(env!("CARGO_BIN_EXE_airlock"))
            .args(&args)
            .env("AIRLOCK_HOME", place.home.path())
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr}");
        assert!(stderr.is_empty(), "{args:?}: {stderr}");
    }
}

#[test]
fn a_full_disk_behind_stdout_is_an_error() {
    let place = Place::new();
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_airlock"))
        .args(["spaces", "ls", "--json"])
        .env("AIRLOCK_HOME", place.home.path())
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write to standard output"));
}

#[test]
fn completions_know_the_commands() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let output = place.airlock(["completions", shell]).output().unwrap();
        assert!(
            String::from_utf8_lossy(&output.stdout).contains("file-transfer"),
            "{shell}"
        );
    }
}
