//! Every boundary of the protocol, both ways, on every route.

use airlock::transfer::{Source, Target};
use airlock_model::Route;
use airlock_model::size::{INLINE_MAX_BYTES, LEAF_BYTES, MIB, SLOT_BYTES};

use crate::harness::{Client, Guest, content, sha256};

/// Each size and why it is here.
const SIZES: &[(usize, &str)] = &[
    (0, "no leaf at all"),
    (1, "one byte"),
    (INLINE_MAX_BYTES - 1, "inline, not full"),
    (INLINE_MAX_BYTES, "the largest inline"),
    (INLINE_MAX_BYTES + 1, "the smallest window"),
    (LEAF_BYTES - 1, "a short leaf"),
    (LEAF_BYTES, "one leaf"),
    (LEAF_BYTES + 1, "a leaf and a byte"),
    (8 * LEAF_BYTES - 1, "a small window less a byte"),
    (8 * LEAF_BYTES, "one small window"),
    (8 * LEAF_BYTES + 1, "two small windows"),
    (SLOT_BYTES - 1, "four small windows less a byte"),
    (SLOT_BYTES, "four small windows"),
    (SLOT_BYTES + 1, "five small windows"),
    (8 * SLOT_BYTES + 1, "a slot is used twice"),
    (40 * MIB as usize + 3, "slots are used again and again"),
];

async fn both_ways(client: &Client, guest: &Guest, large_route: Route) {
    for (index, (size, why)) in SIZES.iter().enumerate() {
        let name = format!("file-{index}");
        let bytes = content(*size);
        let route = if *size <= INLINE_MAX_BYTES {
            Route::Inline
        } else {
            large_route
        };
        let dest = guest.guest_path(&name);
        let up = client.upload(bytes.clone(), &dest).await.unwrap();
        assert_eq!(up.bytes, *size as u64, "{why}");
        assert_eq!(up.route, route, "{why}: {:?}", up.route_reason);
        assert_eq!(up.leaf_retries, 0, "{why}");
        assert_eq!(up.sha256, Some(sha256(&bytes)), "{why}");
        assert!(!up.replaced);
        assert_eq!(up.path, dest.as_bytes());
        assert!(std::fs::read(guest.path(&name)).unwrap() == bytes, "{why}");

        let down = client.download_bytes(&dest).await.unwrap();
        assert!(down.bytes == bytes, "{why}");
        let receipt = down.receipt;
        assert_eq!(receipt.route, route, "{why}: {:?}", receipt.route_reason);
        assert_eq!(
            (receipt.root, receipt.sha256),
            (up.root, up.sha256),
            "{why}"
        );
        assert_eq!(receipt.leaf_retries, 0, "{why}");
        let wired = if route == Route::Lane {
            0
        } else {
            *size as u64
        };
        assert_eq!(
            (up.bytes_on_wire, receipt.bytes_on_wire),
            (wired, wired),
            "{why}"
        );
        std::fs::remove_file(guest.path(&name)).unwrap();
    }
    guest.assert_only(&[]);
}

#[tokio::test]
async fn through_the_lane() {
    let guest = Guest::start();
    both_ways(&guest.client().await, &guest, Route::Lane).await;
}

#[tokio::test]
async fn over_the_network() {
    let guest = Guest::start();
    both_ways(&guest.network_client().await, &guest, Route::Network).await;
}

#[tokio::test]
async fn with_one_slot() {
    let guest = Guest::start();
    let connection = guest.connect().await;
    let session = airlock::transfer::LaneSession::attach(&connection, guest.lease(1, [63]));
    let lane = Ok(session.await.unwrap());
    both_ways(&Client { connection, lane }, &guest, Route::Lane).await;
}

/// The same from and to files and streams, whose code differs from that for memory.
#[tokio::test]
async fn files_and_streams() {
    let guest = Guest::start();
    let host = tempfile::tempdir().unwrap();
    for client in [guest.client().await, guest.network_client().await] {
        for size in [
            0,
            1,
            INLINE_MAX_BYTES,
            INLINE_MAX_BYTES + 1,
            SLOT_BYTES,
            33 * SLOT_BYTES / 2 + 1,
        ] {
            let bytes = content(size);
            let file = host.path().join("from");
            std::fs::write(&file, &bytes).unwrap();
            let dest = guest.guest_path("file");
            client.upload(file.as_path(), &dest).await.unwrap();
            assert!(
                std::fs::read(guest.path("file")).unwrap() == bytes,
                "{size}"
            );

            let reader = Source::reader(std::io::Cursor::new(bytes.clone()));
            let receipt = client.upload(reader, &dest).await.unwrap();
            assert!(receipt.replaced);
            assert_eq!(receipt.sha256, Some(sha256(&bytes)));
            assert!(
                std::fs::read(guest.path("file")).unwrap() == bytes,
                "{size}"
            );

            let to = host.path().join("to");
            let down = client.download(&dest, to.as_path()).await.unwrap();
            assert!(std::fs::read(&to).unwrap() == bytes, "{size}");
            assert_eq!(down.receipt.sha256, Some(sha256(&bytes)));

            let (near, mut far) = tokio::io::duplex(4096);
            let reading = tokio::spawn(async move {
                let mut all = Vec::new();
                tokio::io::AsyncReadExt::read_to_end(&mut far, &mut all)
                    .await
                    .unwrap();
                all
            });
            client.download(&dest, Target::writer(near)).await.unwrap();
            assert!(reading.await.unwrap() == bytes, "{size}");
        }
    }
}
