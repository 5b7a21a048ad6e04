use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use super::*;
use crate::host::is_root;
use crate::tree::Owners;

struct Fixture {
    folder: tempfile::TempDir,
    cancel: CancellationToken,
}

impl Fixture {
    /// `tree` is the tree and `outside` what must stay as it is.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tree")).unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        fs::write(folder.path().join("outside/secret"), "kept").unwrap();
        Self {
            folder,
            cancel: CancellationToken::new(),
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join("tree").join(path)
    }

    fn writer(&self, ownership: Ownership) -> TreeWriter<'_> {
        TreeWriter::new(&self.at(""), ownership, &self.cancel).unwrap()
    }

    fn own(&self) -> TreeWriter<'_> {
        self.writer(Ownership::Of(Owners::Caller))
    }

    fn outside(&self) -> String {
        self.folder.path().join("outside").display().to_string()
    }

    fn assert_untouched(&self) {
        let names: Vec<_> = fs::read_dir(self.folder.path().join("outside"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["secret"]);
        let secret = self.folder.path().join("outside/secret");
        assert_eq!(fs::read_to_string(&secret).unwrap(), "kept");
        assert_eq!(fs::metadata(secret).unwrap().nlink(), 1);
        assert_eq!(fs::read_dir(self.folder.path()).unwrap().count(), 2);
    }
}

fn path(text: &str) -> TreePath {
    TreePath::parse(text.as_bytes()).unwrap()
}

fn meta(mode: u32) -> Meta {
    Meta::of_root(mode)
}

fn put(writer: &mut TreeWriter<'_>, at: &str, content: &str) -> Result<(), TreeError> {
    let mut content = content.as_bytes();
    writer
        .file(&path(at), meta(0o644), &mut content, &TreeError::Io)
        .map(drop)
}

fn link(writer: &mut TreeWriter<'_>, at: &str, target: &str) {
    writer
        .link(&path(at), meta(0o777), OsStr::new(target))
        .unwrap();
}

#[test]
fn modes_times_links_and_pipes_are_kept() {
    let fixture = Fixture::new();
    let mut writer = fixture.own();
    let dated = Meta {
        modified: Some((1_600_000_000, 5)),
        ..meta(0o4755)
    };
    let content = &mut &b"program"[..];
    writer
        .file(&path("bin/su"), dated, content, &TreeError::Io)
        .unwrap();
    writer.folder(&path("closed"), meta(0o555)).unwrap();
    put(&mut writer, "closed/in", "x").unwrap();
    writer
        .folder(
            &path("empty"),
            Meta {
                mode: 0o1777,
                ..dated
            },
        )
        .unwrap();
    link(&mut writer, "etc/link", "/no/where");
    writer
        .hard_link(&path("bin/other"), &path("bin/su"))
        .unwrap();
    writer
        .hard_link(&path("etc/link2"), &path("etc/link"))
        .unwrap();
    writer.fifo(&path("pipe"), meta(0o622)).unwrap();
    writer.skip(&path("dev/sda")).unwrap();
    let (totals, _) = writer.finish().unwrap();
    assert_eq!((totals.bytes, totals.skipped), (8, 1));

    let su = fs::metadata(fixture.at("bin/su")).unwrap();
    assert_eq!(
        (su.mode() & 0o7777, su.mtime(), su.mtime_nsec()),
        (0o4755, 1_600_000_000, 5)
    );
    assert_eq!(
        su.ino(),
        fs::metadata(fixture.at("bin/other")).unwrap().ino()
    );
    let mode = |at: &str| fs::symlink_metadata(fixture.at(at)).unwrap().mode() & 0o7777;
    assert_eq!(
        (mode("closed"), mode("empty"), mode("pipe")),
        (0o555, 0o1777, 0o622)
    );
    assert_eq!(
        fs::metadata(fixture.at("empty")).unwrap().mtime(),
        1_600_000_000
    );
    assert!(
        fs::symlink_metadata(fixture.at("pipe"))
            .unwrap()
            .file_type()
            .is_fifo()
    );
    for at in ["etc/link", "etc/link2"] {
        assert_eq!(
            fs::read_link(fixture.at(at)).unwrap(),
            PathBuf::from("/no/where")
        );
    }
    assert!(!fixture.at("dev/sda").exists());
    assert_eq!(
        (mode("tmp"), mode("proc"), mode("")),
        (0o1777, 0o555, 0o755)
    );
    remove::tree(&fixture.at("")).unwrap();
    assert!(!fixture.at("").exists(), "closed folders go, too");
}

#[test]
fn nothing_is_written_through_a_link() {
    let fixture = Fixture::new();
    let outside = fixture.outside();
    let mut writer = fixture.own();
    link(&mut writer, "absolute", &outside);
    link(&mut writer, "upwards", "../outside");
    writer.folder(&path("real"), meta(0o755)).unwrap();
    link(&mut writer, "inside", "real");
    for start in ["absolute", "upwards", "inside"] {
        let at = |name: &str| format!("{start}/{name}");
        let refused = |outcome: Result<(), TreeError>| {
            assert!(
                matches!(outcome, Err(TreeError::NotBelowFolder { .. })),
                "{outcome:?}"
            );
        };
        refused(put(&mut writer, &at("secret"), "lost"));
        refused(put(&mut writer, &at("new/deep"), "lost"));
        refused(writer.folder(&path(&at("new")), meta(0o777)));
        refused(writer.link(&path(&at("new")), meta(0o777), OsStr::new("x")));
        refused(writer.fifo(&path(&at("new")), meta(0o777)));
        refused(writer.skip(&path(&at("secret"))));
        refused(writer.hide(&path(&at("secret"))));
        refused(writer.hard_link(&path("copy"), &path(&at("secret"))));
        writer.hide_content(&path(start)).unwrap();
    }
    // A file in the place of a link replaces the link.
    link(&mut writer, "file", &format!("{outside}/secret"));
    put(&mut writer, "file", "own").unwrap();
    link(&mut writer, "folder", &outside);
    writer.folder(&path("folder"), meta(0o700)).unwrap();
    put(&mut writer, "folder/secret", "own").unwrap();
    // A hard link to a link is the link, not what it leads to.
    link(&mut writer, "l", &format!("{outside}/secret"));
    writer.hard_link(&path("l2"), &path("l")).unwrap();
    writer.finish().unwrap();
    fixture.assert_untouched();
    assert!(fs::symlink_metadata(fixture.at("l2")).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(fixture.at("file")).unwrap(), "own");
}

#[test]
fn links_in_the_place_of_usual_folders_are_left_alone() {
    let fixture = Fixture::new();
    let outside = fixture.outside();
    let mut writer = fixture.own();
    for name in ["tmp", "var", "proc"] {
        link(&mut writer, name, &outside);
    }
    put(&mut writer, "run", "a file").unwrap();
    writer.finish().unwrap();
    fixture.assert_untouched();
    assert!(
        fs::symlink_metadata(fixture.at("var"))
            .unwrap()
            .is_symlink()
    );
}

#[test]
fn removing_a_tree_follows_no_link() {
    let fixture = Fixture::new();
    let mut writer = fixture.own();
    link(&mut writer, "a/b", &fixture.outside());
    link(&mut writer, "c", &fixture.outside());
    writer.hide(&path("c")).unwrap();
    writer.begin_layer();
    writer.hide(&path("a")).unwrap();
    writer.finish().unwrap();
    remove::tree(&fixture.at("")).unwrap();
    fs::create_dir(fixture.at("")).unwrap();
    fixture.assert_untouched();
}

#[test]
fn hard_links_lead_to_files_of_the_tree_alone() {
    let fixture = Fixture::new();
    let mut writer = fixture.own();
    put(&mut writer, "d/file", "x").unwrap();
    for target in ["no", "d", "no/such", "d/file/x"] {
        let outcome = writer.hard_link(&path("new"), &path(target));
        assert!(
            matches!(
                outcome,
                Err(TreeError::BadHardLink { .. } | TreeError::NotBelowFolder { .. })
            ),
            "{target}: {outcome:?}"
        );
    }
    // It would remove what it is to be made of.
    for at in ["d/file", "d"] {
        assert!(writer.hard_link(&path(at), &path("d/file")).is_err());
    }
    assert_eq!(fs::read_to_string(fixture.at("d/file")).unwrap(), "x");
}

#[test]
fn whiteouts_hide_what_is_below_and_nothing_else() {
    let fixture = Fixture::new();
    let mut writer = fixture.own();
    for at in ["a/old", "a/both", "b/old", "b/sub/old", "gone/x/y", "kept"] {
        put(&mut writer, at, "below").unwrap();
    }
    writer.begin_layer();
    put(&mut writer, "a/both", "above").unwrap();
    put(&mut writer, "b/sub/new", "above").unwrap();
    writer.hide(&path("a/both")).unwrap();
    writer.hide(&path("a/old")).unwrap();
    writer.hide_content(&path("b")).unwrap();
    writer.hide(&path("gone")).unwrap();
    writer.hide(&path("never/was")).unwrap();
    put(&mut writer, "gone", "a file now").unwrap();
    writer.finish().unwrap();
    let text = |at: &str| fs::read_to_string(fixture.at(at)).ok();
    assert_eq!(text("a/both").as_deref(), Some("above"));
    assert_eq!(text("b/sub/new").as_deref(), Some("above"));
    assert_eq!(text("gone").as_deref(), Some("a file now"));
    assert_eq!(text("kept").as_deref(), Some("below"));
    for at in ["a/old", "b/old", "b/sub/old", "never"] {
        assert!(!fixture.at(at).exists(), "{at}");
    }
}

#[test]
fn a_folder_and_a_file_take_each_others_place() {
    let fixture = Fixture::new();
    let mut writer = fixture.own();
    put(&mut writer, "x/y/z", "deep").unwrap();
    put(&mut writer, "f", "file").unwrap();
    writer.begin_layer();
    put(&mut writer, "x", "file").unwrap();
    writer.folder(&path("f"), meta(0o700)).unwrap();
    put(&mut writer, "f/g", "new").unwrap();
    writer.finish().unwrap();
    assert_eq!(fs::read_to_string(fixture.at("x")).unwrap(), "file");
    assert_eq!(fs::read_to_string(fixture.at("f/g")).unwrap(), "new");
    assert_eq!(
        fs::metadata(fixture.at("f")).unwrap().permissions().mode() & 0o777,
        0o700
    );
}

#[test]
fn owners_are_shifted_and_set_user_id_stays() {
    if !is_root() {
        return; // Owners are root's to set; the other tests run for everybody.
    }
    let fixture = Fixture::new();
    let mut writer = fixture.writer(Ownership::Of(Owners::Shifted {
        uid_base: 300_000,
        gid_base: 300_000,
    }));
    let of = |uid, gid, mode| Meta {
        uid,
        gid,
        ..meta(mode)
    };
    let mut content = &b"x"[..];
    writer
        .file(
            &path("home/u/f"),
            of(1000, 33, 0o6755),
            &mut content,
            &TreeError::Io,
        )
        .unwrap();
    writer
        .link(&path("l"), of(7, 8, 0o777), OsStr::new("x"))
        .unwrap();
    writer.fifo(&path("p"), of(9, 9, 0o600)).unwrap();
    writer.folder(&path("far"), of(70_000, 0, 0o700)).unwrap();
    let (totals, _) = writer.finish().unwrap();
    assert_eq!(totals.foreign_owners, 1);
    for (at, uid, gid) in [
        ("", 300_000, 300_000),
        ("home", 300_000, 300_000),
        ("tmp", 300_000, 300_000),
        ("home/u/f", 301_000, 300_033),
        ("l", 300_007, 300_008),
        ("p", 300_009, 300_009),
        ("far", 365_534, 300_000),
    ] {
        let found = fs::symlink_metadata(fixture.at(at)).unwrap();
        assert_eq!((found.uid(), found.gid()), (uid, gid), "{at}");
    }
    assert_eq!(
        fs::metadata(fixture.at("home/u/f")).unwrap().mode() & 0o7777,
        0o6755
    );
}

#[test]
fn a_cancelled_writer_stops_at_the_next_file() {
    let fixture = Fixture::new();
    let mut writer = fixture.own();
    put(&mut writer, "a", "x").unwrap();
    fixture.cancel.cancel();
    assert!(matches!(
        put(&mut writer, "b", "x"),
        Err(TreeError::Cancelled)
    ));
    assert!(!fixture.at("b").exists());
}

#[test]
fn the_deepest_tree_is_made_hidden_and_removed_on_a_short_stack() {
    let work = || {
        let fixture = Fixture::new();
        let deepest = vec!["d"; 255].join("/");
        let mut writer = fixture.own();
        put(&mut writer, &deepest, "below").unwrap();
        writer.begin_layer();
        writer
            .folder(&path(&deepest[..deepest.len() - 2]), meta(0))
            .unwrap();
        // Folder by folder, for all of them are of this layer, too.
        writer.hide(&path("d")).unwrap();
        writer.finish().unwrap();
        assert!(!fixture.at(&deepest).exists());
        remove::tree(&fixture.at("")).unwrap();
        assert!(!fixture.at("").exists());
    };
    // Less than the threads have on which images are unpacked.
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    thread.spawn(work).unwrap().join().unwrap();
}
