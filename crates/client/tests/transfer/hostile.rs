//! A Space that lies: every lie is refused with an error, and nothing is written for it.

use std::sync::Arc;
use std::time::Duration;

use airlock::GuestPath;
use airlock::transfer::{
    DownloadError, DownloadOptions, Misconduct, Target, UploadError, UploadOptions,
};
use airlock_digest::Digest;
use airlock_lane::Part;
use airlock_model::size::{LEAF_BYTES, MIB, NETWORK_CHUNK_BYTES, SLOT_BYTES};
use airlock_wire::lane_v1::get_response::Message as Get;
use airlock_wire::lane_v1::put_ack::Result as AckResult;
use airlock_wire::lane_v1::put_response::Message as Put;
use airlock_wire::lane_v1::{BadLeaves, Data, Empty, GetEnd, GetEntry, PutAck, PutDone, Window};
use bytes::Bytes;
use rstest::rstest;
use tokio_util::sync::CancellationToken;

use crate::harness::{assert_only, content};
use crate::liar::{Script, client};

const LEAF: u64 = LEAF_BYTES as u64;
/// Digests of a part of one MiB.
const PER_MIB: usize = MIB as usize / LEAF_BYTES;
const STALL: Duration = Duration::from_millis(300);

fn entry(size: u64) -> Get {
    Get::Entry(GetEntry {
        size,
        mode: 0o4777,
        mtime_ns: i64::MIN,
        uid: 0,
        gid: 0,
        path: Bytes::from_static(b"/../../../etc/passwd"),
    })
}

fn window(slot: u32, offset: u64, length: u32, leaves: usize) -> Get {
    Get::Window(Window {
        slot,
        offset,
        length,
        leaf_sha256: vec![0; leaves * Digest::BYTES].into(),
    })
}

/// A window whose digests fit to the zeros that an untouched slot holds.
fn true_window(slot: u32, offset: u64, bytes: usize) -> Get {
    Get::Window(Window {
        slot,
        offset,
        length: u32::try_from(bytes).unwrap(),
        leaf_sha256: Part::of(0, &vec![0; bytes]).leaf_bytes().into(),
    })
}

fn data(offset: u64, bytes: usize) -> Get {
    let data = vec![7; bytes];
    Get::Data(Data {
        offset,
        leaf_sha256: Part::of(0, &data).leaf_bytes().into(),
        data: data.into(),
        lane_error: String::new(),
    })
}

fn end(size: u64) -> Get {
    Get::End(GetEnd {
        size,
        root_sha256: vec![0; 32].into(),
    })
}

const SIZE: u64 = 10 * MIB;

/// Downloads and requires that nothing of it is on the host.
async fn refused(script: Script) -> DownloadError {
    let host = tempfile::tempdir().unwrap();
    std::fs::write(host.path().join("file"), "old").unwrap();
    let options = DownloadOptions {
        stall_timeout: STALL,
        ..DownloadOptions::default()
    };
    let target = Target::from(host.path());
    let error = client(script)
        .await
        .download_with(
            &"/x/file".into(),
            target,
            options,
            &CancellationToken::new(),
        )
        .await
        .unwrap_err();
    assert_only(host.path(), &["file"]);
    assert_eq!(std::fs::read(host.path().join("file")).unwrap(), b"old");
    error
}

#[rstest]
#[case::no_entry(vec![window(4, 0, 1, 1)])]
#[case::two_entries(vec![entry(SIZE), entry(SIZE)])]
#[case::a_size_that_cannot_be(vec![entry(u64::MAX)])]
#[case::a_slot_that_was_not_given(vec![entry(SIZE), window(3, 0, 1 << 20, PER_MIB)])]
#[case::a_slot_that_is_not_there(vec![entry(SIZE), window(u32::MAX, 0, 1 << 20, PER_MIB)])]
#[case::a_slot_twice(vec![entry(SIZE), window(4, MIB, 1 << 20, PER_MIB), window(4, 2 * MIB, 1 << 20, PER_MIB)])]
#[case::longer_than_a_slot(vec![entry(SIZE), window(4, 0, SLOT_BYTES as u32 + 1, 4 * PER_MIB + 1)])]
#[case::the_longest_length(vec![entry(SIZE), window(4, 0, u32::MAX, 1 << 16)])]
#[case::no_length(vec![entry(SIZE), window(4, 0, 0, 0)])]
#[case::inside_a_leaf(vec![entry(SIZE), window(4, 1, 1 << 20, PER_MIB)])]
#[case::past_the_end(vec![entry(SIZE), window(4, SIZE, 1 << 20, PER_MIB)])]
#[case::over_the_end(vec![entry(SIZE), window(4, SIZE - LEAF, 1 << 20, PER_MIB)])]
#[case::past_all_offsets(vec![entry(SIZE), window(4, u64::MAX - LEAF + 1, 1 << 20, PER_MIB)])]
#[case::the_same_part_twice(vec![entry(SIZE), window(4, MIB, 1 << 20, PER_MIB), window(5, MIB, 1 << 20, PER_MIB)])]
#[case::overlapping_parts(vec![
    entry(SIZE), true_window(7, LEAF, 1 << 20), true_window(5, 0, 1 << 20),
])]
#[case::a_part_that_was_taken(vec![entry(SIZE), true_window(7, 0, 1 << 20), true_window(5, 0, 1 << 20)])]
#[case::a_short_part_in_the_middle(vec![entry(SIZE), true_window(7, 0, 5)])]
#[case::too_few_digests(vec![entry(SIZE), window(4, 0, 1 << 20, PER_MIB - 1)])]
#[case::too_many_digests(vec![entry(SIZE), window(4, 0, 1 << 20, PER_MIB + 1)])]
#[case::long_data(vec![entry(SIZE), data(0, NETWORK_CHUNK_BYTES + LEAF_BYTES)])]
#[case::data_past_the_end(vec![entry(5), data(0, 6)])]
#[case::a_root_of_nothing(vec![entry(5), data(0, 5), end(5)])]
#[case::another_size_at_the_end(vec![entry(5), data(0, 5), end(6)])]
#[case::two_ends(vec![entry(SIZE), end(SIZE), end(SIZE)])]
#[tokio::test]
async fn a_lie_in_a_download(#[case] get: Vec<Get>) {
    let error = refused(Script {
        get,
        ..Script::default()
    })
    .await;
    assert!(matches!(error, DownloadError::Misconduct(_)), "{error:?}");
}

#[tokio::test]
async fn more_parts_than_there_can_be() {
    // None of them is the one whose turn it is, so they would pile up.
    let parts = (1..100).map(|index| data(index * LEAF, LEAF_BYTES));
    let get = std::iter::once(entry(1 << 40)).chain(parts).collect();
    let error = refused(Script {
        get,
        ..Script::default()
    })
    .await;
    assert!(
        matches!(error, DownloadError::Misconduct(Misconduct::TooMany)),
        "{error:?}"
    );
}

#[tokio::test]
async fn data_without_end_for_memory_with_a_limit() {
    let script = Script {
        get: vec![entry(1 << 50)],
        get_for_ever: Some(data(0, LEAF_BYTES)),
        ..Script::default()
    };
    let client = client(script).await;
    let target = Target::Bytes { most: 1 << 20 };
    let error = client.download(&"x".into(), target).await.unwrap_err();
    assert!(matches!(error, DownloadError::TooLarge { .. }), "{error:?}");
}

#[tokio::test]
async fn the_same_data_without_end() {
    let script = Script {
        get: vec![entry(1 << 50)],
        get_for_ever: Some(data(0, LEAF_BYTES)),
        ..Script::default()
    };
    let error = refused(script).await;
    assert!(matches!(error, DownloadError::Misconduct(_)), "{error:?}");
}

#[rstest]
#[case::from_the_start(vec![])]
#[case::after_the_entry(vec![entry(SIZE)])]
#[case::after_a_window(vec![entry(SIZE), true_window(7, 0, 1 << 20)])]
#[case::before_the_end(vec![entry(5), data(0, 5)])]
#[case::a_window_that_never_verifies(vec![entry(SIZE), window(4, 0, 1 << 20, PER_MIB)])]
#[tokio::test]
async fn a_download_that_falls_silent(#[case] get: Vec<Get>) {
    let ends = false;
    let error = refused(Script {
        get,
        ends,
        ..Script::default()
    })
    .await;
    assert!(matches!(error, DownloadError::Stalled { .. }), "{error:?}");
}

#[tokio::test]
async fn a_download_that_just_ends() {
    let (get, ends) = (vec![entry(SIZE), true_window(7, 0, 1 << 20)], true);
    let error = refused(Script {
        get,
        ends,
        ..Script::default()
    })
    .await;
    assert!(
        matches!(error, DownloadError::Misconduct(Misconduct::EndOfStream)),
        "{error:?}"
    );
}

#[tokio::test]
async fn names_and_modes_of_the_space_are_not_believed() {
    let host = tempfile::tempdir().unwrap();
    let body = vec![7; 5];
    let root = airlock_digest::root(Part::of(0, &body).leaves());
    let get = vec![
        entry(5),
        data(0, 5),
        Get::End(GetEnd {
            size: 5,
            root_sha256: root.as_bytes().to_vec().into(),
        }),
    ];
    let client = client(Script {
        get,
        ..Script::default()
    })
    .await;
    client
        .download(&"/x/name".into(), host.path())
        .await
        .unwrap();
    assert_only(host.path(), &["name"]);
    let meta = std::fs::metadata(host.path().join("name")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&meta.permissions());
    assert_eq!(mode & 0o7000, 0, "no setuid program appears on the host");
    assert_eq!(std::fs::read(host.path().join("name")).unwrap(), body);
}

async fn upload_refused(script: Script, bytes: usize) -> UploadError {
    let options = UploadOptions {
        stall_timeout: STALL,
        ..UploadOptions::default()
    };
    client(script)
        .await
        .upload_with(
            content(bytes),
            &GuestPath::from("x"),
            options,
            &CancellationToken::new(),
        )
        .await
        .unwrap_err()
}

fn ack(offset: u64) -> Put {
    let result = Some(AckResult::Ok(Empty {}));
    Put::Ack(PutAck {
        offset,
        length: 1,
        result,
    })
}

fn done(size: u64) -> Put {
    Put::Done(PutDone {
        path: Bytes::new(),
        size,
        root_sha256: vec![0; 32].into(),
        replaced: false,
    })
}

#[rstest]
#[case::an_ack_for_nothing(vec![ack(u64::MAX)], None)]
#[case::done_before_anything_arrived(vec![done(SIZE)], None)]
#[case::no_result(vec![Put::Ack(PutAck { offset: 0, length: 1, result: None })], None)]
#[tokio::test]
async fn a_lie_about_an_upload(#[case] put: Vec<Put>, #[case] ack: Option<AckResult>) {
    let error = upload_refused(
        Script {
            put,
            ack,
            ..Script::default()
        },
        SIZE as usize,
    )
    .await;
    assert!(matches!(error, UploadError::Misconduct(_)), "{error:?}");
}

#[tokio::test]
async fn another_root_than_that_of_the_upload() {
    let script = Script {
        put: vec![done(100)],
        ends: true,
        ..Script::default()
    };
    let error = upload_refused(script, 100).await;
    assert!(
        matches!(error, UploadError::Misconduct(Misconduct::Root { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn parts_that_are_bad_for_ever() {
    let ack = Some(AckResult::Bad(BadLeaves {
        index: vec![u32::MAX],
    }));
    let error = upload_refused(
        Script {
            ack,
            ..Script::default()
        },
        SIZE as usize,
    )
    .await;
    assert!(matches!(error, UploadError::Corrupted { .. }), "{error:?}");
}

#[tokio::test]
async fn acks_without_done() {
    let ack = Some(AckResult::Ok(Empty {}));
    for bytes in [100, SIZE as usize] {
        let script = Script {
            ack: ack.clone(),
            ..Script::default()
        };
        let error = upload_refused(script, bytes).await;
        assert!(matches!(error, UploadError::Stalled { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn an_upload_that_just_ends() {
    for bytes in [100, SIZE as usize] {
        let error = upload_refused(
            Script {
                ends: true,
                ..Script::default()
            },
            bytes,
        )
        .await;
        assert!(
            matches!(error, UploadError::Misconduct(Misconduct::EndOfStream)),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn lane_errors_for_ever() {
    let ack = Some(AckResult::LaneError("no".into()));
    let script = Script {
        ack,
        ..Script::default()
    };
    let error = upload_refused(script, SIZE as usize).await;
    assert!(matches!(error, UploadError::Misconduct(_)), "{error:?}");
}

#[tokio::test]
async fn words_of_the_space_do_not_act_on_a_terminal() {
    let script = Script {
        fault: Some("\x1b[2J\u{9b}31m".repeat(100)),
        ..Script::default()
    };
    let text = upload_refused(script.clone(), 5).await.to_string();
    assert!(text.contains("[2J"), "{text:?}");
    assert!(text.chars().all(|c| !c.is_control()), "{text:?}");
    let text = refused(script).await.to_string();
    assert!(text.chars().all(|c| !c.is_control()), "{text:?}");
}

/// Guards against a test that passes because nothing is ever accepted.
#[tokio::test]
async fn an_honest_script_is_accepted() {
    let body = vec![0; 3 << 20];
    let root = airlock_digest::root(Part::of(0, &body).leaves());
    let get = vec![
        entry(3 * MIB),
        true_window(6, MIB, 1 << 20),
        true_window(7, 0, 1 << 20),
        true_window(5, 2 * MIB, 1 << 20),
        Get::End(GetEnd {
            size: 3 * MIB,
            root_sha256: root.as_bytes().to_vec().into(),
        }),
    ];
    let client = Arc::new(
        client(Script {
            get,
            ..Script::default()
        })
        .await,
    );
    let down = client.download_bytes(&"x".into()).await.unwrap();
    assert!(down.bytes == body);
}
