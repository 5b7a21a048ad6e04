use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use super::*;
use crate::catalog::Image;
use crate::catalog::tests::{Fixture, build_folders, ensure, name, quiet};
use crate::host::is_root;
use crate::tree::owner::Ownership;
use crate::tree::writer::TreeWriter;
use crate::tree::{self, Owners, Tree};

/// A folder with a bit of everything, beside the fixture's home.
fn sample(fixture: &Fixture) -> PathBuf {
    let root = fixture.home.root().with_file_name("My Root");
    for folder in ["etc", "usr/bin", "var/empty"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("etc/mark"), "mark").unwrap();
    fs::write(root.join("usr/bin/su"), "su").unwrap();
    let mode = std::fs::Permissions::from_mode(0o4755);
    std::fs::set_permissions(root.join("usr/bin/su"), mode).unwrap();
    fs::hard_link(root.join("usr/bin/su"), root.join("usr/bin/su2")).unwrap();
    symlink("usr/bin", root.join("bin")).unwrap();
    fs::write(root.join("l".repeat(200)), "long name").unwrap();
    if is_root() {
        std::os::unix::fs::lchown(root.join("etc/mark"), Some(33), Some(44)).unwrap();
    }
    root
}

fn import(catalog: &Catalog, source: &ImageSource) -> Result<ImageName, ImageError> {
    catalog.import(source, &quiet, &CancellationToken::new())
}

fn tree_of(catalog: &Catalog, name: &ImageName, owners: Owners) -> Tree {
    let cancel = CancellationToken::new();
    catalog.ensure_tree(name, owners, &quiet, &cancel).unwrap()
}

fn assert_sample(tree: &Path, owner: (u32, u32)) {
    let at = |path: &str| tree.join(path);
    assert_eq!(fs::read_to_string(at("etc/mark")).unwrap(), "mark");
    assert_eq!(
        fs::read_to_string(at(&"l".repeat(200))).unwrap(),
        "long name"
    );
    assert_eq!(fs::read_link(at("bin")).unwrap(), Path::new("usr/bin"));
    let su = fs::metadata(at("usr/bin/su")).unwrap();
    assert_eq!(su.mode() & 0o7777, 0o4755);
    assert!(at("var/empty").is_dir() && at("proc").is_dir());
    if is_root() {
        let mark = fs::metadata(at("etc/mark")).unwrap();
        assert_eq!((mark.uid(), mark.gid()), owner);
    }
}

#[test]
fn a_folder_becomes_an_image_for_containers() {
    let fixture = Fixture::new();
    let folder = sample(&fixture);
    let catalog = fixture.catalog(1);
    let source = ImageSource::Folder(folder.clone());
    let name = import(&catalog, &source).unwrap();
    assert!(name.as_str().starts_with("folder-my-root-"), "{name}");
    assert_eq!(
        import(&catalog, &source).unwrap(),
        name,
        "the same content, the same name"
    );
    let tree = tree_of(&catalog, &name, Owners::Caller);
    assert_sample(&tree.path, (0, 0));
    let inode = |file: &str| fs::metadata(tree.path.join(file)).unwrap().ino();
    assert_eq!(inode("usr/bin/su"), inode("usr/bin/su2"));
    if is_root() {
        let shifted = Owners::Shifted {
            uid_base: 400_000,
            gid_base: 400_000,
        };
        assert_sample(&tree_of(&catalog, &name, shifted).path, (400_033, 400_044));
    }
    let listed = catalog.ls().unwrap();
    let info = listed.iter().find(|info| info.name == name).unwrap();
    assert!(info.built && info.created_unix.is_some() && info.kernel_version.is_none());
    assert_eq!(info.digest.as_deref(), Some(&*tree.digest));
    assert_eq!(info.source.as_deref(), folder.to_str());
    assert!(build_folders(&fixture.home).is_empty());

    fs::write(folder.join("etc/mark"), "other").unwrap();
    assert_ne!(import(&catalog, &source).unwrap(), name);
    let freed = catalog.rm(&name, &|_| Vec::new()).unwrap();
    assert!(freed > 0 && !fixture.home.image(&name).exists());
    assert!(matches!(
        catalog.get(&name),
        Err(ImageError::Unknown { .. })
    ));
}

#[test]
fn an_imported_image_becomes_a_disk_for_virtual_machines() {
    let fixture = Fixture::new();
    let catalog = fixture.catalog(1);
    let name = import(&catalog, &ImageSource::Folder(sample(&fixture))).unwrap();
    assert!(matches!(
        catalog.get(&name),
        Err(ImageError::NotBuilt { .. })
    ));
    let before = tree_of(&catalog, &name, Owners::Caller);
    let image: Image = ensure(&catalog, name.as_str()).unwrap();
    let root = image.root.clone().unwrap();
    assert!(image.kernel.is_file() && image.initramfs.is_file() && image.root_bytes > 0);

    // What is on the disk, read back.
    let folder = tempfile::tempdir().unwrap();
    let cancel = CancellationToken::new();
    let ownership = if is_root() {
        Ownership::Exact
    } else {
        Ownership::Of(Owners::Caller)
    };
    let mut writer = TreeWriter::new(folder.path(), ownership, &cancel).unwrap();
    tree::ext4::copy(&root, &mut writer, &|_| {}).unwrap();
    writer.finish().unwrap();
    assert_sample(folder.path(), (33, 44));

    // A new guestd makes a new initramfs; root and tree stay.
    let again = ensure(&fixture.catalog(2), name.as_str()).unwrap();
    assert_eq!(again.root, image.root);
    assert_ne!(again.initramfs, image.initramfs);
    let newest = fixture
        .catalog(2)
        .build(&name, Freshness::Cached, &quiet, &cancel)
        .unwrap();
    assert_eq!(newest.root, image.root);
    assert_eq!(tree_of(&catalog, &name, Owners::Caller), before);
    let path = catalog
        .unpacked(&newest, Owners::Caller, &quiet, &cancel)
        .unwrap();
    assert_eq!(path, before.path);
    assert_eq!(catalog.prune_roots(&name, &|_| false).unwrap(), 0);
    assert_eq!(catalog.prune_trees(&name, &|_| false).unwrap(), 0);
}

#[test]
fn an_archive_becomes_an_image_and_outlives_what_it_was() {
    let fixture = Fixture::new();
    let folder = sample(&fixture);
    let catalog = fixture.catalog(1);
    let plain = folder.with_file_name("rootfs.tar");
    let status = std::process::Command::new("tar")
        .arg("-C")
        .arg(&folder)
        .arg("-cf")
        .args([&plain, Path::new(".")])
        .status()
        .unwrap();
    assert!(status.success());
    let packed = folder.with_file_name("rootfs.tar.zst");
    let bytes = zstd::encode_all(&fs::read(&plain).unwrap()[..], 1).unwrap();
    fs::write(&packed, bytes).unwrap();
    let mut trees = Vec::new();
    for archive in [plain, packed] {
        let source = archive.to_str().unwrap().parse::<ImageSource>().unwrap();
        let name = import(&catalog, &source).unwrap();
        assert!(name.as_str().starts_with("tar-rootfs-"), "{name}");
        fs::remove_file(archive).unwrap();
        fs::remove_dir_all(fixture.home.cache()).unwrap();
        let tree = tree_of(&catalog, &name, Owners::Caller);
        assert_sample(&tree.path, (0, 0));
        trees.push(tree);
    }
    assert_ne!(trees[0].path, trees[1].path);
}

#[test]
fn airlocks_own_folder_is_never_taken() {
    let fixture = Fixture::new();
    let catalog = fixture.catalog(1);
    let outer = fixture.home.root().parent().unwrap().to_owned();
    let name = import(&catalog, &ImageSource::Folder(outer)).unwrap();
    let tree = tree_of(&catalog, &name, Owners::Caller);
    let home = tree.path.join(fixture.home.root().file_name().unwrap());
    assert_eq!(fs::read_dir(home).unwrap().count(), 0);
}

#[test]
fn a_damaged_layer_is_told_and_mended() {
    let fixture = Fixture::new();
    let catalog = fixture.catalog(1);
    let source = ImageSource::Folder(sample(&fixture));
    let name = import(&catalog, &source).unwrap();
    let dir = fixture.home.image(&name);
    let imported = import::Imported::read(&dir).unwrap().unwrap();
    let layer = dir.join(&imported.layers[0].piece.file);
    let mut bytes = fs::read(&layer).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&layer, &bytes).unwrap();
    let cancel = CancellationToken::new();
    let outcome = catalog.ensure_tree(&name, Owners::Caller, &quiet, &cancel);
    assert!(
        matches!(outcome, Err(ImageError::Tree { .. })),
        "{outcome:?}"
    );
    assert!(tree::all(&dir).unwrap().is_empty());
    // Cut short it is seen by its size and made again.
    fs::write(&layer, &bytes[..middle]).unwrap();
    assert!(
        !catalog
            .ls()
            .unwrap()
            .iter()
            .any(|info| info.name == name && info.built)
    );
    assert_eq!(import(&catalog, &source).unwrap(), name);
    assert_sample(&tree_of(&catalog, &name, Owners::Caller).path, (0, 0));
}

#[test]
fn another_image_of_the_same_name_is_never_replaced() {
    let fixture = Fixture::new();
    let catalog = fixture.catalog(1);
    let source = ImageSource::Folder(sample(&fixture));
    let name = import(&catalog, &source).unwrap();
    let description = fixture.home.image(&name).join(import::FILE_NAME);
    let text = fs::read_to_string(&description).unwrap();
    let imported: import::Imported = serde_json::from_str(&text).unwrap();
    // As if somebody had found a content whose digest begins alike.
    let other = imported
        .content
        .clone()
        .replace(&imported.content[20..], "0");
    fs::write(&description, text.replace(&imported.content, &other)).unwrap();
    let outcome = import(&catalog, &source);
    assert!(
        matches!(&outcome, Err(ImageError::Import { source, .. })
            if matches!(**source, ImportError::NameTaken { .. })),
        "{outcome:?}"
    );
}

#[test]
fn what_cannot_be_imported_leaves_nothing() {
    let fixture = Fixture::new();
    let catalog = fixture.catalog(1);
    let beside = |name: &str| fixture.home.root().with_file_name(name);
    fs::write(beside("text.tar"), "no archive").unwrap();
    fs::write(beside("file"), "x").unwrap();
    let failure = |source: ImageSource| match import(&catalog, &source) {
        Err(ImageError::Import { source, .. }) => *source,
        outcome => panic!("{source}: {outcome:?}"),
    };
    let error = failure(ImageSource::Archive(beside("text.tar")));
    assert!(
        matches!(error, ImportError::NotAnArchive { .. }),
        "{error:?}"
    );
    assert!(error.hint().unwrap().contains("docker export"));
    let error = failure(ImageSource::Archive(beside("none.tar")));
    assert!(error.is_not_found(), "{error:?}");
    let error = failure(ImageSource::Folder(beside("file")));
    assert!(matches!(error, ImportError::NotAFolder { .. }), "{error:?}");
    let cancel = CancellationToken::new();
    cancel.cancel();
    let source = ImageSource::Folder(sample(&fixture));
    let error = catalog.import(&source, &quiet, &cancel).unwrap_err();
    assert!(error.is_cancelled());
    assert!(build_folders(&fixture.home).is_empty());
    assert_eq!(fs::read_dir(fixture.home.images()).unwrap().count(), 0);
    let named = ImageSource::Named(name("linux"));
    assert_eq!(import(&catalog, &named).unwrap(), name("linux"));
}

#[test]
fn owners_and_modes_on_the_disk_are_the_images_own_whoever_makes_it() {
    let fixture = Fixture::new();
    let catalog = fixture.catalog(1);
    let mut archive = tar::Builder::new(Vec::new());
    for (path, mode, uid, gid) in [
        ("etc/", 0o755, 0, 0),
        ("etc/shadow", 0, 0, 42),
        ("home/", 0o500, 1000, 1001),
        ("home/su", 0o4755, 33, 44),
        ("closed/", 0, 7, 7),
        ("closed/in", 0o200, 70_000, 70_000),
    ] {
        let is_folder = path.ends_with('/');
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(if is_folder {
            tar::EntryType::Directory
        } else {
            tar::EntryType::Regular
        });
        header.set_mode(mode);
        header.set_uid(uid);
        header.set_gid(gid);
        header.set_mtime(1_600_000_000);
        let content: &[u8] = if is_folder { b"" } else { b"text" };
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, path, content).unwrap();
    }
    let file = fixture.home.root().with_file_name("owners.tar");
    fs::write(&file, archive.into_inner().unwrap()).unwrap();
    let name = import(&catalog, &ImageSource::Archive(file)).unwrap();
    let root = ensure(&catalog, name.as_str()).unwrap().root.unwrap();
    let disk = ext4_view::Ext4::load_from_path(&root).unwrap();
    for (path, mode, uid, gid) in [
        ("/", 0o755, 0, 0),
        ("/etc/shadow", 0, 0, 42),
        ("/home", 0o500, 1000, 1001),
        ("/home/su", 0o4755, 33, 44),
        ("/closed", 0, 7, 7),
        ("/closed/in", 0o200, 70_000, 70_000),
        ("/tmp", 0o1777, 0, 0),
    ] {
        let found = disk.symlink_metadata(path).unwrap();
        let found = (found.mode(), found.uid(), found.gid());
        assert_eq!(found, (mode, uid, gid), "{path}");
    }
    assert_eq!(disk.read("/closed/in").unwrap(), b"text");
    assert!(build_folders(&fixture.home).is_empty());
    // The tree of such an image can be made and removed, too.
    tree_of(&catalog, &name, Owners::Caller);
    assert!(catalog.rm(&name, &|_| Vec::new()).unwrap() > 0);
    assert!(!fixture.home.image(&name).exists());
}
