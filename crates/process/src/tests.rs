use std::io::Read;
use std::os::unix::process::ExitStatusExt;

use super::*;

fn shell(script: &str, inherited: InheritedFds, log: Option<File>) -> VmProcess {
    spawn(SpawnRequest {
        binary: "/bin/sh".into(),
        argv: vec!["-c".into(), script.into()],
        inherited,
        run_as: None,
        log,
    })
    .unwrap()
}

fn read_all(mut reader: std::io::PipeReader) -> String {
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text
}

#[tokio::test]
async fn inherits_exactly_what_it_was_given() {
    let (reader, writer) = std::io::pipe().unwrap();
    // Without close-on-exec, as a careless library would leave it.
    let stray = fs_err::File::open("/dev/zero").unwrap();
    rustix::io::fcntl_setfd(&stray, rustix::io::FdFlags::empty()).unwrap();
    let mut inherited = InheritedFds::new();
    let number = inherited.add(fs_err::File::open("/dev/full").unwrap().into_file());
    let script = format!(
        "readlink /proc/self/fd/{number}; for f in /proc/self/fd/*; do echo; readlink $f; done"
    );
    let mut child = shell(&script, inherited, Some(File::from(OwnedFd::from(writer))));
    child.wait().await.unwrap();
    let text = read_all(reader);
    assert!(text.starts_with("/dev/full\n"), "{text}");
    assert!(!text.contains("/dev/zero"), "{text}");
}

#[tokio::test]
async fn has_its_own_session_no_input_and_both_outputs_in_the_log() {
    let (reader, writer) = std::io::pipe().unwrap();
    let log = File::from(OwnedFd::from(writer));
    let script = "read x; echo got $?; echo err >&2; cut -d' ' -f1,6 /proc/$$/stat; pwd";
    let mut child = shell(script, InheritedFds::new(), Some(log));
    let pid = child.pid();
    child.wait().await.unwrap();
    assert_eq!(read_all(reader), format!("got 1\nerr\n{pid} {pid}\n/\n"));
}

#[tokio::test]
async fn kill_ends_it_and_may_be_repeated() {
    let mut child = shell(
        "trap '' TERM INT HUP; while :; do sleep 1; done",
        InheritedFds::new(),
        None,
    );
    let (pid, start_time) = (child.pid(), child.start_time());
    assert!(is_running(pid, start_time));
    assert!(!is_running(pid, start_time + 1));
    assert_eq!(child.kill().await.unwrap().signal(), Some(9));
    assert_eq!(child.kill().await.unwrap().signal(), Some(9));
    assert!(!is_running(pid, start_time));
}

#[tokio::test]
async fn dies_with_the_thread_that_started_it() {
    let runtime = tokio::runtime::Handle::current();
    let mut child = std::thread::spawn(move || {
        let _inside = runtime.enter();
        shell("sleep 100", InheritedFds::new(), None)
    })
    .join()
    .unwrap();
    assert_eq!(child.wait().await.unwrap().signal(), Some(9));
}

#[tokio::test]
async fn a_missing_program_is_an_error_that_names_it() {
    let request = SpawnRequest {
        binary: "/nonexistent/qemu".into(),
        argv: vec![],
        inherited: InheritedFds::new(),
        run_as: None,
        log: None,
    };
    let error = spawn(request).unwrap_err();
    assert_eq!(error.to_string(), "cannot start /nonexistent/qemu");
}

#[tokio::test]
async fn runs_as_another_user_without_groups() {
    let Some(run_as) = RunAs::for_vm() else {
        eprintln!("skipped: only root can change the user");
        return;
    };
    let (reader, writer) = std::io::pipe().unwrap();
    let mut child = spawn(SpawnRequest {
        binary: "/bin/sh".into(),
        argv: vec!["-c".into(), "id -u; id -G".into()],
        inherited: InheritedFds::new(),
        run_as: Some(run_as),
        log: Some(File::from(OwnedFd::from(writer))),
    })
    .unwrap();
    child.wait().await.unwrap();
    assert_eq!(
        read_all(reader),
        format!("{}\n{}\n", run_as.uid, run_as.gid)
    );
}

#[test]
fn start_time_is_found_behind_a_hostile_name() {
    let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
    let stat = format!("17 (a) S 1) b) S {}", fields.join(" "));
    assert_eq!(parse_start_time(&stat), Some(22));
    assert_eq!(parse_start_time(""), None);
    assert_eq!(parse_start_time("1 (x) S 1 2"), None);
}

#[test]
fn nobody_is_never_root() {
    assert_eq!(nobody("root:x:0:0::/:/\nnobody:x:99:98::/:/"), (99, 98));
    assert_eq!(nobody("nobody:x:0:0::/:/"), (65534, 65534));
    assert_eq!(nobody(""), (65534, 65534));
}
