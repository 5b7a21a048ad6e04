use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::process::Command;

use super::*;
use crate::catalog::tests::{Fixture, build_folders, ensure, name, quiet};
use crate::host::{find_tool, is_root};
use crate::tree::record;

fn tree_of(catalog: &Catalog, image: &str) -> Result<Tree, ImageError> {
    let cancel = CancellationToken::new();
    catalog.ensure_tree(&name(image), Owners::Caller, &quiet, &cancel)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it stands for a caller's own"
)]
fn never(step: Progress) {
    panic!("{step:?}");
}

/// Makes a small ext4 file and puts it in place as the root of `linux`; `mark` is in a file of it.
fn add_root(fixture: &Fixture, mark: &str) -> PathBuf {
    let mke2fs = find_tool("mke2fs").expect("e2fsprogs is installed");
    let work = tempfile::tempdir().unwrap();
    let content = work.path().join("content");
    for folder in ["etc", "usr/bin", "var/empty"] {
        fs::create_dir_all(content.join(folder)).unwrap();
    }
    fs::write(content.join("etc/mark"), mark).unwrap();
    // Longer than one block, with a hole.
    let big = fs::File::create(content.join("usr/big")).unwrap();
    big.set_len(3 << 20).unwrap();
    fs::write(content.join("usr/bin/su"), "su").unwrap();
    std::fs::set_permissions(
        content.join("usr/bin/su"),
        std::fs::Permissions::from_mode(0o4755),
    )
    .unwrap();
    symlink("usr/bin", content.join("bin")).unwrap();
    symlink("/".repeat(10) + &"long".repeat(30), content.join("long")).unwrap();
    let file = work.path().join("root.ext4");
    let status = Command::new(mke2fs)
        .args(["-q", "-t", "ext4", "-E", "root_owner=0:0", "-d"])
        .args([content.as_path(), file.as_path(), Path::new("16M")])
        .status()
        .unwrap();
    assert!(status.success());
    let sha256 = sha256_of_file(&file, &mut |_| Ok::<(), io::Error>(()))
        .unwrap()
        .to_string();
    let dir = fixture.home.image(&name("linux"));
    fs::create_dir_all(&dir).unwrap();
    let root = dir.join(format!("root-{}.ext4", &sha256[..16]));
    fs::copy(&file, &root).unwrap();
    let description = serde_json::json!({
        "file": root.file_name().unwrap().to_str(), "bytes": 16 << 20, "sha256": sha256,
        "recipe": crate::rootfs::RECIPE, "suite": "test",
    });
    fs::write(dir.join(root::FILE_NAME), description.to_string()).unwrap();
    root
}

#[test]
fn tiny_is_a_tree_without_a_kernel() {
    let fixture = Fixture::new();
    // No kernel, no guestd: a container needs neither.
    fs::remove_dir_all(fixture.home.cache().join("kernel-6.1-1")).unwrap();
    let catalog = Catalog::new(&fixture.home);
    let tree = tree_of(&catalog, "tiny").unwrap();
    let at = |path: &str| tree.path.join(path);
    assert_eq!(fs::read_to_string(at("bin/busybox")).unwrap(), "BUSYBOX");
    assert_eq!(fs::read_link(at("bin/sh")).unwrap(), Path::new("busybox"));
    assert_eq!(fs::read_link(at("usr/bin")).unwrap(), Path::new("../bin"));
    assert!(at("etc/passwd").is_file() && at("proc").is_dir());
    assert_eq!(fs::metadata(at("tmp")).unwrap().mode() & 0o7777, 0o1777);
    for path in ["init", "bin/init", "lib/modules", "dev/null", "sysroot"] {
        assert!(!at(path).exists(), "{path}");
    }
    let cancel = CancellationToken::new();
    let again = catalog
        .ensure_tree(&name("tiny"), Owners::Caller, &never, &cancel)
        .unwrap();
    assert_eq!(again, tree);
    assert!(build_folders(&fixture.home).is_empty());
    std::fs::remove_dir_all(fixture.home.cache()).unwrap();
    assert_eq!(
        tree_of(&catalog, "tiny").unwrap(),
        tree,
        "a tree outlives the cache"
    );
}

#[test]
fn a_root_file_system_becomes_a_tree() {
    let fixture = Fixture::new();
    add_root(&fixture, "one");
    let tree = tree_of(&fixture.catalog(1), "linux").unwrap();
    let at = |path: &str| tree.path.join(path);
    assert_eq!(fs::read_to_string(at("etc/mark")).unwrap(), "one");
    assert_eq!(fs::read(at("usr/big")).unwrap(), vec![0; 3 << 20]);
    assert_eq!(
        fs::metadata(at("usr/bin/su")).unwrap().mode() & 0o7777,
        0o4755
    );
    assert_eq!(fs::read_link(at("bin")).unwrap(), Path::new("usr/bin"));
    assert_eq!(fs::read_link(at("long")).unwrap().as_os_str().len(), 130);
    assert!(at("var/empty").is_dir() && at("run").is_dir() && !at("lost+found").exists());
}

#[test]
fn owners_get_trees_of_their_own() {
    if !is_root() {
        return; // Owners are root's to set.
    }
    let fixture = Fixture::new();
    add_root(&fixture, "one");
    let catalog = fixture.catalog(1);
    let shifted = Owners::Shifted {
        uid_base: 500_000,
        gid_base: 500_000,
    };
    let cancel = CancellationToken::new();
    let tree = catalog
        .ensure_tree(&name("linux"), shifted, &quiet, &cancel)
        .unwrap();
    let own = tree_of(&catalog, "linux").unwrap();
    assert_eq!(tree.digest, own.digest);
    let owner = |tree: &Tree| fs::metadata(tree.path.join("etc/mark")).unwrap().uid();
    assert_eq!((owner(&tree), owner(&own)), (500_000, 0));
    let file_name = tree.path.file_name().unwrap().to_string_lossy();
    assert_eq!(*file_name, format!("tree-{}-500000", &tree.digest[..16]));
}

#[test]
fn a_half_made_tree_is_made_again() {
    let fixture = Fixture::new();
    let catalog = fixture.catalog(1);
    let tree = tree_of(&catalog, "tiny").unwrap();
    // As if it had stopped before the description, and once more in the middle.
    fs::remove_file(record::path_of(&tree.path)).unwrap();
    fs::remove_file(tree.path.join("bin/busybox")).unwrap();
    let unfinished = tree.path.with_file_name(".tree-abc");
    fs::create_dir_all(unfinished.join("closed/in")).unwrap();
    let closed = std::fs::Permissions::from_mode(0o555);
    std::fs::set_permissions(unfinished.join("closed"), closed).unwrap();
    assert_eq!(tree_of(&catalog, "tiny").unwrap(), tree);
    assert!(tree.path.join("bin/busybox").is_file() && !unfinished.exists());
}

#[test]
fn a_damaged_root_is_never_unpacked() {
    let fixture = Fixture::new();
    let root = add_root(&fixture, "one");
    let mut bytes = fs::read(&root).unwrap();
    bytes[5 << 20] ^= 1;
    fs::write(&root, bytes).unwrap();
    let error = tree_of(&fixture.catalog(1), "linux").unwrap_err();
    assert!(
        matches!(
            &error,
            ImageError::Tree {
                source: TreeError::Digest { .. },
                ..
            }
        ),
        "{error:?}"
    );
    let dir = fixture.home.image(&name("linux"));
    assert!(tree::all(&dir).unwrap().is_empty());
}

#[test]
fn a_cancelled_unpacking_leaves_nothing() {
    let fixture = Fixture::new();
    add_root(&fixture, "one");
    let cancel = CancellationToken::new();
    let stop = |_: Progress| cancel.cancel();
    let outcome = fixture
        .catalog(1)
        .ensure_tree(&name("linux"), Owners::Caller, &stop, &cancel);
    assert!(outcome.unwrap_err().is_cancelled());
    let mut left: Vec<_> = fs::read_dir(fixture.home.image(&name("linux")))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert!(left.len() == 2 && left[1] == "root.json", "{left:?}");
}

#[test]
fn many_at_once_make_one_tree() {
    let fixture = Fixture::new();
    add_root(&fixture, "one");
    let catalog = fixture.catalog(1);
    let trees: Vec<Tree> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| tree_of(&catalog, "linux").unwrap()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(trees.iter().all(|tree| *tree == trees[0]));
    assert_eq!(
        tree::all(&fixture.home.image(&name("linux")))
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn a_tree_in_use_outlives_its_root() {
    let fixture = Fixture::new();
    add_root(&fixture, "one");
    let catalog = fixture.catalog(1);
    let old = tree_of(&catalog, "linux").unwrap();
    add_root(&fixture, "two");
    let new = tree_of(&catalog, "linux").unwrap();
    assert_ne!(old.path, new.path);
    let linux = name("linux");
    let used = |path: &Path| path == old.path;
    assert_eq!(catalog.prune_trees(&linux, &used).unwrap(), 0);
    assert!(old.path.exists());
    assert!(catalog.prune_trees(&linux, &|_| false).unwrap() > 0);
    assert!(!old.path.exists() && new.path.exists());
    // The same for the roots themselves: the current one is named by no manifest.
    assert!(catalog.prune_roots(&linux, &|_| false).unwrap() > 0);
    assert!(tree_of(&catalog, "linux").is_ok());
}

#[test]
fn a_root_made_for_containers_serves_virtual_machines_too() {
    let fixture = Fixture::new();
    let root = add_root(&fixture, "one");
    let catalog = fixture.catalog(1);
    let tree = tree_of(&catalog, "linux").unwrap();
    let image = ensure(&catalog, "linux").unwrap();
    assert_eq!(image.root.as_deref(), Some(root.as_path()));
    let dir = fixture.home.image(&name("linux"));
    assert!(
        !dir.join(root::FILE_NAME).exists(),
        "the manifest names it now"
    );
    assert_eq!(tree_of(&catalog, "linux").unwrap(), tree);
    let cancel = CancellationToken::new();
    let path = catalog
        .unpacked(&image, Owners::Caller, &never, &cancel)
        .unwrap();
    assert_eq!(path, tree.path);
}

#[test]
fn builds_and_removals_know_trees() {
    let fixture = Fixture::new();
    let catalog = fixture.catalog(1);
    let tree = tree_of(&catalog, "tiny").unwrap();
    for guestd in 1..4 {
        ensure(&fixture.catalog(guestd), "tiny").unwrap();
    }
    let cancel = CancellationToken::new();
    let image = ensure(&catalog, "tiny").unwrap();
    let path = catalog
        .unpacked(&image, Owners::Caller, &never, &cancel)
        .unwrap();
    assert_eq!(path, tree.path, "builds leave trees alone");
    let listed = catalog.ls().unwrap().pop().unwrap();
    assert!(listed.disk_bytes > record::disk_bytes(&tree.path));
    let freed = catalog.rm(&name("tiny"), &|_| Vec::new()).unwrap();
    assert_eq!(freed, listed.disk_bytes);
    assert!(!fixture.home.image(&name("tiny")).exists());
}

#[test]
fn an_image_of_unknown_making_has_no_tree() {
    let fixture = Fixture::new();
    let catalog = fixture.catalog(1);
    ensure(&catalog, "tiny").unwrap();
    let images = fixture.home.images();
    fs::rename(images.join("tiny"), images.join("mine")).unwrap();
    let error = tree_of(&catalog, "mine").unwrap_err();
    assert!(matches!(error, ImageError::NoRoot { .. }), "{error:?}");
    assert_eq!(catalog.prune_trees(&name("mine"), &|_| false).unwrap(), 0);
    let error = tree_of(&catalog, "mars").unwrap_err();
    assert!(matches!(error, ImageError::Unknown { .. }), "{error:?}");
}
