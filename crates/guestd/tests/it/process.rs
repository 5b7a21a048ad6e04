use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use airlock_wire::cua::v1::process_event::Event;
use airlock_wire::cua::v1::process_selector::Selector;
use airlock_wire::cua::v1::{
    AdvanceEpochRequest, CloseStdinRequest, ConnectProcessRequest, GetExecRecordRequest,
    ListProcessesRequest, ProcessInput, ProcessSelector, PtyConfig, PtySize, SendInputRequest,
    Signal, SignalProcessRequest, StartProcessRequest, StreamInputRequest, process_data,
    process_input, stream_input_request,
};
use airlock_wire::{Fault, FaultKind};

use crate::space::{Outcome, Space, command, noise, outcome, sh};

fn by_pid(pid: u32) -> ProcessSelector {
    ProcessSelector {
        selector: Some(Selector::Pid(pid)),
    }
}

fn by_tag(tag: &str) -> ProcessSelector {
    ProcessSelector {
        selector: Some(Selector::Tag(tag.to_owned())),
    }
}

fn seconds(seconds: f64) -> prost_types::Duration {
    let duration = Duration::from_secs_f64(seconds);
    prost_types::Duration {
        seconds: duration.as_secs().cast_signed(),
        nanos: duration.subsec_nanos().cast_signed(),
    }
}

fn with_timeout(mut request: StartProcessRequest, limit: f64) -> StartProcessRequest {
    if let Some(config) = &mut request.config {
        config.timeout = Some(seconds(limit));
    }
    request
}

/// Waits until `is_true` holds; the test's own time limit is the harness's.
async fn until(mut is_true: impl FnMut() -> bool) {
    while !is_true() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.starts_with(" Z"))
}

#[tokio::test]
async fn streams_stay_apart_and_the_exit_code_is_told() {
    let space = Space::open().await;
    let result = space.sh("echo out; echo err >&2; exit 7").await;
    assert_eq!((result.text(), &*result.stderr), ("out\n", &b"err\n"[..]));
    assert_eq!(result.end.exit_code, Some(7));
    assert!(!result.end.timed_out && result.end.ended_at.is_some());
}

#[tokio::test]
async fn a_signal_is_no_exit_code() {
    let space = Space::open().await;
    let end = space.sh("kill -SEGV $$").await.end;
    assert_eq!(
        (end.exit_code, end.signal_number, &*end.signal_name),
        (None, 11, "SIGSEGV")
    );
    assert_eq!(end.signal(), Signal::Unspecified);
    let end = space.sh("kill -TERM $$").await.end;
    assert_eq!((end.signal(), end.signal_number), (Signal::Term, 15));
}

#[tokio::test]
async fn arguments_and_environment_are_bytes_and_never_a_shells() {
    let space = Space::open().await;
    let words = [
        "a b",
        "\"q\"'s",
        "$(id)",
        "line\nbreak",
        "-rf",
        "*",
        "ä",
        "",
    ];
    let mut request = command(&["printf", "%s|"]);
    let config = request.config.as_mut().unwrap();
    config.args.extend(words.map(str::to_owned));
    let expected = words.join("|") + "|";
    assert_eq!(space.run(request).await.unwrap().text(), expected);

    let mut request = command(&["env"]);
    let config = request.config.as_mut().unwrap();
    config.env.insert("A B".to_owned(), "x\ny $(id)".to_owned());
    let text = space.run(request).await.unwrap().text().to_owned();
    assert!(
        text.contains("A B=x\ny $(id)\n") && text.contains("LANG=C.UTF-8\n"),
        "{text}"
    );
    assert!(
        !text.contains("CARGO"),
        "guestd's own environment leaked: {text}"
    );
}

#[tokio::test]
async fn what_cannot_run_is_told_apart_from_what_is_missing() {
    let space = Space::open().await;
    let missing = space.run(command(&["no-such-command"])).await.unwrap().end;
    assert_eq!(missing.exit_code, Some(127));
    assert_eq!(missing.error, "no-such-command: command not found");
    let file = space.path("f");
    std::fs::write(&file, "x").unwrap();
    for request in [command(&[&file]), command(&["/"])] {
        let end = space.run(request).await.unwrap().end;
        assert_eq!(end.exit_code, Some(126));
        assert!(end.error.contains("denied"), "{}", end.error);
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let end = space.run(command(&[&file])).await.unwrap().end;
    assert_eq!(end.exit_code, Some(126), "no interpreter line: {end:?}");
}

#[tokio::test]
async fn a_missing_folder_and_a_missing_user_are_faults_that_name_them() {
    let space = Space::open().await;
    let mut request = command(&["true"]);
    request.config.as_mut().unwrap().cwd = "/no/such dir".to_owned();
    let fault = space.run(request).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::PathNotFound);
    assert!(fault.message.contains("/no/such dir"), "{fault}");
    let mut request = command(&["true"]);
    request.config.as_mut().unwrap().user = "nobody-here".to_owned();
    let fault = space.run(request).await.unwrap_err();
    assert!(fault.message.contains("nobody-here"), "{fault}");
    assert_eq!(
        space.run(command(&[""])).await.unwrap_err().kind,
        FaultKind::InvalidArgument
    );
}

#[tokio::test]
async fn user_and_folder_are_what_was_asked_for() {
    let space = Space::open().await;
    let mut request = sh("pwd");
    request.config.as_mut().unwrap().cwd = "/usr/bin".to_owned();
    assert_eq!(space.run(request).await.unwrap().text(), "/usr/bin\n");
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root becomes another user");
        return;
    }
    let mut request = sh("id -u; id -G; echo $HOME; pwd");
    request.config.as_mut().unwrap().user = "54321".to_owned();
    let result = space.run(request).await.unwrap();
    assert_eq!(result.text(), "54321\n54321\n/\n/\n");
}

#[tokio::test]
async fn too_many_arguments_are_refused_with_their_size() {
    let space = Space::open().await;
    let fault = space
        .run(command(&["true", &"x".repeat(200_000)]))
        .await
        .unwrap_err();
    assert_eq!(fault.kind, FaultKind::LimitExceeded);
    assert!(fault.message.contains("bytes of arguments"), "{fault}");
    let result = space
        .run(command(&["printf", "%s", &"x".repeat(100_000)]))
        .await
        .unwrap();
    assert_eq!(result.stdout.len(), 100_000);
}

#[tokio::test]
async fn two_million_lines_arrive_exactly() {
    let space = Space::open().await;
    let result = space.run(command(&["seq", "2000000"])).await.unwrap();
    let mut expected = 1_u32;
    for line in result.text().lines() {
        assert_eq!(line.parse(), Ok(expected));
        expected += 1;
    }
    assert_eq!(expected, 2_000_001);
}

#[tokio::test]
async fn a_slow_reader_gets_everything() {
    let space = Space::open().await;
    let stream = space.start(command(&["seq", "5000000"])).await.unwrap();
    let extent = async || space.list(true).await.remove(0).output_end_offset;
    // Nothing is read from the stream, so the output stands still once every buffer is full.
    let mut last = extent().await;
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = extent().await;
        if now == last && now > 0 {
            break;
        }
        last = now;
    }
    let expected: usize = (1..=5_000_000_u32).map(|n| n.ilog10() as usize + 2).sum();
    assert!(last < expected as u64, "it never stood still");
    let result = outcome(stream).await.unwrap();
    assert_eq!(result.stdout.len(), expected);
    assert_eq!(result.end.exit_code, Some(0));
}

impl Space {
    async fn list(&self, include_exited: bool) -> Vec<airlock_wire::cua::v1::ProcessInfo> {
        let request = ListProcessesRequest {
            include_exited,
            ..ListProcessesRequest::default()
        };
        self.processes
            .clone()
            .list_processes(request)
            .await
            .unwrap()
            .into_inner()
            .processes
    }

    async fn feed(&self, pid: u32, sequence: u64, data: &[u8]) -> Result<(u64, bool), Fault> {
        let request = SendInputRequest {
            process: Some(by_pid(pid)),
            input: Some(ProcessInput {
                input: Some(process_input::Input::Stdin(data.to_vec())),
            }),
            sequence,
            writer_id: "w".to_owned(),
        };
        let response = self.processes.clone().send_input(request).await;
        let response = response
            .map_err(|status| Fault::from_status(&status))?
            .into_inner();
        Ok((response.applied_sequence, response.duplicate))
    }

    async fn close_stdin(&self, pid: u32) {
        let request = CloseStdinRequest {
            process: Some(by_pid(pid)),
        };
        self.processes.clone().close_stdin(request).await.unwrap();
    }
}

async fn started(
    stream: &mut tonic::Streaming<airlock_wire::cua::v1::StartProcessResponse>,
) -> u32 {
    match stream
        .message()
        .await
        .unwrap()
        .unwrap()
        .event
        .unwrap()
        .event
        .unwrap()
    {
        Event::Start(start) => start.pid,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn binary_input_comes_back_and_sequences_count_once() {
    let space = Space::open().await;
    let request = StartProcessRequest {
        stdin: true,
        ..command(&["cat"])
    };
    let mut stream = space.start(request).await.unwrap();
    let pid = started(&mut stream).await;
    let data = noise(1 << 20);
    let reading = tokio::spawn(outcome(stream));
    for (sequence, piece) in (1..).zip(data.chunks(100_000)) {
        assert_eq!(
            space.feed(pid, sequence, piece).await.unwrap(),
            (sequence, false)
        );
        assert_eq!(
            space.feed(pid, sequence, piece).await.unwrap(),
            (sequence, true)
        );
    }
    let gap = space.feed(pid, 100, b"x").await.unwrap_err();
    assert_eq!(gap.kind, FaultKind::SequenceGap);
    assert_eq!(gap.metadata["expected_sequence"], "12");
    space.close_stdin(pid).await;
    space.close_stdin(pid).await;
    let result = reading.await.unwrap().unwrap();
    assert!(result.stdout == data);
    assert!(space.feed(pid, 12, b"x").await.is_err());
}

#[tokio::test]
async fn input_can_be_streamed() {
    let space = Space::open().await;
    let request = StartProcessRequest {
        stdin: true,
        ..command(&["cat"])
    };
    let mut stream = space.start(request).await.unwrap();
    let pid = started(&mut stream).await;
    let input = |byte: u8| {
        let input = Some(process_input::Input::Stdin(vec![byte; 1000]));
        stream_input_request::Message::Input(ProcessInput { input })
    };
    let selector = ProcessSelector {
        selector: Some(Selector::Pid(pid)),
    };
    let messages = [
        stream_input_request::Message::Process(selector),
        input(1),
        input(2),
    ];
    let messages = messages.map(|message| StreamInputRequest {
        message: Some(message),
    });
    let sent = space
        .processes
        .clone()
        .stream_input(tokio_stream::iter(messages))
        .await;
    assert_eq!(sent.unwrap().into_inner().bytes_written, 2000);
    space.close_stdin(pid).await;
    assert_eq!(outcome(stream).await.unwrap().stdout.len(), 2000);
}

#[tokio::test]
async fn a_time_out_ends_the_whole_group_and_keeps_the_output() {
    let space = Space::open().await;
    let script = "echo part; sleep 1000 & echo $!; trap '' TERM; sleep 1000 & echo $!; \
                  while :; do sleep 1000; done";
    let result = space.run(with_timeout(sh(script), 0.3)).await.unwrap();
    assert!(result.end.timed_out, "{result:?}");
    assert_eq!(result.end.signal(), Signal::Kill);
    let mut lines = result.text().lines();
    assert_eq!(lines.next(), Some("part"));
    for pid in lines {
        assert!(!is_alive(pid), "{pid} lives");
    }
}

#[tokio::test]
async fn a_child_with_a_session_of_its_own_ends_too() {
    let space = Space::open().await;
    let script = "setsid sleep 1000 & echo $!; sleep 1000";
    let result = space.run(with_timeout(sh(script), 0.3)).await.unwrap();
    assert!(result.end.timed_out);
    until(|| !is_alive(result.text().trim())).await;
}

#[tokio::test]
async fn a_command_within_its_time_is_not_disturbed() {
    let space = Space::open().await;
    let end = space
        .run(with_timeout(sh("exit 3"), 60.0))
        .await
        .unwrap()
        .end;
    assert_eq!((end.exit_code, end.timed_out), (Some(3), false));
}

#[tokio::test]
async fn a_background_job_neither_holds_the_call_nor_dies() {
    let space = Space::open().await;
    let mark = space.path("mark");
    let script = format!(
        "(while [ ! -e {mark}.go ]; do sleep 0.01; done; echo late; echo late; \
                          echo done > {mark}) & echo word"
    );
    let result = space.sh(&script).await;
    assert_eq!((result.text(), result.end.exit_code), ("word\n", Some(0)));
    std::fs::write(format!("{mark}.go"), "").unwrap();
    until(|| std::fs::read_to_string(&mark).is_ok_and(|text| text == "done\n")).await;
}

#[tokio::test]
async fn a_flooding_background_job_does_not_hold_the_call() {
    let space = Space::open().await;
    let mut request = sh("yes & echo $!  >&2");
    request.tag = "flood".to_owned();
    let result = space.run(request).await.unwrap();
    assert_eq!(result.end.exit_code, Some(0));
    let pid = String::from_utf8(result.stderr).unwrap();
    assert!(is_alive(pid.trim()));
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test]
async fn a_caller_that_hangs_up_ends_its_command_only_on_request() {
    let space = Space::open().await;
    for kill_on_disconnect in [true, false] {
        let request = StartProcessRequest {
            kill_on_disconnect,
            ..sh("sleep 1000")
        };
        let mut stream = space.start(request).await.unwrap();
        let pid = started(&mut stream).await;
        drop(stream);
        if kill_on_disconnect {
            until(|| !is_alive(&pid.to_string())).await;
        } else {
            space.sh("true").await;
            assert!(is_alive(&pid.to_string()));
            let request = SignalProcessRequest {
                process: Some(by_pid(pid)),
                signal: Signal::Kill.into(),
                process_group: true,
            };
            space
                .processes
                .clone()
                .signal_process(request)
                .await
                .unwrap();
            until(|| !is_alive(&pid.to_string())).await;
        }
    }
}

#[tokio::test]
async fn a_second_reader_replays_from_where_the_first_one_was() {
    let space = Space::open().await;
    let request = StartProcessRequest {
        tag: "t".to_owned(),
        stdin: true,
        ..sh("seq 1000; read x; echo end")
    };
    let mut stream = space.start(request).await.unwrap();
    let pid = started(&mut stream).await;
    let Event::Data(first) = stream
        .message()
        .await
        .unwrap()
        .unwrap()
        .event
        .unwrap()
        .event
        .unwrap()
    else {
        panic!()
    };
    drop(stream);
    let request = ConnectProcessRequest {
        process: Some(by_tag("t")),
        replay_from_offset: Some(first.offset + 10),
        ..ConnectProcessRequest::default()
    };
    let mut again = space
        .processes
        .clone()
        .connect_process(request)
        .await
        .unwrap()
        .into_inner();
    space.feed(pid, 1, b"\n").await.unwrap();
    let mut text = Vec::new();
    loop {
        match again
            .message()
            .await
            .unwrap()
            .unwrap()
            .event
            .unwrap()
            .event
            .unwrap()
        {
            Event::Data(data) => {
                assert_eq!(data.offset, 10 + text.len() as u64);
                let Some(process_data::Output::Stdout(bytes)) = data.output else {
                    panic!()
                };
                text.extend_from_slice(&bytes);
            }
            Event::End(end) => break assert_eq!(end.exit_code, Some(0)),
            Event::Start(_) | Event::Keepalive(_) => {}
        }
    }
    let numbers: Vec<_> = (1..=1000).map(|n| n.to_string()).collect();
    let expected = numbers.join("\n") + "\n";
    assert_eq!(
        String::from_utf8(text).unwrap(),
        format!("{expected}end\n")[10..]
    );
}

#[tokio::test]
async fn quiet_commands_are_kept_alive() {
    let space = Space::open().await;
    let request = StartProcessRequest {
        keepalive_interval: Some(seconds(0.1)),
        ..sh("sleep 0.5")
    };
    let mut stream = space.start(request).await.unwrap();
    let mut keepalives = 0;
    while let Some(response) = stream.message().await.unwrap() {
        keepalives += usize::from(matches!(
            response.event.unwrap().event.unwrap(),
            Event::Keepalive(_)
        ));
    }
    assert!(keepalives > 0);
}

#[tokio::test]
async fn a_terminal_is_one_in_both_directions() {
    let space = Space::open().await;
    let request = StartProcessRequest {
        pty: Some(PtyConfig {
            size: Some(PtySize {
                cols: 101,
                rows: 33,
                ..PtySize::default()
            }),
            term: "vt100".to_owned(),
        }),
        ..sh("stty size; echo $TERM; tty >/dev/null && echo tty; read x; echo \"<$x>\" > /dev/tty")
    };
    let mut stream = space.start(request).await.unwrap();
    let pid = started(&mut stream).await;
    space.feed(pid, 1, b"hello\n").await.unwrap();
    let result = outcome(stream).await.unwrap();
    // The terminal echoes the input, at whatever time it comes.
    let text = result.text().replace("\r\n", "\n");
    let without_echo = text.replacen("hello\n", "", 1);
    assert_eq!(without_echo, "33 101\nvt100\ntty\n<hello>\n", "{text}");
    assert_eq!(result.end.exit_code, Some(0));
}

#[tokio::test]
async fn a_repeated_request_id_attaches_to_the_first_command() {
    let space = Space::open().await;
    let counter = space.path("count");
    let request = StartProcessRequest {
        request_id: "once".to_owned(),
        ..sh(&format!("echo x >> {counter}; echo out"))
    };
    for deduplicated in [false, true] {
        let mut stream = space.start(request.clone()).await.unwrap();
        let first = stream
            .message()
            .await
            .unwrap()
            .unwrap()
            .event
            .unwrap()
            .event
            .unwrap();
        let Event::Start(start) = first else { panic!() };
        assert_eq!(
            (start.deduplicated, &*start.request_id),
            (deduplicated, "once")
        );
        assert_eq!(outcome(stream).await.unwrap().text(), "out\n");
    }
    assert_eq!(std::fs::read_to_string(counter).unwrap(), "x\n");
    let request = GetExecRecordRequest {
        request_id: "once".to_owned(),
    };
    let record = space
        .processes
        .clone()
        .get_exec_record(request)
        .await
        .unwrap()
        .into_inner();
    let record = record.record.unwrap();
    assert_eq!((record.output_bytes, record.tail.len()), (4, 1));
    let mut hasher = airlock_digest::FileHasher::new();
    hasher.update(
        b"out
",
    );
    assert_eq!(record.output_sha256, hasher.finish().to_string());
}

#[tokio::test]
async fn a_new_epoch_ends_the_commands_of_the_old_one() {
    let space = Space::open().await;
    let mut stream = space.start(sh("sleep 1000")).await.unwrap();
    started(&mut stream).await;
    let request = AdvanceEpochRequest { epoch: 5 };
    let advanced = space
        .processes
        .clone()
        .advance_epoch(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!((advanced.epoch, advanced.killed), (5, 1));
    assert_eq!(outcome(stream).await.unwrap().end.signal(), Signal::Term);
    let stale = space
        .run(StartProcessRequest {
            epoch: 4,
            ..sh("true")
        })
        .await
        .unwrap_err();
    assert_eq!(
        (stale.kind, &*stale.metadata["current_epoch"]),
        (FaultKind::StaleEpoch, "5")
    );
    let current = space
        .run(StartProcessRequest {
            epoch: 5,
            ..sh("true")
        })
        .await
        .unwrap();
    assert_eq!(current.end.exit_code, Some(0));
}

#[tokio::test]
async fn unknown_processes_and_signals_are_refused() {
    let space = Space::open().await;
    let request = SignalProcessRequest {
        process: Some(by_pid(1)),
        signal: Signal::Kill.into(),
        process_group: false,
    };
    let status = space
        .processes
        .clone()
        .signal_process(request)
        .await
        .unwrap_err();
    assert_eq!(Fault::from_status(&status).kind, FaultKind::ProcessNotFound);
    let result = space.sh("true").await;
    assert_eq!(result.end.exit_code, Some(0));
    let pid = space.list(true).await[0].pid;
    let request = SignalProcessRequest {
        process: Some(by_pid(pid)),
        signal: Signal::Kill.into(),
        process_group: true,
    };
    let status = space
        .processes
        .clone()
        .signal_process(request)
        .await
        .unwrap_err();
    assert_eq!(Fault::from_status(&status).kind, FaultKind::ProcessNotFound);
}

#[tokio::test]
async fn exit_codes_are_true_under_parallel_load() {
    let space = std::sync::Arc::new(Space::open().await);
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..8 {
        let space = std::sync::Arc::clone(&space);
        tasks.spawn(async move {
            for round in 0..10 {
                let code = (worker * 10 + round) % 256;
                let result: Outcome = space.sh(&format!("(true &); exit {code}")).await;
                assert_eq!(result.end.exit_code, Some(code));
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}
