//! Files that are no ordinary files: made up by the kernel, or pipes.

use std::io::Read as _;
use std::time::Duration;

use airlock::transfer::{DownloadError, DownloadOptions, Target};
use rustix::fs::{CWD, Mode};
use tokio_util::sync::CancellationToken;

use crate::harness::{Guest, content};

/// Their size is 0 or a page, whatever is in them.
#[tokio::test]
async fn files_that_the_kernel_makes_up_come_whole() {
    let guest = Guest::start();
    let client = guest.client().await;
    for path in [
        "/proc/version",
        "/proc/filesystems",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ] {
        let Ok(expected) = std::fs::read(path) else {
            continue;
        };
        assert!(!expected.is_empty(), "{path}");
        let got = client.download_bytes(&path.into()).await.unwrap();
        assert_eq!(got.bytes, expected, "{path}");
        assert_eq!(got.receipt.bytes, expected.len() as u64, "{path}");
    }
    // Larger than one message: through the lane.
    if let Ok(expected) = std::fs::read("/proc/kallsyms") {
        let got = client
            .download_bytes(&"/proc/kallsyms".into())
            .await
            .unwrap();
        assert!(got.bytes == expected, "the bytes differ");
    }
}

#[tokio::test]
async fn a_pipe_without_a_reader_is_waited_for_until_cancelled() {
    let guest = Guest::start();
    let host = tempfile::tempdir().unwrap();
    let client = guest.client().await;
    std::fs::write(guest.path("file"), "x").unwrap();
    let pipe = host.path().join("pipe");
    rustix::fs::mkfifoat(CWD, &pipe, Mode::RWXU).unwrap();

    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        stop.cancel();
    });
    let options = DownloadOptions::default();
    let source = guest.guest_path("file");
    let target = Target::from(pipe.as_path());
    let download = client.download_with(&source, target, options, &cancel);
    let ended = tokio::time::timeout(Duration::from_secs(20), download).await;
    let error = ended.expect("cancelling ends the wait").unwrap_err();
    assert!(matches!(error, DownloadError::Cancelled), "{error:?}");
}

#[tokio::test]
async fn a_reader_of_a_pipe_may_come_late_and_be_slow() {
    let guest = Guest::start();
    let host = tempfile::tempdir().unwrap();
    let client = guest.client().await;
    let bytes = content(3 * 1024 * 1024 + 5);
    std::fs::write(guest.path("file"), &bytes).unwrap();
    let pipe = host.path().join("pipe");
    rustix::fs::mkfifoat(CWD, &pipe, Mode::RWXU).unwrap();

    let from = pipe.clone();
    let reader = tokio::task::spawn_blocking(move || {
        std::thread::sleep(Duration::from_millis(150));
        let mut file = std::fs::File::open(from).unwrap();
        std::thread::sleep(Duration::from_millis(150));
        let mut got = Vec::new();
        file.read_to_end(&mut got).unwrap();
        got
    });
    client
        .download(&guest.guest_path("file"), pipe.as_path())
        .await
        .unwrap();
    assert!(reader.await.unwrap() == bytes, "the bytes differ");
}
