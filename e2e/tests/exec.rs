//! Commands in a Space: exit codes, streams, time-outs.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on shall end, and say why"
)]

use std::io::Write;
use std::process::Stdio;

use airlock_e2e::{
    Kind, TestSpace, airlock, command, on_both_kinds, run, signal, start, wait_until,
};
use rustix::process::Signal;

on_both_kinds! {
    every_day: commands_in_one_space;
    slow_on_vm: ;
}

fn commands_in_one_space(kind: Kind) {
    let space = TestSpace::tiny(kind, "exec");
    exit_codes(&space);
    streams_and_environment(&space);
    binary_input_and_output(&space);
    no_output_is_lost(&space);
    a_burst_of_commands(&space);
    time_outs_kill_the_group(&space);
    a_closed_client_takes_its_command_along(&space);
    background_jobs_do_not_hold_the_call(&space);
}

fn exit_codes(space: &TestSpace) {
    assert_eq!(space.exec(&["true"]).code, 0);
    assert_eq!(space.exec(&["sh", "-c", "exit 7"]).code, 7);
    assert_eq!(space.exec(&["sh", "-c", "kill -9 $$"]).code, 137);
    let _ran = space
        .exec(&["/no/such/program"])
        .expect(127)
        .says("/no/such/program");
    let _ran = space.exec(&["/etc/passwd"]).expect(126);
    let json = airlock(["exec", "--json", &space.name, "--", "sh", "-c", "exit 3"])
        .expect(3)
        .json();
    assert_eq!(json["exit_code"], 3, "{json}");
}

fn streams_and_environment(space: &TestSpace) {
    let ran = space
        .exec(&["sh", "-c", "echo out; echo err >&2"])
        .expect(0);
    assert_eq!(ran.text(), "out\n");
    assert_eq!(ran.stderr, "err\n");
    let args = [
        "exec",
        &space.name,
        "--cwd",
        "/tmp",
        "--env",
        "A=x y",
        "--",
        "sh",
        "-c",
    ];
    let ran = airlock([&args[..], &["pwd; echo \"$A\""]].concat()).expect(0);
    assert_eq!(ran.text(), "/tmp\nx y\n");
    // No shell touches an argument.
    let odd = "a b 'c' \"d\" $(id) `id` \n -x";
    assert_eq!(space.exec(&["printf", "%s", odd]).expect(0).text(), odd);
    let ran = airlock(["exec", &space.name, "--cwd", "/nope", "--", "true"]);
    let _ran = ran.expect(125).says("/nope");
}

/// K14.1, K14.4
fn binary_input_and_output(space: &TestSpace) {
    let data: Vec<u8> = (0..1_000_003u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let mut child = command(["exec", "-i", &space.name, "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent = data.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    assert!(
        output.stdout == data,
        "{} bytes came back",
        output.stdout.len()
    );
}

/// K2.1, scaled: 500,000 numbers.
fn no_output_is_lost(space: &TestSpace) {
    let ran = space.exec(&["seq", "1", "500000"]).expect(0);
    let mut expected = String::new();
    for number in 1..=500_000 {
        expected.push_str(&number.to_string());
        expected.push('\n');
    }
    assert!(
        ran.text() == expected,
        "{} bytes of {}",
        ran.stdout.len(),
        expected.len()
    );
}

/// Each call makes a connection of its own, and none may be lost on the way.
fn a_burst_of_commands(space: &TestSpace) {
    let calls: Vec<_> = (0..40)
        .map(|code| {
            let line = format!("exit {code}");
            start(&mut command(["exec", &space.name, "--", "sh", "-c", &line]))
        })
        .collect();
    let codes = calls
        .into_iter()
        .map(|mut call| call.wait().unwrap().code());
    assert!(codes.eq((0..40).map(Some)));
}

/// K6.2, K2.14
fn time_outs_kill_the_group(space: &TestSpace) {
    let line = "echo before; sleep 4321 & sleep 4321";
    let ran = airlock([
        "exec",
        &space.name,
        "--timeout",
        "1",
        "--",
        "sh",
        "-c",
        line,
    ])
    .expect(124);
    assert_eq!(
        ran.text(),
        "before\n",
        "what came before the time-out is delivered"
    );
    wait_until("the sleeps are gone", || {
        space.sh("ps | grep -c '[s]leep 4321'; true") == "0"
    });
}

/// K6.1
fn a_closed_client_takes_its_command_along(space: &TestSpace) {
    let running = || space.sh("ps | grep -c '[s]leep 8765'; true") != "0";
    let mut child = start(&mut command(["exec", &space.name, "--", "sleep", "8765"]));
    wait_until("the command runs", running);
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    wait_until("the command is gone", || !running());
}

/// K6.5
fn background_jobs_do_not_hold_the_call(space: &TestSpace) {
    let started = std::time::Instant::now();
    let ran = space.exec(&["sh", "-c", "sleep 600 & echo word"]).expect(0);
    assert_eq!(ran.text(), "word\n");
    assert!(
        started.elapsed().as_secs() < 60,
        "the call waited for the background job"
    );
}

#[test]
fn refusals_without_a_space() {
    let _ran = airlock(["exec", "nosuch"]).expect(125);
    let _ran = run(&mut command(["exec", "nosuch", "--", "true"]))
        .expect(125)
        .says("nosuch");
}
