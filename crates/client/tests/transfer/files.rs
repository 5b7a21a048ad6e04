//! Sources and targets that are missing, denied, strange or changing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;

use airlock::GuestPath;
use airlock::transfer::{
    DownloadError, DownloadOptions, ErrorKind, Target, UploadError, UploadOptions,
};
use airlock_model::size::{MAX_SLOTS_PER_TRANSFER, MIB, SLOT_BYTES};
use airlock_wire::FaultKind;
use tokio_util::sync::CancellationToken;

use crate::harness::{Guest, assert_only, content};

fn remote_kind(error: &UploadError) -> FaultKind {
    match error {
        UploadError::Remote(fault) => fault.kind,
        other => panic!("{other:?}"),
    }
}

fn remote_kind_down(error: &DownloadError) -> FaultKind {
    match error {
        DownloadError::Remote(fault) => fault.kind,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn names_are_bytes_from_end_to_end() {
    let guest = Guest::start();
    let host = tempfile::tempdir().unwrap();
    let client = guest.client().await;
    let names: [&[u8]; 7] = [
        b"a b",
        b"q'\"`",
        b"$(id)",
        b"new\nline",
        b"\xff\xfe",
        b"-rf",
        "ü→".as_bytes(),
    ];
    for name in names {
        let from = host.path().join(OsStr::from_bytes(name));
        std::fs::write(&from, name).unwrap();
        // The folder is given, the name is the source's own.
        let dest = guest.guest_path("");
        let receipt = client.upload(from.as_path(), &dest).await.unwrap();
        let there = GuestPath::new(receipt.path);
        assert_eq!(there.file_name(), Some(name));
        assert_eq!(
            std::fs::read(guest.path("").join(OsStr::from_bytes(name))).unwrap(),
            name
        );
        std::fs::remove_file(&from).unwrap();
        client.download(&there, host.path()).await.unwrap();
        assert_eq!(std::fs::read(&from).unwrap(), name);
    }
}

#[tokio::test]
async fn what_is_missing_or_no_file_is_said() {
    let guest = Guest::start();
    let host = tempfile::tempdir().unwrap();
    let client = guest.client().await;
    let dest = guest.guest_path("file");

    let missing = client
        .upload(host.path().join("none"), &dest)
        .await
        .unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let folder = client.upload(host.path(), &dest).await.unwrap_err();
    assert!(matches!(folder, UploadError::SourceIsDirectory { .. }));
    let parent = guest.guest_path("none/file");
    let orphan = client.upload(vec![1], &parent).await.unwrap_err();
    assert_eq!(
        (remote_kind(&orphan), orphan.kind()),
        (FaultKind::PathNotFound, ErrorKind::NotFound)
    );
    let options = UploadOptions {
        create_parents: true,
        ..UploadOptions::default()
    };
    client
        .upload_with(vec![1], &parent, options, &CancellationToken::new())
        .await
        .unwrap();

    let is_folder = client
        .upload(vec![1], &guest.guest_path("none"))
        .await
        .unwrap_err();
    assert_eq!(remote_kind(&is_folder), FaultKind::IsADirectory);
    let options = UploadOptions {
        create_new: true,
        ..UploadOptions::default()
    };
    let never = CancellationToken::new();
    let exists = client.upload_with(vec![1; 1 << 20], &parent, options, &never);
    assert_eq!(
        remote_kind(&exists.await.unwrap_err()),
        FaultKind::PathExists
    );

    let gone = client
        .download_bytes(&guest.guest_path("gone"))
        .await
        .unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    let folder = client
        .download_bytes(&guest.guest_path("none"))
        .await
        .unwrap_err();
    assert_eq!(remote_kind_down(&folder), FaultKind::IsADirectory);
    rustix::fs::mkfifoat(rustix::fs::CWD, guest.path("fifo"), rustix::fs::Mode::RWXU).unwrap();
    let fifo = client
        .download_bytes(&guest.guest_path("fifo"))
        .await
        .unwrap_err();
    assert_eq!(remote_kind_down(&fifo), FaultKind::InvalidArgument);
    let device = client
        .download_bytes(&"/dev/zero".into())
        .await
        .unwrap_err();
    assert_eq!(remote_kind_down(&device), FaultKind::InvalidArgument);

    std::fs::write(guest.path("file"), "x").unwrap();
    let orphan = client
        .download(&dest, host.path().join("none/file"))
        .await
        .unwrap_err();
    assert_eq!(orphan.kind(), ErrorKind::NotFound);
    std::fs::create_dir(host.path().join("file")).unwrap();
    let folder = client.download(&dest, host.path()).await.unwrap_err();
    assert!(matches!(folder, DownloadError::TargetIsDirectory { .. }));
    assert_only(host.path(), &["file"]);
}

#[tokio::test]
async fn a_full_disk_is_named_by_its_side() {
    let guest = Guest::start();
    let client = guest.client().await;
    std::fs::write(guest.path("file"), content(2 * SLOT_BYTES)).unwrap();
    let source = guest.guest_path("file");
    let full = client.download(&source, "/dev/full").await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::HostDiskFull);
    // The client goes on.
    client.download_bytes(&source).await.unwrap();
}

#[tokio::test]
async fn attributes_are_kept_or_not() {
    let guest = Guest::start();
    let host = tempfile::tempdir().unwrap();
    let client = guest.client().await;
    let from = host.path().join("from");
    std::fs::write(&from, content(3 << 20)).unwrap();
    std::fs::set_permissions(&from, std::fs::Permissions::from_mode(0o741)).unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(1_000_000, 123);
    std::fs::File::options()
        .write(true)
        .open(&from)
        .unwrap()
        .set_modified(long_ago)
        .unwrap();

    let dest = guest.guest_path("file");
    client.upload(from.as_path(), &dest).await.unwrap();
    let meta = std::fs::metadata(guest.path("file")).unwrap();
    assert_eq!(meta.permissions().mode() & 0o7777, 0o741);
    assert_eq!(meta.modified().unwrap(), long_ago);

    let to = host.path().join("to");
    client.download(&dest, to.as_path()).await.unwrap();
    let meta = std::fs::metadata(&to).unwrap();
    assert_eq!(meta.permissions().mode() & 0o700, 0o700);
    assert_eq!(meta.modified().unwrap(), long_ago);

    let options = DownloadOptions {
        keep_attributes: false,
        ..DownloadOptions::default()
    };
    let plain = host.path().join("plain");
    client
        .download_with(&dest, plain.as_path(), options, &CancellationToken::new())
        .await
        .unwrap();
    assert_ne!(
        std::fs::metadata(&plain).unwrap().modified().unwrap(),
        long_ago
    );
}

#[tokio::test]
async fn a_link_on_the_host_is_followed_and_stays() {
    let guest = Guest::start();
    let host = tempfile::tempdir().unwrap();
    let client = guest.client().await;
    std::fs::write(guest.path("file"), "new").unwrap();
    std::fs::write(host.path().join("real"), "old").unwrap();
    symlink("real", host.path().join("link")).unwrap();
    let source = guest.guest_path("file");
    let down = client
        .download(&source, host.path().join("link"))
        .await
        .unwrap();
    assert!(down.receipt.replaced);
    assert!(host.path().join("link").is_symlink());
    assert_eq!(std::fs::read(host.path().join("real")).unwrap(), b"new");
}

#[tokio::test]
async fn files_of_proc_have_content_though_no_size() {
    let guest = Guest::start();
    let client = guest.client().await;
    let dest = guest.guest_path("version");
    client.upload("/proc/version", &dest).await.unwrap();
    let there = std::fs::read(guest.path("version")).unwrap();
    assert_eq!(there, std::fs::read("/proc/version").unwrap());
}

/// Twice what is in flight, so that much is left to read when the first part is verified.
const SIZE: u64 = 2 * (MAX_SLOTS_PER_TRANSFER * SLOT_BYTES) as u64;

/// Changes the file at `path` as soon as its first part is verified.
fn change_early(path: PathBuf, change: &'static str) -> airlock::transfer::OnProgress {
    let mut changed = false;
    Box::new(move |_| {
        if std::mem::replace(&mut changed, true) {
            return;
        }
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        match change {
            "grow" => file.write_all_at(b"x", SIZE).unwrap(),
            "shrink" => file.set_len(SIZE - MIB).unwrap(),
            "rewrite" => file.write_all_at(b"x", 0).unwrap(),
            other => unreachable!("{other}"),
        }
    })
}

#[tokio::test]
async fn a_source_that_changes_on_the_host_is_not_published() {
    let guest = Guest::start();
    let host = tempfile::tempdir().unwrap();
    let client = guest.client().await;
    let dest = guest.guest_path("file");
    std::fs::write(guest.path("file"), "old").unwrap();
    for change in ["grow", "shrink", "rewrite"] {
        let from = host.path().join("from");
        std::fs::write(&from, content(SIZE as usize)).unwrap();
        let on_progress = change_early(from.clone(), change);
        let result = airlock::transfer::upload(
            &client.connection,
            client.lane.as_ref(),
            from.into(),
            &dest,
            UploadOptions::default(),
            Some(on_progress),
            &CancellationToken::new(),
        )
        .await;
        let error = result.unwrap_err();
        assert!(
            matches!(error, UploadError::SourceChanged { .. }),
            "{change}: {error:?}"
        );
        assert_eq!(std::fs::read(guest.path("file")).unwrap(), b"old");
        guest.assert_only(&["file"]);
    }
}

#[tokio::test]
async fn a_source_that_changes_in_the_space_is_not_published() {
    let guest = Guest::start();
    let host = tempfile::tempdir().unwrap();
    let client = guest.client().await;
    let source = guest.guest_path("file");
    for change in ["grow", "shrink", "rewrite"] {
        let from = guest.path("file");
        std::fs::write(&from, content(SIZE as usize)).unwrap();
        let on_progress = change_early(from.clone(), change);
        let result = airlock::transfer::download(
            &client.connection,
            client.lane.as_ref(),
            &source,
            Target::from(host.path()),
            DownloadOptions::default(),
            Some(on_progress),
            &CancellationToken::new(),
        )
        .await;
        let error = result.unwrap_err();
        assert_eq!(
            remote_kind_down(&error),
            FaultKind::SourceChanged,
            "{change}"
        );
        assert!(error.to_string().contains("file changed"), "{error}");
        assert_only(host.path(), &[]);
    }
}
