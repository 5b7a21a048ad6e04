//! The lane and the daemon fail on purpose; nothing damaged is ever published.

use std::sync::Arc;
use std::time::Duration;

use airlock::transfer::{
    DownloadOptions, ErrorKind, LaneSession, Source, Target, UploadError, UploadOptions,
};
use airlock_lane::faults::{FaultPlan, LaneFaults};
use airlock_model::Route;
use airlock_model::size::{MIB, SLOT_BYTES};
use tokio::io::AsyncWriteExt as _;

use crate::harness::{Client, Guest, assert_only, content};

const LARGE: usize = 40 * MIB as usize + 3;

/// One write of the proof for each of the two slots comes before those of a transfer.
const PROOF_WRITES: u64 = 2;
/// The same for reads.
const PROOF_READS: u64 = 2;

async fn upload_is_whole(guest: &Guest, client: &Client) -> airlock::transfer::Receipt {
    let bytes = content(LARGE);
    std::fs::write(guest.path("file"), "old").unwrap();
    let receipt = client
        .upload(bytes.clone(), &guest.guest_path("file"))
        .await
        .unwrap();
    assert!(std::fs::read(guest.path("file")).unwrap() == bytes);
    guest.assert_only(&["file"]);
    receipt
}

async fn download_is_whole(guest: &Guest, client: &Client) -> airlock::transfer::Receipt {
    let bytes = content(LARGE);
    std::fs::write(guest.path("file"), &bytes).unwrap();
    let down = client
        .download_bytes(&guest.guest_path("file"))
        .await
        .unwrap();
    assert!(down.bytes == bytes);
    down.receipt
}

#[tokio::test]
async fn a_flipped_bit_in_an_upload_is_caught_and_sent_again() {
    let guest = Guest::start();
    let faults = LaneFaults::new(FaultPlan {
        flip_write: PROOF_WRITES + 6,
        ..FaultPlan::default()
    });
    let client = guest.client_with_faults(Arc::clone(&faults)).await;
    let receipt = upload_is_whole(&guest, &client).await;
    assert_eq!(faults.flipped(), 1);
    assert_eq!((receipt.leaf_retries, receipt.route), (1, Route::Lane));
}

#[tokio::test]
async fn a_flipped_bit_in_a_download_is_caught_and_sent_again() {
    let faults = LaneFaults::new(FaultPlan {
        flip_write: PROOF_WRITES + 6,
        ..FaultPlan::default()
    });
    let guest = Guest::with_faults(Some(Arc::clone(&faults)));
    let receipt = download_is_whole(&guest, &guest.client().await).await;
    assert_eq!(faults.flipped(), 1);
    assert_eq!((receipt.leaf_retries, receipt.route), (1, Route::Lane));
}

#[tokio::test]
async fn a_lane_that_always_flips_is_left_by_an_upload() {
    let guest = Guest::start();
    let faults = LaneFaults::new(FaultPlan {
        flip_writes_from: PROOF_WRITES + 1,
        ..FaultPlan::default()
    });
    let client = guest.client_with_faults(faults).await;
    let receipt = upload_is_whole(&guest, &client).await;
    assert_eq!(receipt.route, Route::Network);
    assert!(receipt.route_reason.unwrap().contains("damaged"));
    assert!(receipt.leaf_retries >= 3);
}

#[tokio::test]
async fn a_lane_that_always_flips_is_left_by_a_download() {
    let faults = LaneFaults::new(FaultPlan {
        flip_writes_from: PROOF_WRITES + 1,
        ..FaultPlan::default()
    });
    let guest = Guest::with_faults(Some(faults));
    let receipt = download_is_whole(&guest, &guest.client().await).await;
    assert_eq!(receipt.route, Route::Network);
    assert!(receipt.route_reason.unwrap().contains("damaged"));
}

#[tokio::test]
async fn the_host_loses_the_lane_while_it_writes() {
    let guest = Guest::start();
    let faults = LaneFaults::new(FaultPlan {
        fail_writes_from: PROOF_WRITES + 10,
        ..FaultPlan::default()
    });
    let client = guest.client_with_faults(faults).await;
    let receipt = upload_is_whole(&guest, &client).await;
    assert_eq!(receipt.route, Route::Network);
    assert!(receipt.route_reason.unwrap().contains("host's side"));
    let wired = receipt.bytes_on_wire;
    assert!(
        wired > 0 && wired < LARGE as u64,
        "goes on where it was, not from the start: {wired}"
    );
    // A lane that failed is not tried again.
    assert_eq!(
        upload_is_whole(&guest, &client).await.bytes_on_wire,
        LARGE as u64
    );
}

#[tokio::test]
async fn the_host_loses_the_lane_while_it_reads() {
    let guest = Guest::start();
    let faults = LaneFaults::new(FaultPlan {
        fail_reads_from: PROOF_READS + 4,
        ..FaultPlan::default()
    });
    let client = guest.client_with_faults(faults).await;
    let receipt = download_is_whole(&guest, &client).await;
    assert_eq!(receipt.route, Route::Network);
    assert!(receipt.bytes_on_wire < LARGE as u64);
}

#[tokio::test]
async fn the_space_loses_the_lane_while_it_reads() {
    let faults = LaneFaults::new(FaultPlan {
        fail_reads_from: PROOF_READS + 10,
        ..FaultPlan::default()
    });
    let guest = Guest::with_faults(Some(faults));
    let receipt = upload_is_whole(&guest, &guest.client().await).await;
    assert_eq!(receipt.route, Route::Network);
    assert!(
        receipt
            .route_reason
            .unwrap()
            .contains("the Space cannot use the lane")
    );
    assert!(receipt.bytes_on_wire < LARGE as u64);
}

#[tokio::test]
async fn the_space_loses_the_lane_while_it_writes() {
    let faults = LaneFaults::new(FaultPlan {
        fail_writes_from: PROOF_WRITES + 10,
        ..FaultPlan::default()
    });
    let guest = Guest::with_faults(Some(faults));
    let receipt = download_is_whole(&guest, &guest.client().await).await;
    assert_eq!(receipt.route, Route::Network);
    assert!(receipt.route_reason.unwrap().contains("on purpose"));
    assert!(receipt.bytes_on_wire < LARGE as u64);
}

#[tokio::test]
async fn other_memory_is_not_taken_for_the_lane() {
    let (guest, other) = (Guest::start(), Guest::start());
    let connection = guest.connect().await;
    let unusable = LaneSession::attach(&connection, other.lease(1, 0..8)).await;
    assert!(unusable.unwrap_err().reason.contains("does not see"));
}

#[tokio::test]
async fn a_cancelled_upload_leaves_nothing() {
    let guest = Guest::start();
    std::fs::write(guest.path("file"), "old").unwrap();
    for client in [guest.client().await, guest.network_client().await] {
        let cancel = tokio_util::sync::CancellationToken::new();
        // The source stops in the middle, so the upload cannot be over when it is cancelled.
        let (mut near, far) = tokio::io::duplex(MIB as usize);
        let feeding = tokio::spawn(async move {
            near.write_all(&content(9 * MIB as usize)).await.unwrap();
            near
        });
        let dest = guest.guest_path("file");
        let upload = client.upload_with(
            Source::reader(far),
            &dest,
            UploadOptions::default(),
            &cancel,
        );
        let cancelling = async {
            let near = feeding.await.unwrap();
            cancel.cancel();
            near
        };
        let (result, _near) = tokio::join!(upload, cancelling);
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Cancelled);
        // The Space is usable at once.
        client
            .upload(vec![1; SLOT_BYTES], &guest.guest_path("next"))
            .await
            .unwrap();
        guest.assert_only(&["file", "next"]);
        assert_eq!(std::fs::read(guest.path("file")).unwrap(), b"old");
    }
}

#[tokio::test]
async fn a_cancelled_download_leaves_nothing_and_gives_its_slots_back() {
    let guest = Guest::start();
    let host = tempfile::tempdir().unwrap();
    std::fs::write(guest.path("file"), content(LARGE)).unwrap();
    std::fs::write(host.path().join("file"), "old").unwrap();
    let client = guest.client().await;
    let source = guest.guest_path("file");
    for _ in 0..10 {
        let cancel = tokio_util::sync::CancellationToken::new();
        let stop = cancel.clone();
        let on_progress = Box::new(move |_| stop.cancel());
        let result = airlock::transfer::download(
            &client.connection,
            client.lane.as_ref(),
            &source,
            Target::from(host.path()),
            DownloadOptions::default(),
            Some(on_progress),
            &cancel,
        )
        .await;
        // Progress comes ten times a second; a download may be over before.
        if let Err(error) = result {
            assert_eq!(error.kind(), ErrorKind::Cancelled);
            assert_eq!(std::fs::read(host.path().join("file")).unwrap(), b"old");
        } else {
            std::fs::write(host.path().join("file"), "old").unwrap();
        }
        assert_only(host.path(), &["file"]);
    }
    let receipt = download_is_whole(&guest, &client).await;
    assert_eq!((receipt.route, receipt.leaf_retries), (Route::Lane, 0));
}

#[tokio::test]
async fn a_daemon_that_dies_leaves_the_old_file() {
    for lane in [true, false] {
        let guest = Guest::start();
        std::fs::write(guest.path("file"), "old").unwrap();
        let client = if lane {
            guest.client().await
        } else {
            guest.network_client().await
        };
        let (mut near, far) = tokio::io::duplex(MIB as usize);
        let feeding = tokio::spawn(async move {
            near.write_all(&content(9 * MIB as usize)).await.unwrap();
            near
        });
        let dest = guest.guest_path("file");
        let upload = client.upload(Source::reader(far), &dest);
        let killing = async {
            let near = feeding.await.unwrap();
            let dir = guest.kill();
            (near, dir)
        };
        let (result, (_near, dir)) = tokio::join!(upload, killing);
        let error = result.unwrap_err();
        assert!(
            matches!(
                error,
                UploadError::ConnectionLost { .. } | UploadError::Remote(_)
            ),
            "{error:?}"
        );
        assert_only(dir.path(), &["file"]);
        assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"old");
    }
}

#[tokio::test]
async fn a_released_lease_ends_its_transfers_and_takes_no_new_ones() {
    use airlock_wire::lane_v1::ReleaseRequest;
    use airlock_wire::lane_v1::lane_service_client::LaneServiceClient;

    let guest = Guest::start();
    let client = guest.client().await;
    let (mut near, far) = tokio::io::duplex(MIB as usize);
    let feeding = tokio::spawn(async move {
        near.write_all(&content(9 * MIB as usize)).await.unwrap();
        near
    });
    let dest = guest.guest_path("file");
    let upload = client.upload(Source::reader(far), &dest);
    let connection = guest.connect().await;
    let releasing = async {
        let near = feeding.await.unwrap();
        let mut keeper = LaneServiceClient::new(connection.service());
        let lease = vec![1; 16].into();
        keeper.release(ReleaseRequest { lease }).await.unwrap();
        near
    };
    let (result, _near) = tokio::join!(upload, releasing);
    assert!(result.unwrap_err().to_string().contains("lease ended"));
    guest.assert_only(&[]);
    let late = client.upload(vec![0; SLOT_BYTES], &dest).await.unwrap_err();
    assert!(late.to_string().contains("lease has ended"), "{late}");
    tokio::time::timeout(Duration::from_secs(5), guest.client_after(2))
        .await
        .unwrap()
        .upload(vec![0; SLOT_BYTES], &dest)
        .await
        .unwrap();
}
