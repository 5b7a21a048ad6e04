//! guestd as a process of its own, since these look at the process itself.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use airlock_wire::cua::v1::process_service_client::ProcessServiceClient;
use tonic::Request;
use tonic::transport::Channel;

use crate::space::{channel, outcome, sh};

struct Guestd {
    child: Child,
    processes: ProcessServiceClient<Channel>,
    _dir: tempfile::TempDir,
}

impl Guestd {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let token = dir.path().join("token");
        std::fs::write(&token, "s3cret-token\n").unwrap();
        let lane = dir.path().join("lane");
        let bytes = airlock_model::LaneGeometry::STANDARD.total_bytes();
        std::fs::File::create(&lane)
            .unwrap()
            .set_len(bytes)
            .unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_airlock-guestd"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args([PathBuf::from("--token-file"), token, "--lane".into(), lane])
            .env("LEAK_ME", "not")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .unwrap()
            .parse()
            .unwrap();
        Self {
            child,
            processes: ProcessServiceClient::new(channel(address)),
            _dir: dir,
        }
    }

    async fn sh(&self, script: &str) -> String {
        let mut request = Request::new(sh(script));
        let value = "Bearer s3cret-token".parse().unwrap();
        request.metadata_mut().insert("authorization", value);
        let stream = self
            .processes
            .clone()
            .start_process(request)
            .await
            .unwrap()
            .into_inner();
        outcome(stream).await.unwrap().text().to_owned()
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id()))
            .unwrap()
            .count()
    }
}

impl Drop for Guestd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn commands_inherit_no_descriptor_and_no_secret() {
    let guestd = Guestd::start();
    let fds = guestd.sh("ls /proc/self/fd").await;
    // The fourth is the folder that `ls` reads.
    assert_eq!(fds, "0\n1\n2\n3\n");
    let env = guestd
        .sh("env; cat /proc/$PPID/cmdline /proc/$PPID/environ | tr '\\0' '\\n'")
        .await;
    assert!(!env.contains("s3cret"), "{env}");
    assert_eq!(
        env.matches("LEAK_ME").count(),
        1,
        "only guestd's own environment has it: {env}"
    );
    assert_eq!(
        guestd.sh("umask; ulimit -n; trap").await.lines().next(),
        Some("0022")
    );
}

#[tokio::test]
async fn two_hundred_commands_leave_no_descriptor_behind() {
    let guestd = Guestd::start();
    guestd.sh("true").await;
    let before = guestd.descriptors();
    for n in 0..200 {
        assert_eq!(guestd.sh(&format!("echo {n}")).await, format!("{n}\n"));
    }
    assert!(
        guestd.descriptors() <= before,
        "{} then {}",
        before,
        guestd.descriptors()
    );
}

#[tokio::test]
async fn sigterm_ends_it_and_its_commands() {
    let mut guestd = Guestd::start();
    let pid = rustix::process::Pid::from_child(&guestd.child);
    let mut request = Request::new(sh("echo $$; sleep 1000"));
    request
        .metadata_mut()
        .insert("authorization", "Bearer s3cret-token".parse().unwrap());
    let mut stream = guestd
        .processes
        .start_process(request)
        .await
        .unwrap()
        .into_inner();
    stream.message().await.unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = guestd.child.wait().unwrap();
    assert!(status.success(), "{status}");
}
