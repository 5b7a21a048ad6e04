use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use airlock_wire::cua::v1::{
    AbortUploadRequest, BeginUploadRequest, CommitUploadRequest, CreateSignedUrlRequest,
    CreateWatcherRequest, FileType, ListDirRequest, MakeDirRequest, MoveRequest, ReadFileRequest,
    RemoveRequest, StatRequest, UploadChunkRequest, WriteFileHeader, WriteMode,
};
use airlock_wire::{Fault, FaultKind};

use crate::space::{Space, header, names, noise};

const MIB: usize = 1 << 20;

#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape that map_err wants"
)]
fn fault(status: tonic::Status) -> Fault {
    Fault::from_status(&status)
}

fn read(path: &str) -> ReadFileRequest {
    ReadFileRequest {
        path: path.to_owned(),
        compute_sha256: true,
        ..ReadFileRequest::default()
    }
}

fn sha256(data: &[u8]) -> String {
    let mut hasher = airlock_digest::FileHasher::new();
    hasher.update(data);
    hasher.finish().to_string()
}

#[tokio::test]
async fn every_size_and_name_goes_in_and_out_unchanged() {
    let space = Space::open().await;
    let sizes = [0, 1, MIB - 1, MIB, MIB + 1, 4 * MIB, 9 * MIB + 7];
    let names = ["a b", "q\"'", "$(id)", "new\nline", "-rf", "ä", "..."];
    for (size, name) in sizes.into_iter().zip(names) {
        let data = noise(size);
        let path = space.path(name);
        let pieces = data.chunks(4 * MIB).map(<[u8]>::to_vec).collect();
        let header = WriteFileHeader {
            expected_size: size as u64,
            expected_sha256: sha256(&data),
            ..header(&path)
        };
        let (entry, digest) = space.write(header, pieces).await.unwrap();
        assert_eq!(
            (entry.size, entry.mode, &*entry.name),
            (size as u64, 0o644, name)
        );
        assert_eq!(digest, sha256(&data));
        let back = space.read(read(&path)).await.unwrap();
        assert!(back.data == data && back.sha256 == digest);
        assert_eq!(back.entry.unwrap().path, path);
    }
}

#[tokio::test]
async fn ranges_are_exact() {
    let space = Space::open().await;
    let data = noise(100_000);
    let path = space.path("f");
    std::fs::write(&path, &data).unwrap();
    let cases = [
        (0, 10),
        (10, 0),
        (99_999, 5),
        (100_000, 0),
        (200_000, 7),
        (50_000, 50_000),
    ];
    for (offset, length) in cases {
        let request = ReadFileRequest {
            offset,
            length,
            chunk_size: 1000,
            ..read(&path)
        };
        let back = space.read(request).await.unwrap();
        let start = data.len().min(offset as usize);
        let end = match length {
            0 => data.len(),
            length => data.len().min(start + length as usize),
        };
        assert!(back.data == data[start..end], "{offset} {length}");
        assert!(back.chunks.iter().all(|chunk| *chunk <= 1000));
        assert_eq!(back.first_offset.unwrap_or(offset), offset);
        assert_eq!(back.sha256, sha256(&data[start..end]));
    }
}

#[tokio::test]
async fn files_of_the_kernel_are_read_to_their_end() {
    let space = Space::open().await;
    let back = space.read(read("/proc/self/status")).await.unwrap();
    assert!(back.data.starts_with(b"Name:"));
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_read_is_an_error() {
    let space = Space::open().await;
    let path = space.path("f");
    std::fs::write(&path, noise(64 * MIB)).unwrap();
    let mut stream = space
        .files
        .clone()
        .read_file(read(&path))
        .await
        .unwrap()
        .into_inner();
    stream.message().await.unwrap();
    // Far behind what can have been read ahead.
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(50 * MIB as u64).unwrap();
    let status = loop {
        match stream.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream ended well"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), tonic::Code::Aborted);
    assert!(status.message().contains(&path), "{status}");
}

#[tokio::test]
async fn what_cannot_be_read_says_why() {
    let space = Space::open().await;
    let fifo = space.path("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let cases = [
        ("/no/such", FaultKind::PathNotFound),
        ("/tmp", FaultKind::IsADirectory),
        ("/etc/passwd/x", FaultKind::NotADirectory),
        (&fifo, FaultKind::InvalidArgument),
        ("/dev/null", FaultKind::InvalidArgument),
        ("", FaultKind::InvalidArgument),
        ("/a\0b", FaultKind::InvalidArgument),
    ];
    for (path, kind) in cases {
        assert_eq!(
            space.read(read(path)).await.unwrap_err().kind,
            kind,
            "{path:?}"
        );
    }
    let bulk = ReadFileRequest {
        bulk_slot: 1,
        ..read("/etc/passwd")
    };
    let status = space.files.clone().read_file(bulk).await.unwrap_err();
    assert!(status.message().contains("no bulk lane") && status.details().is_empty());
    let run_as = ReadFileRequest {
        run_as: "x".to_owned(),
        ..read("/etc/passwd")
    };
    let refused = space.read(run_as).await.unwrap_err();
    assert_eq!(refused.kind, FaultKind::FeatureUnsupported);
    assert_eq!(refused.metadata["feature"], "fs.run_as");
}

#[tokio::test]
async fn a_failed_write_leaves_the_old_file_and_nothing_else() {
    let space = Space::open().await;
    let path = space.path("f");
    std::fs::write(&path, "old").unwrap();
    let wrong_digest = WriteFileHeader {
        expected_sha256: "0".repeat(64),
        ..header(&path)
    };
    let failed = space
        .write(wrong_digest, vec![b"new".to_vec()])
        .await
        .unwrap_err();
    assert_eq!(failed.kind, FaultKind::ChecksumMismatch);
    assert_eq!(failed.metadata["actual_sha256"], sha256(b"new"));
    let wrong_size = WriteFileHeader {
        expected_size: 4,
        ..header(&path)
    };
    assert!(
        space
            .write(wrong_size, vec![b"new".to_vec()])
            .await
            .is_err()
    );
    let too_large = space
        .write(header(&path), vec![vec![0; 4 * MIB + 1]])
        .await
        .unwrap_err();
    assert_eq!(too_large.kind, FaultKind::LimitExceeded);
    let new = WriteFileHeader {
        mode: WriteMode::CreateNew.into(),
        ..header(&path)
    };
    let exists = space.write(new, vec![b"new".to_vec()]).await.unwrap_err();
    assert_eq!(exists.kind, FaultKind::PathExists);
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    assert_eq!(names(space.dir.path()), ["f"]);
}

#[tokio::test]
async fn a_caller_that_gives_up_publishes_nothing() {
    let space = Space::open().await;
    let path = space.path("f");
    std::fs::write(&path, "old").unwrap();
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    let message = airlock_wire::cua::v1::write_file_request::Message::Header(header(&path));
    let request = airlock_wire::cua::v1::WriteFileRequest {
        message: Some(message),
    };
    sender.send(request).await.unwrap();
    let mut files = space.files.clone();
    let call = tokio::spawn(async move {
        files
            .write_file(tokio_stream::wrappers::ReceiverStream::new(receiver))
            .await
    });
    let data = airlock_wire::cua::v1::write_file_request::Message::Data(vec![1; MIB].into());
    for _ in 0..8 {
        let message = Some(data.clone());
        sender
            .send(airlock_wire::cua::v1::WriteFileRequest { message })
            .await
            .unwrap();
    }
    call.abort();
    assert!(call.await.is_err());
    // Calls on the same connection are answered after the reset was handled.
    for _ in 0..20 {
        space.read(read(&path)).await.unwrap();
    }
    assert!(std::fs::read(&path).unwrap() == b"old");
    assert_eq!(names(space.dir.path()), ["f"]);
}

#[tokio::test]
async fn modes_follow_the_contract() {
    let space = Space::open().await;
    let path = space.path("a/b/f");
    let no_parent = space.write(header(&path), vec![]).await.unwrap_err();
    assert_eq!(no_parent.kind, FaultKind::PathNotFound);
    let make = WriteFileHeader {
        create_parents: true,
        permissions: 0o4751,
        ..header(&path)
    };
    assert_eq!(space.write(make, vec![]).await.unwrap().0.mode, 0o751);
    let (kept, _) = space
        .write(header(&path), vec![b"x".to_vec()])
        .await
        .unwrap();
    assert_eq!((kept.mode, kept.size), (0o751, 1));
    assert_eq!(
        std::fs::metadata(space.path("a")).unwrap().mode() & 0o7777,
        0o755
    );
}

#[tokio::test]
async fn appending_is_in_place_and_taken_back_when_wrong() {
    let space = Space::open().await;
    let path = space.path("log");
    let append = WriteFileHeader {
        mode: WriteMode::Append.into(),
        ..header(&path)
    };
    space
        .write(append.clone(), vec![b"one\n".to_vec()])
        .await
        .unwrap();
    let inode = std::fs::metadata(&path).unwrap().ino();
    let (entry, digest) = space
        .write(append.clone(), vec![b"two\n".to_vec()])
        .await
        .unwrap();
    assert_eq!((entry.size, digest), (8, sha256(b"two\n")));
    let wrong = WriteFileHeader {
        expected_sha256: "0".repeat(64),
        ..append
    };
    assert!(space.write(wrong, vec![b"three\n".to_vec()]).await.is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
    assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode);
}

#[tokio::test]
async fn of_two_writers_one_whole_file_remains_and_of_two_creators_one_wins() {
    let space = std::sync::Arc::new(Space::open().await);
    let mut tasks = tokio::task::JoinSet::new();
    for byte in 0..8_u8 {
        let space = std::sync::Arc::clone(&space);
        tasks.spawn(async move {
            let pieces = vec![vec![byte; MIB]; 3];
            space
                .write(header(&space.path("f")), pieces.clone())
                .await
                .unwrap();
            let new = WriteFileHeader {
                mode: WriteMode::CreateNew.into(),
                ..header(&space.path("new"))
            };
            space.write(new, pieces).await.is_ok()
        });
    }
    let mut winners = 0;
    while let Some(won) = tasks.join_next().await {
        winners += usize::from(won.unwrap());
    }
    assert_eq!(winners, 1);
    for name in ["f", "new"] {
        let content = std::fs::read(space.path(name)).unwrap();
        assert!(content == vec![content[0]; 3 * MIB]);
    }
    assert_eq!(names(space.dir.path()), ["f", "new"]);
}

#[tokio::test]
async fn a_running_program_can_be_replaced() {
    let space = Space::open().await;
    let path = space.path("prog");
    std::fs::copy("/bin/sleep", &path).unwrap();
    let mut child = std::process::Command::new(&path)
        .arg("1000")
        .spawn()
        .unwrap();
    let inode = std::fs::metadata(&path).unwrap().ino();
    let (entry, _) = space
        .write(header(&path), vec![b"#!/bin/sh\necho new\n".to_vec()])
        .await
        .unwrap();
    assert_eq!(entry.mode, 0o755);
    assert_ne!(std::fs::metadata(&path).unwrap().ino(), inode);
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
    let result = space.sh(&format!("'{path}'")).await;
    assert_eq!(result.text(), "new\n");
}

#[tokio::test]
async fn a_full_disk_is_named_and_frees_the_partial_file() {
    let space = Space::open().await;
    let disk = space.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    if rustix::mount::mount("tmpfs", &disk, "tmpfs", flags, c"size=2m").is_err() {
        println!("skipped: mounting a small disk needs root");
        return;
    }
    let path = format!("{disk}/f");
    std::fs::write(&path, "old").unwrap();
    let full = space
        .write(header(&path), vec![noise(MIB); 4])
        .await
        .unwrap_err();
    let after = (std::fs::read(&path).unwrap(), names(Path::new(&disk)));
    let free = rustix::fs::statvfs(&disk).unwrap().f_bfree * 4096;
    let mount_point = space.write(header(&disk), vec![]).await.unwrap_err();
    rustix::mount::unmount(&disk, rustix::mount::UnmountFlags::empty()).unwrap();
    assert_eq!(full.kind, FaultKind::DiskFull);
    assert_eq!(after, (b"old".to_vec(), vec!["f".to_owned()]));
    assert!(free > MIB as u64, "{free}");
    assert_eq!(mount_point.kind, FaultKind::IsADirectory);
}

#[tokio::test]
async fn a_file_that_is_a_mount_point_is_refused() {
    let space = Space::open().await;
    let (path, other) = (space.path("f"), space.path("other"));
    std::fs::write(&path, "old").unwrap();
    std::fs::write(&other, "other").unwrap();
    if rustix::mount::mount_bind(&other, &path).is_err() {
        println!("skipped: mounting needs root");
        return;
    }
    let refused = space.write(header(&path), vec![]).await.unwrap_err();
    rustix::mount::unmount(&path, rustix::mount::UnmountFlags::empty()).unwrap();
    assert!(refused.message.contains("mount point"), "{refused}");
}

#[tokio::test]
async fn links_are_seen_followed_and_written_through() {
    let space = Space::open().await;
    std::fs::create_dir(space.path("real")).unwrap();
    symlink(space.path("real"), space.path("link")).unwrap();
    space
        .write(header(&space.path("link/f")), vec![b"x".to_vec()])
        .await
        .unwrap();
    assert_eq!(std::fs::read(space.path("real/f")).unwrap(), b"x");
    let stat = async |no_follow_symlinks| {
        let request = StatRequest {
            path: space.path("link"),
            no_follow_symlinks,
            ..StatRequest::default()
        };
        space
            .files
            .clone()
            .stat(request)
            .await
            .unwrap()
            .into_inner()
            .entry
            .unwrap()
    };
    assert_eq!(stat(false).await.r#type(), FileType::Directory);
    let link = stat(true).await;
    assert_eq!(link.r#type(), FileType::Symlink);
    assert_eq!(link.symlink_target, space.path("real"));
}

#[tokio::test]
async fn folders_are_listed_in_pages() {
    let space = Space::open().await;
    let root = space.path("d");
    std::fs::create_dir_all(format!("{root}/sub/deep")).unwrap();
    for n in 0..250 {
        std::fs::write(format!("{root}/f{n:03}"), "").unwrap();
    }
    std::fs::write(format!("{root}/.hidden"), "").unwrap();
    std::fs::write(format!("{root}/sub/deep/leaf"), "").unwrap();
    let list = async |depth, include_hidden, page_size| {
        let mut names = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListDirRequest {
                path: root.clone(),
                depth,
                include_hidden,
                page_size,
                page_token,
                ..ListDirRequest::default()
            };
            let page = space
                .files
                .clone()
                .list_dir(request)
                .await
                .unwrap()
                .into_inner();
            assert!(page_size == 0 || page.entries.len() <= page_size as usize);
            names.extend(
                page.entries
                    .into_iter()
                    .map(|entry| entry.path[root.len()..].to_owned()),
            );
            if page.next_page_token.is_empty() {
                return names;
            }
            page_token = page.next_page_token;
        }
    };
    assert_eq!(list(0, false, 0).await.len(), 251);
    assert_eq!(list(1, true, 100).await.len(), 252);
    let all = list(3, true, 7).await;
    assert_eq!(all.len(), 254);
    assert!(all.is_sorted() && all.contains(&"/sub/deep/leaf".to_owned()));
    let request = ListDirRequest {
        path: space.path("d/f000"),
        ..ListDirRequest::default()
    };
    let status = space.files.clone().list_dir(request).await.unwrap_err();
    assert_eq!(fault(status).kind, FaultKind::NotADirectory);
}

#[tokio::test]
async fn folders_are_made_moved_and_removed() {
    let space = Space::open().await;
    let mut files = space.files.clone();
    let make = |path: &str, parents| MakeDirRequest {
        path: path.to_owned(),
        parents,
        ..MakeDirRequest::default()
    };
    let path = space.path("a/b");
    let missing = files.make_dir(make(&path, false)).await.unwrap_err();
    assert_eq!(fault(missing).kind, FaultKind::PathNotFound);
    assert!(
        files
            .make_dir(make(&path, true))
            .await
            .unwrap()
            .into_inner()
            .created
    );
    assert!(
        !files
            .make_dir(make(&path, true))
            .await
            .unwrap()
            .into_inner()
            .created
    );
    let exists = files.make_dir(make(&path, false)).await.unwrap_err();
    assert_eq!(fault(exists).kind, FaultKind::PathExists);

    std::fs::write(space.path("f"), "1").unwrap();
    std::fs::write(space.path("g"), "2").unwrap();
    let move_to = |destination: &str, overwrite, create_parents| MoveRequest {
        source: space.path("f"),
        destination: space.path(destination),
        overwrite,
        create_parents,
        ..MoveRequest::default()
    };
    let exists = files.r#move(move_to("g", false, false)).await.unwrap_err();
    assert_eq!(fault(exists).kind, FaultKind::PathExists);
    files.r#move(move_to("g", true, false)).await.unwrap();
    assert_eq!(std::fs::read(space.path("g")).unwrap(), b"1");
    let missing = files.r#move(move_to("h", true, false)).await.unwrap_err();
    assert_eq!(fault(missing).kind, FaultKind::PathNotFound);

    let remove = |name: &str, recursive, missing_ok| RemoveRequest {
        path: space.path(name),
        recursive,
        missing_ok,
        ..RemoveRequest::default()
    };
    let full = files.remove(remove("a", false, false)).await.unwrap_err();
    assert_eq!(fault(full).kind, FaultKind::PathExists);
    symlink("/etc", space.path("a/etc")).unwrap();
    files.remove(remove("a", true, false)).await.unwrap();
    assert!(Path::new("/etc/passwd").exists());
    let missing = files.remove(remove("a", true, false)).await.unwrap_err();
    assert_eq!(fault(missing).kind, FaultKind::PathNotFound);
    files.remove(remove("a", true, true)).await.unwrap();
    files.remove(remove("g", false, false)).await.unwrap();
    assert_eq!(names(space.dir.path()), Vec::<String>::new());
}

#[tokio::test]
async fn an_upload_in_pieces_is_resumed_and_verified() {
    let space = Space::open().await;
    let mut files = space.files.clone();
    let path = space.path("f");
    let data = noise(3 * MIB);
    let begin = BeginUploadRequest {
        header: Some(header(&path)),
        upload_id: "cua-1".to_owned(),
        ..BeginUploadRequest::default()
    };
    let begun = files
        .begin_upload(begin.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!((&*begun.upload_id, begun.received_bytes), ("cua-1", 0));
    assert_eq!(begun.max_chunk_bytes as usize, 4 * MIB);
    let chunk = |offset: usize, end: usize| UploadChunkRequest {
        upload_id: "cua-1".to_owned(),
        offset: offset as u64,
        data: data[offset..end].to_vec().into(),
        ..UploadChunkRequest::default()
    };
    for duplicate in [false, true] {
        let answer = files
            .upload_chunk(chunk(0, MIB))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(
            (answer.received_bytes, answer.duplicate),
            (MIB as u64, duplicate)
        );
    }
    for offset in [MIB - 1, MIB + 1] {
        let gap = fault(
            files
                .upload_chunk(chunk(offset, 2 * MIB))
                .await
                .unwrap_err(),
        );
        assert_eq!(gap.kind, FaultKind::OffsetMismatch);
        assert_eq!(gap.metadata["expected_offset"], MIB.to_string());
    }
    let again = files
        .begin_upload(begin.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(again.received_bytes, MIB as u64);
    let mut other = begin.clone();
    other.header = Some(header(&space.path("g")));
    assert!(files.begin_upload(other).await.is_err());
    assert!(!Path::new(&path).exists());
    files.upload_chunk(chunk(MIB, 3 * MIB)).await.unwrap();
    let commit = CommitUploadRequest {
        upload_id: "cua-1".to_owned(),
        sha256: sha256(&data),
    };
    let done = files
        .commit_upload(commit.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (done.entry.unwrap().size, done.sha256),
        (data.len() as u64, sha256(&data))
    );
    assert!(std::fs::read(&path).unwrap() == data);
    let over = fault(files.commit_upload(commit).await.unwrap_err());
    assert_eq!(over.kind, FaultKind::SessionNotFound);
}

#[tokio::test]
async fn a_wrong_digest_ends_the_upload_and_an_abort_leaves_nothing() {
    let space = Space::open().await;
    let mut files = space.files.clone();
    let begin = BeginUploadRequest {
        header: Some(header(&space.path("f"))),
        ..BeginUploadRequest::default()
    };
    let id = files
        .begin_upload(begin.clone())
        .await
        .unwrap()
        .into_inner()
        .upload_id;
    let commit = CommitUploadRequest {
        upload_id: id.clone(),
        sha256: "0".repeat(64),
    };
    let wrong = fault(files.commit_upload(commit).await.unwrap_err());
    assert_eq!(wrong.kind, FaultKind::ChecksumMismatch);
    let abort = AbortUploadRequest { upload_id: id };
    let gone = fault(files.abort_upload(abort).await.unwrap_err());
    assert_eq!(gone.kind, FaultKind::SessionNotFound);
    let upload_id = files
        .begin_upload(begin)
        .await
        .unwrap()
        .into_inner()
        .upload_id;
    let bulk = UploadChunkRequest {
        upload_id: upload_id.clone(),
        bulk_slot: 1,
        bulk_len: 1,
        ..UploadChunkRequest::default()
    };
    let status = files.upload_chunk(bulk).await.unwrap_err();
    assert!(status.message().contains("no bulk lane"));
    files
        .abort_upload(AbortUploadRequest { upload_id })
        .await
        .unwrap();
    assert_eq!(names(space.dir.path()), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_not_there_yet_says_so() {
    let space = Space::open().await;
    let mut files = space.files.clone();
    let watch = files
        .create_watcher(CreateWatcherRequest::default())
        .await
        .unwrap_err();
    assert_eq!(fault(watch).metadata["feature"], "fs_watch");
    let url = files
        .create_signed_url(CreateSignedUrlRequest::default())
        .await
        .unwrap_err();
    assert_eq!(fault(url).kind, FaultKind::FeatureUnsupported);
}
