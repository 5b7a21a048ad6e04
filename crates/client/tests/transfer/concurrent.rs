//! Many transfers at once, over one connection and over several.

use std::sync::Arc;

use airlock::transfer::{LaneSession, Source};
use airlock_model::Route;
use airlock_model::size::{GIB, MIB, SLOT_BYTES};

use crate::harness::{Client, Guest, content};

#[tokio::test]
async fn sixteen_at_once_share_eight_slots() {
    let guest = Arc::new(Guest::start());
    let client = Arc::new(guest.client().await);
    let mut running = tokio::task::JoinSet::new();
    for index in 0..16_u64 {
        let (guest, client) = (Arc::clone(&guest), Arc::clone(&client));
        running.spawn(async move {
            let size = usize::try_from(index + 1).unwrap() * MIB as usize + 17;
            let bytes = content(size);
            let dest = guest.guest_path(&format!("file-{index}"));
            let up = client.upload(bytes.clone(), &dest).await.unwrap();
            let down = client.download_bytes(&dest).await.unwrap();
            assert!(down.bytes == bytes);
            for receipt in [up, down.receipt] {
                assert_eq!((receipt.route, receipt.leaf_retries), (Route::Lane, 0));
            }
        });
    }
    while let Some(result) = running.join_next().await {
        result.unwrap();
    }
    // Every slot came back.
    client
        .upload(content(64 * MIB as usize), &guest.guest_path("last"))
        .await
        .unwrap();
}

#[tokio::test]
async fn several_processes_have_slots_of_their_own() {
    let guest = Arc::new(Guest::start());
    let mut running = tokio::task::JoinSet::new();
    for index in 0..8_u8 {
        let guest = Arc::clone(&guest);
        running.spawn(async move {
            let connection = guest.connect().await;
            let slots = u32::from(index) * 8..u32::from(index) * 8 + 8;
            let session = LaneSession::attach(&connection, guest.lease(index, slots)).await;
            let client = Client {
                connection,
                lane: Ok(session.unwrap()),
            };
            let bytes = content(3 * SLOT_BYTES + 1);
            let dest = guest.guest_path(&format!("file-{index}"));
            client.upload(bytes.clone(), &dest).await.unwrap();
            let down = client.download_bytes(&dest).await.unwrap();
            assert!(down.bytes == bytes);
            assert_eq!(down.receipt.route, Route::Lane);
        });
    }
    while let Some(result) = running.join_next().await {
        result.unwrap();
    }
}

#[tokio::test]
async fn two_writers_to_one_path_leave_one_of_the_two() {
    let guest = Guest::start();
    let client = guest.client().await;
    let dest = guest.guest_path("file");
    let (one, two) = (content(2 * SLOT_BYTES), content(3 * SLOT_BYTES));
    for _ in 0..4 {
        let (a, b) = tokio::join!(
            client.upload(one.clone(), &dest),
            client.upload(two.clone(), &dest)
        );
        a.unwrap();
        b.unwrap();
        let left = std::fs::read(guest.path("file")).unwrap();
        assert!(left == one || left == two);
        guest.assert_only(&["file"]);
    }
}

/// Peak memory of this process, in which both ends run, past what it was before.
#[tokio::test]
#[ignore = "moves gigabytes; run alone: the peak is that of the whole process"]
async fn memory_is_flat() {
    let guest = Guest::start();
    let host = tempfile::tempdir().unwrap();
    let from = host.path().join("from");
    // A hole past 4 GiB takes no room and crosses 2^31 and 2^32.
    let size = 4 * GIB + 5;
    std::fs::File::create(&from).unwrap().set_len(size).unwrap();
    for client in [guest.client().await, guest.network_client().await] {
        client
            .upload(vec![1; 64 << 20], &guest.guest_path("warm"))
            .await
            .unwrap();
        let before = peak_kib();
        let dest = guest.guest_path("file");
        let up = client.upload(from.as_path(), &dest).await.unwrap();
        assert_eq!(up.bytes, size);
        let down = client
            .download(&dest, host.path().join("to"))
            .await
            .unwrap();
        assert_eq!(down.receipt.root, up.root);
        let grown = peak_kib() - before;
        assert!(grown < 64 * 1024, "{grown} KiB more at the peak");
    }
}

/// The same with a stream, whose parts have to be kept until they arrived.
#[tokio::test]
#[ignore = "moves gigabytes; run alone: the peak is that of the whole process"]
async fn memory_is_flat_for_streams() {
    let guest = Guest::start();
    let client = guest.client().await;
    client
        .upload(vec![1; 64 << 20], &guest.guest_path("warm"))
        .await
        .unwrap();
    let before = peak_kib();
    let reader = tokio::io::AsyncReadExt::take(tokio::io::repeat(7), GIB);
    let up = client
        .upload(Source::reader(reader), &guest.guest_path("file"))
        .await
        .unwrap();
    assert_eq!(up.bytes, GIB);
    let grown = peak_kib() - before;
    assert!(grown < 64 * 1024, "{grown} KiB more at the peak");
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
