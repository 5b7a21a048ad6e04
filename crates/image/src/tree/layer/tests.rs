use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use proptest::prelude::*;
use tar::{Builder, Header};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::manifest::sha256_of;
use crate::tree::Owners;
use crate::tree::owner::Ownership;

/// Makes archives as hostile as needed: names are written as they are, unchecked.
#[derive(Default)]
struct Archive(Vec<u8>);

impl Archive {
    fn add(&mut self, kind: EntryType, name: &str, link: &str, content: &[u8]) -> &mut Self {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_600_000_000);
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        let padding = content.len().next_multiple_of(512) - content.len();
        self.0.extend(vec![0; padding]);
        self
    }

    fn file(&mut self, name: &str, content: &str) -> &mut Self {
        self.add(EntryType::Regular, name, "", content.as_bytes())
    }

    fn bytes(&self) -> Vec<u8> {
        [&self.0[..], &[0; 1024]].concat()
    }
}

struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("tree")).unwrap();
        std::fs::write(folder.path().join("secret"), "kept").unwrap();
        Self { folder }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join("tree").join(path)
    }

    fn text(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.at(path)).ok()
    }

    /// Applies files as layers, each with its right digests.
    fn apply(&self, layers: &[Vec<u8>]) -> Result<(), TreeError> {
        let cancel = CancellationToken::new();
        let owners = Ownership::Of(Owners::Caller);
        let mut writer = TreeWriter::new(&self.at(""), owners, &cancel)?;
        for (number, bytes) in layers.iter().enumerate() {
            let file = self.folder.path().join(format!("layer-{number}"));
            std::fs::write(&file, bytes).unwrap();
            let layer = Layer {
                file: &file,
                sha256: &sha256_of(bytes),
                diff_sha256: None,
                has_whiteouts: true,
            };
            layer.apply(&mut writer, &|_| {})?;
            std::fs::remove_file(file).unwrap();
        }
        writer.finish().map(drop)
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn reads_all_kinds_of_entries_in_all_compressions() {
    let long = format!("{}/file", "folder".repeat(40));
    let mut builder = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_mode(0o4755);
    header.set_size(4);
    header.set_mtime(1_600_000_000);
    builder
        .append_data(&mut header, &long, &b"long"[..])
        .unwrap();
    let gnu = builder.into_inner().unwrap();
    // A PAX header gives the name that its entry has not.
    let mut archive = Archive::default();
    let pax = b"22 path=over/the/name\n";
    archive
        .add(EntryType::XHeader, "x", "", pax)
        .file("n", "pax");
    archive
        .add(EntryType::XGlobalHeader, "g", "", b"13 comment=x\n")
        .add(EntryType::Directory, "./d/", "", b"")
        .add(EntryType::Regular, "old/", "", b"")
        .add(EntryType::Symlink, "/l", "/no/where", b"")
        .add(EntryType::Link, "h", "./n2", b"")
        .add(EntryType::Fifo, "p", "", b"")
        .add(EntryType::Char, "c", "", b"");
    let mut first = Archive::default();
    first.file("n2", "two");
    for pack in [
        |bytes: Vec<u8>| bytes,
        |bytes: Vec<u8>| gzip(&bytes),
        |bytes: Vec<u8>| zstd::encode_all(&bytes[..], 1).unwrap(),
        // Several compressed pieces one after the other, as parallel compressors write them.
        |bytes: Vec<u8>| [gzip(&bytes[..100]), gzip(&bytes[100..])].concat(),
    ] {
        let fixture = Fixture::new();
        let layers = [gnu.clone(), first.bytes(), archive.bytes()].map(pack);
        fixture.apply(&layers).unwrap();
        assert_eq!(fixture.text(&long).as_deref(), Some("long"));
        let meta = std::fs::metadata(fixture.at(&long)).unwrap();
        assert_eq!(
            (meta.mode() & 0o7777, meta.mtime()),
            (0o4755, 1_600_000_000)
        );
        assert_eq!(fixture.text("over/the/name").as_deref(), Some("pax"));
        assert_eq!(fixture.text("h").as_deref(), Some("two"));
        assert_eq!(std::fs::metadata(fixture.at("n2")).unwrap().nlink(), 2);
        let link = std::fs::read_link(fixture.at("l")).unwrap();
        assert_eq!(link, Path::new("/no/where"));
        assert!(fixture.at("d").is_dir() && fixture.at("old").is_dir());
        assert!(!fixture.at("c").exists() && fixture.at("p").exists());
    }
}

#[test]
fn nothing_leaves_the_tree() {
    let file = EntryType::Regular;
    let secret = "../secret";
    let hostile: [&[(EntryType, &str, &str)]; 10] = [
        &[(file, secret, "")],
        &[(file, "a/../../secret", "")],
        &[(EntryType::Directory, "../new", "")],
        &[(EntryType::Symlink, "../link", "x")],
        &[(EntryType::Symlink, "a", ".."), (file, "a/secret", "")],
        &[
            (EntryType::Symlink, "a", "/tmp"),
            (file, "a/airlock-lost", ""),
        ],
        &[(EntryType::Link, "a", secret), (file, "a", "")],
        &[
            (EntryType::Symlink, "s", secret),
            (EntryType::Link, "a", "s/x"),
        ],
        &[(file, ".wh...", "")],
        &[(file, "a/../.wh.secret", "")],
    ];
    for entries in hostile {
        let fixture = Fixture::new();
        let mut archive = Archive::default();
        for (kind, name, link) in entries {
            archive.add(*kind, name, link, b"");
        }
        let outcome = fixture.apply(&[archive.bytes()]);
        assert!(
            matches!(
                outcome,
                Err(TreeError::BadPath { .. }
                    | TreeError::NotBelowFolder { .. }
                    | TreeError::BadHardLink { .. })
            ),
            "{entries:?}: {outcome:?}"
        );
        let secret = fixture.folder.path().join("secret");
        assert_eq!(std::fs::read_to_string(secret).unwrap(), "kept");
        assert!(!Path::new("/tmp/airlock-lost").exists());
        let outside = std::fs::read_dir(fixture.folder.path()).unwrap().count();
        assert_eq!(
            outside, 3,
            "the tree, the secret and the layer: {entries:?}"
        );
    }
}

#[test]
fn an_absolute_name_means_the_root_of_the_tree() {
    let fixture = Fixture::new();
    let name = format!("{}/inside", fixture.folder.path().display());
    let mut archive = Archive::default();
    archive.file(&name, "x");
    fixture.apply(&[archive.bytes()]).unwrap();
    assert!(!Path::new(&name).exists());
    assert_eq!(fixture.text(&name[1..]).as_deref(), Some("x"));
}

#[test]
fn whiteouts_work_across_layers() {
    let fixture = Fixture::new();
    let mut below = Archive::default();
    for name in ["a/x", "a/y", "b/x", "b/sub/x", "c"] {
        below.file(name, "below");
    }
    let mut above = Archive::default();
    above
        .file("a/.wh.x", "")
        .file("b/new", "above")
        .file("b/.wh..wh..opq", "")
        .file(".wh.c", "")
        .file(".wh.never", "")
        .file(".wh..wh.plnk", "");
    fixture.apply(&[below.bytes(), above.bytes()]).unwrap();
    assert_eq!(fixture.text("a/y").as_deref(), Some("below"));
    assert_eq!(fixture.text("b/new").as_deref(), Some("above"));
    for gone in ["a/x", "b/x", "b/sub", "c", "never", ".wh.c", ".wh..wh.plnk"] {
        assert!(!fixture.at(gone).exists(), "{gone}");
    }
}

#[test]
fn what_is_cut_short_or_too_long_is_refused() {
    let mut archive = Archive::default();
    archive.file("f", &"x".repeat(2000));
    let whole = archive.bytes();
    for cut in [&whole[..1000], &gzip(&whole)[..40], &whole[..300]] {
        let outcome = Fixture::new().apply(&[cut.to_vec()]);
        assert!(
            matches!(outcome, Err(TreeError::Archive { .. })),
            "{outcome:?}"
        );
    }
    // A name that would fill the memory, in a few bytes of the host's disk.
    let mut bomb = Archive::default();
    bomb.add(EntryType::GNULongName, "n", "", &vec![b'x'; 16 << 20]);
    let outcome = Fixture::new().apply(&[gzip(&bomb.bytes())]);
    let error = outcome.unwrap_err();
    assert!(format!("{error:?}").contains("too long"), "{error:?}");
}

#[test]
fn new_sparse_files_are_refused_and_not_mangled() {
    let mut archive = Archive::default();
    let pax = b"22 GNU.sparse.major=1\n";
    archive
        .add(EntryType::XHeader, "x", "", pax)
        .file("f", "map and data");
    let outcome = Fixture::new().apply(&[archive.bytes()]);
    assert!(
        matches!(outcome, Err(TreeError::Unsupported { .. })),
        "{outcome:?}"
    );
}

#[test]
fn both_digests_are_compared() {
    let fixture = Fixture::new();
    let mut archive = Archive::default();
    archive.file("f", "x");
    let plain = archive.bytes();
    let packed = gzip(&plain);
    let file = fixture.folder.path().join("layer");
    std::fs::write(&file, &packed).unwrap();
    let (right, right_diff) = (sha256_of(&packed), sha256_of(&plain));
    let wrong = sha256_of(b"");
    let apply = |sha256: &str, diff_sha256: &str| {
        let cancel = CancellationToken::new();
        let owners = Ownership::Of(Owners::Caller);
        let mut writer = TreeWriter::new(&fixture.at(""), owners, &cancel).unwrap();
        let layer = Layer {
            file: &file,
            sha256,
            diff_sha256: Some(diff_sha256),
            has_whiteouts: true,
        };
        layer.apply(&mut writer, &|_| {})
    };
    assert!(apply(&right, &right_diff).is_ok());
    for outcome in [apply(&wrong, &right_diff), apply(&right, &wrong)] {
        assert!(
            matches!(outcome, Err(TreeError::Digest { .. })),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_check_tells_an_archive_from_another_file() {
    let fixture = Fixture::new();
    let file = fixture.folder.path().join("x");
    let check = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        Layer::check(&file)
    };
    let mut archive = Archive::default();
    archive.file("f", "x");
    assert!(check(&archive.bytes()).is_ok() && check(&gzip(&archive.bytes())).is_ok());
    let id = "0123456789abcdef".repeat(4);
    for saved in [
        "blobs/",
        "oci-layout",
        &format!("{id}/"),
        &format!("{id}/layer.tar"),
    ] {
        let mut archive = Archive::default();
        archive.file(saved, "");
        let outcome = check(&archive.bytes());
        assert!(
            matches!(outcome, Err(TreeError::Unsupported { .. })),
            "{saved}"
        );
    }
    for bytes in [
        &b""[..],
        b"hello",
        &[b'x'; 2000],
        &gzip(b"hello"),
        &[0; 2048],
    ] {
        assert!(check(bytes).is_err());
    }
}

fn entry_kind() -> impl Strategy<Value = EntryType> {
    prop_oneof![
        Just(EntryType::Regular),
        Just(EntryType::Directory),
        Just(EntryType::Symlink),
        Just(EntryType::Symlink),
        Just(EntryType::Link),
        Just(EntryType::Fifo),
        Just(EntryType::Char),
    ]
}

/// Names that meet each other often, in all the ways that lead somewhere.
fn entry_name() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => "[ab]",
        1 => Just("..".to_owned()),
        1 => Just("secret".to_owned()),
        1 => Just(".wh.a".to_owned()),
        1 => Just(".wh..wh..opq".to_owned()),
        1 => Just(String::new()),
    ];
    proptest::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"))
}

fn link_target() -> impl Strategy<Value = String> {
    prop_oneof![
        entry_name(),
        Just("..".to_owned()),
        Just("../secret".to_owned()),
        Just("a/../..".to_owned()),
        Just("/proc/self/cwd".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_archive_reaches_outside(
        entries in proptest::collection::vec(
            (entry_kind(), entry_name(), link_target(), any::<bool>()), 1..12),
    ) {
        let fixture = Fixture::new();
        let mut layers = vec![Archive::default()];
        for (kind, name, link, is_new_layer) in &entries {
            if *is_new_layer {
                layers.push(Archive::default());
            }
            if let Some(layer) = layers.last_mut() {
                let content: &[u8] = if *kind == EntryType::Regular { b"lost" } else { b"" };
                layer.add(*kind, name, link, content);
            }
        }
        // Most fail somewhere; what counts is what they did until then.
        for layer in layers {
            let _ = fixture.apply(&[layer.bytes()]);
        }
        let folder = fixture.folder.path();
        let secret = folder.join("secret");
        prop_assert_eq!(std::fs::read_to_string(&secret).unwrap(), "kept");
        prop_assert_eq!(std::fs::metadata(&secret).unwrap().nlink(), 1);
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name();
            prop_assert!(["tree", "secret", "layer-0"].iter().any(|known| *known == name));
        }
        crate::tree::remove::tree(&fixture.at("")).unwrap();
        prop_assert!(!fixture.at("").exists());
        prop_assert_eq!(std::fs::read_to_string(&secret).unwrap(), "kept");
    }
}
