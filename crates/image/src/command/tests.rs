use std::time::{Duration, Instant};

use super::*;

fn shell(script: &str) -> Tool {
    Tool::new("sh").args(["-c", script])
}

#[test]
fn lines_arrive_and_are_logged() {
    let mut log = Vec::new();
    let mut lines = Vec::new();
    shell("echo one; printf 'a\\rb\\n' >&2; printf tail")
        .run(&mut log, &CancellationToken::new(), &mut |line| {
            lines.push(line.to_owned());
        })
        .unwrap();
    assert_eq!(lines, ["one", "a", "b", "tail"]);
    let log = String::from_utf8(log).unwrap();
    assert!(log.ends_with("one\na\rb\ntail"), "{log:?}");
}

#[test]
fn captures_more_than_a_pipe_holds() {
    let mut log = Vec::new();
    let output = shell("echo talk >&2; head -c 1000000 /dev/zero")
        .capture(&mut log, &CancellationToken::new())
        .unwrap();
    assert_eq!(output.len(), 1_000_000);
    assert!(String::from_utf8(log).unwrap().ends_with("talk\n"));
}

#[test]
fn a_failure_carries_the_last_lines() {
    let error =
        shell("for i in $(seq 30); do echo line $i; done; echo No space left on device; exit 3")
            .run(&mut Vec::new(), &CancellationToken::new(), &mut |_| {})
            .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("sh failed (exit status: 3)"), "{text}");
    assert!(
        text.contains("line 30") && !text.contains("line 3\n"),
        "{text}"
    );
    assert!(error.is_disk_full() && !error.is_network());
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let error = Tool::new("no-such-program-here")
        .run(&mut Vec::new(), &CancellationToken::new(), &mut |_| {})
        .unwrap_err();
    assert!(
        error.to_string().contains("no-such-program-here"),
        "{error}"
    );
}

#[test]
fn cancelling_ends_the_whole_group() {
    let cancel = CancellationToken::new();
    let mut grandchild = None;
    let error = shell("sleep 1000 & echo $!; wait")
        .run(&mut Vec::new(), &cancel, &mut |line| {
            grandchild = line.parse().ok();
            cancel.cancel();
        })
        .unwrap_err();
    assert!(matches!(error, CommandError::Cancelled));
    let grandchild = Pid::from_raw(grandchild.expect("the script printed a pid")).unwrap();
    // It has closed its output; the rest of its end may take the kernel another moment.
    let stat = format!("/proc/{}/stat", grandchild.as_raw_pid());
    let runs = || {
        std::fs::read_to_string(&stat)
            .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while runs() {
        assert!(Instant::now() < deadline, "the grandchild still runs");
        std::thread::yield_now();
    }
}

#[test]
fn a_daemon_that_keeps_the_pipe_does_not_hold_up_the_build() {
    let start = Instant::now();
    let mut child = None;
    shell("setsid sleep 60 & echo $!")
        .run(&mut Vec::new(), &CancellationToken::new(), &mut |line| {
            child = line.parse().ok();
        })
        .unwrap();
    assert!(start.elapsed() < Duration::from_secs(30));
    let child = Pid::from_raw(child.expect("the script printed a pid")).unwrap();
    rustix::process::kill_process(child, Signal::KILL).unwrap();
}
