use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};

use rustix::fs::{CWD, FileType};

use super::*;

fn put(dest: &Path, content: &[u8], options: PublishOptions) -> Result<Published, PublishError> {
    let pending = PendingFile::create(dest, options)?;
    pending.file().write_all(content).unwrap();
    pending.publish()
}

fn entries(dir: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    names
}

fn create_new() -> PublishOptions {
    PublishOptions {
        create_new: true,
        ..PublishOptions::default()
    }
}

#[test]
fn a_new_file_has_the_default_mode_whatever_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    let dest = dir.path().join("-rf $(id) \n'\"");
    let published = put(&dest, b"x", PublishOptions::default()).unwrap();
    assert_eq!(
        published,
        Published {
            path: dest.clone(),
            replaced: false
        }
    );
    let meta = std::fs::metadata(&dest).unwrap();
    assert_eq!(meta.mode() & 0o7777, 0o644);
    assert_eq!(entries(dir.path()), [dest.file_name().unwrap()]);
}

#[test]
fn a_replaced_file_keeps_its_mode_and_gets_a_new_inode() {
    let dir = tempfile::tempdir().unwrap();
    let dest = dir.path().join("f");
    std::fs::write(&dest, "old").unwrap();
    std::fs::set_permissions(&dest, PermissionsExt::from_mode(0o751)).unwrap();
    let before = std::fs::metadata(&dest).unwrap();
    let mut held = File::open(&dest).unwrap();
    let options = PublishOptions {
        mtime_ns: Some(981_173_106_789_000_001),
        fsync: true,
        ..PublishOptions::default()
    };
    assert!(put(&dest, b"new", options).unwrap().replaced);
    let after = std::fs::metadata(&dest).unwrap();
    assert_ne!(before.ino(), after.ino());
    assert_eq!(after.mode() & 0o7777, 0o751);
    assert_eq!(
        (after.mtime(), after.mtime_nsec()),
        (981_173_106, 789_000_001)
    );
    let mut text = String::new();
    held.read_to_string(&mut text).unwrap();
    assert_eq!(text, "old");
}

#[test]
fn until_published_the_old_file_stays_and_a_drop_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dest = dir.path().join("f");
    std::fs::write(&dest, "old").unwrap();
    for create in [PendingFile::create, PendingFile::create_named] {
        let pending = create(&dest, PublishOptions::default()).unwrap();
        pending.file().write_all(b"new").unwrap();
        assert_eq!(std::fs::read(&dest).unwrap(), b"old");
        drop(pending);
        assert_eq!(entries(dir.path()), ["f"]);
    }
}

#[test]
fn named_temporaries_work_just_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let dest = dir.path().join("f");
    let pending = PendingFile::create_named(&dest, create_new()).unwrap();
    let other = PendingFile::create_named(&dest, create_new()).unwrap();
    assert!(!pending.publish().unwrap().replaced);
    assert!(matches!(other.publish(), Err(PublishError::Exists { .. })));
    let again = PendingFile::create_named(&dest, PublishOptions::default()).unwrap();
    assert!(again.publish().unwrap().replaced);
    assert_eq!(entries(dir.path()), ["f"]);
}

#[test]
fn of_many_that_create_one_file_one_wins() {
    let dir = tempfile::tempdir().unwrap();
    let dest = dir.path().join("f");
    let wins: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|i| {
                let dest = &dest;
                scope.spawn(move || usize::from(put(dest, &[i; 9], create_new()).is_ok()))
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(wins, 1);
    assert_eq!(std::fs::read(&dest).unwrap().len(), 9);
    assert_eq!(entries(dir.path()), ["f"]);
}

#[test]
fn of_two_writers_to_one_path_one_whole_file_remains() {
    let dir = tempfile::tempdir().unwrap();
    let dest = dir.path().join("f");
    std::thread::scope(|scope| {
        for i in 0..4 {
            let dest = &dest;
            scope.spawn(move || {
                for _ in 0..50 {
                    put(dest, &vec![i; 10_000], PublishOptions::default()).unwrap();
                }
            });
        }
    });
    let content = std::fs::read(&dest).unwrap();
    assert_eq!(content, vec![content[0]; 10_000]);
    assert_eq!(entries(dir.path()), ["f"]);
}

#[test]
fn a_link_at_the_end_is_written_through() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("real")).unwrap();
    symlink("real", at("parent")).unwrap();
    symlink("parent/f", at("link")).unwrap();
    symlink(at("real/dangling"), at("broken")).unwrap();
    let published = put(&at("link"), b"1", PublishOptions::default()).unwrap();
    assert_eq!(published.path, at("parent/f"));
    put(&at("broken"), b"2", PublishOptions::default()).unwrap();
    assert_eq!(std::fs::read(at("real/f")).unwrap(), b"1");
    assert_eq!(std::fs::read(at("real/dangling")).unwrap(), b"2");
    assert!(at("link").symlink_metadata().unwrap().is_symlink());
    assert!(matches!(
        put(&at("link"), b"3", create_new()),
        Err(PublishError::Exists { .. })
    ));
    symlink("loop", at("loop")).unwrap();
    assert!(matches!(
        put(&at("loop"), b"3", PublishOptions::default()),
        Err(PublishError::LinkLoop { .. })
    ));
}

#[test]
fn what_a_rename_must_not_replace_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let faults = [
        (dir.path().to_owned(), FaultKind::IsADirectory),
        (dir.path().join(""), FaultKind::IsADirectory),
        (dir.path().join("."), FaultKind::IsADirectory),
        (dir.path().join("missing/"), FaultKind::NotADirectory),
        (dir.path().join("missing/f"), FaultKind::PathNotFound),
        (file.join("f"), FaultKind::NotADirectory),
        (fifo, FaultKind::InvalidArgument),
        (PathBuf::from("/dev/null"), FaultKind::InvalidArgument),
        (PathBuf::from("/"), FaultKind::IsADirectory),
        (dir.path().join("x".repeat(256)), FaultKind::InvalidArgument),
    ];
    for (dest, kind) in faults {
        let error = put(&dest, b"", PublishOptions::default()).unwrap_err();
        assert_eq!(Fault::from(error).kind, kind, "{}", dest.display());
    }
    assert_eq!(entries(dir.path()), ["fifo", "file"]);
}

#[test]
fn parents_are_made_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let dest = dir.path().join("a/b/../c/f");
    let options = PublishOptions {
        create_parents: true,
        mode: Some(0o4755),
        ..PublishOptions::default()
    };
    put(&dest, b"x", options).unwrap();
    let mode = |path: &str| std::fs::metadata(dir.path().join(path)).unwrap().mode() & 0o7777;
    assert_eq!(
        (mode("a"), mode("a/c"), mode("a/c/f")),
        (0o755, 0o755, 0o4755)
    );
}

#[test]
fn owners_are_kept_or_set() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root gives files away");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dest = dir.path().join("f");
    let options = PublishOptions {
        new_owner: Some((1234, 1235)),
        ..PublishOptions::default()
    };
    let owner = || {
        let meta = std::fs::metadata(&dest).unwrap();
        (meta.uid(), meta.gid())
    };
    put(&dest, b"", options).unwrap();
    assert_eq!(owner(), (1234, 1235));
    put(&dest, b"", PublishOptions::default()).unwrap();
    assert_eq!(owner(), (1234, 1235));
    let options = PublishOptions {
        uid: Some(7),
        ..options
    };
    put(&dest, b"", options).unwrap();
    assert_eq!(owner(), (7, 1235));
}
