use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::guestd_bin;
use crate::manifest::{FORMAT, Piece, RootPiece};

const HELPER_HOME: &str = "AIRLOCK_IMAGE_TEST_HOME";
const HELPER_PHASE: &str = "AIRLOCK_IMAGE_TEST_PHASE";

/// A folder whose cache already has a (tiny, fake) kernel and busybox, so that the real build code
/// runs without a network.
pub(super) struct Fixture {
    pub(super) home: HomePaths,
    _folder: tempfile::TempDir,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = HomePaths::new(folder.path().join("home"));
        add_kernel(&home, "6.1-1", 1);
        add_part(
            &home,
            "busybox",
            "1.35-1",
            1,
            &[("busybox", "BUSYBOX"), ("applets", "ls\ninit\nsh\n")],
        );
        Self {
            home,
            _folder: folder,
        }
    }

    pub(super) fn catalog(&self, guestd: u8) -> Catalog {
        catalog(&self.home, guestd)
    }
}

fn add_kernel(home: &HomePaths, version: &str, created: u64) {
    let files = [
        ("kernel", version),
        ("load-order", "kernel/a.ko\n"),
        ("modules/kernel/a.ko", "MODULE"),
    ];
    add_part(home, "kernel", version, created, &files);
}

pub(super) fn add_part(
    home: &HomePaths,
    kind: &str,
    version: &str,
    created: u64,
    files: &[(&str, &str)],
) {
    let dir = home.cache().join(format!("{kind}-{version}"));
    for (path, text) in files {
        let file = dir.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    let recipe = if kind == "kernel" { 2 } else { 1 };
    let description = serde_json::json!({
        "kind": kind, "recipe": recipe, "arch": Arch::HOST, "version": version,
        "release": "6.1.0-test", "created_unix": created,
    });
    std::fs::write(dir.join("part.json"), description.to_string()).unwrap();
}

/// The smallest file that passes for a static program; `mark` tells one from another.
fn static_program(folder: &Path, mark: u8) -> PathBuf {
    let mut bytes = vec![0; 65];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[18] = if cfg!(target_arch = "aarch64") {
        183
    } else {
        62
    };
    bytes[64] = mark;
    let path = folder.join(format!("guestd-{mark}"));
    std::fs::write(&path, bytes).unwrap();
    path
}

pub(super) fn catalog(home: &HomePaths, guestd: u8) -> Catalog {
    let program = static_program(home.root(), guestd);
    Catalog::new(home).with_guestd(guestd_bin::from_file(program).unwrap())
}

pub(super) fn name(text: &str) -> ImageName {
    ImageName::new(text).unwrap()
}

pub(super) fn quiet(_: Progress) {}

pub(super) fn ensure(catalog: &Catalog, image: &str) -> Result<Image, ImageError> {
    catalog.ensure(&name(image), &quiet, &CancellationToken::new())
}

pub(super) fn build_folders(home: &HomePaths) -> Vec<PathBuf> {
    std::fs::read_dir(home.cache())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir() && path.to_string_lossy().contains("/build-"))
        .collect()
}

#[test]
fn lists_what_can_be_built_and_what_is() {
    let fixture = Fixture::new();
    let catalog = fixture.catalog(1);
    let listed = catalog.ls().unwrap();
    let names: Vec<(&str, bool)> = listed
        .iter()
        .map(|info| (info.name.as_str(), info.built))
        .collect();
    assert_eq!(names, [("linux", false), ("tiny", false)]);
    assert!(matches!(
        catalog.get(&name("tiny")),
        Err(ImageError::NotBuilt { .. })
    ));
    let error = catalog.get(&name("mars")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no image mars; images are: linux, tiny"
    );

    let image = ensure(&catalog, "tiny").unwrap();
    assert_eq!(catalog.get(&name("tiny")).unwrap(), image);
    assert_eq!((image.root.as_deref(), image.root_bytes), (None, 0));
    let tiny = catalog.ls().unwrap().pop().unwrap();
    assert!(tiny.built && tiny.disk_bytes > 0 && tiny.created_unix.is_some());
    assert_eq!(tiny.kernel_version.as_deref(), Some("6.1-1"));
    assert_eq!(tiny.digest, Some(image.digest));
}

#[test]
fn the_initramfs_has_all_that_guestd_looks_for() {
    let fixture = Fixture::new();
    let image = ensure(&fixture.catalog(1), "tiny").unwrap();
    let content = std::fs::read(image.initramfs).unwrap();
    let has = |text: &str| {
        content
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    assert!(
        has("/lib/modules/6.1.0-test/kernel/a.ko\n"),
        "load order with absolute paths"
    );
    assert!(has("MODULE") && has("BUSYBOX") && has("bin/sh\0"));
    assert!(!has("bin/init\0"), "busybox's init stays out");
}

#[test]
fn a_current_image_is_not_built_again() {
    let fixture = Fixture::new();
    let catalog = fixture.catalog(1);
    let image = ensure(&catalog, "tiny").unwrap();
    let never = |step: Progress| panic!("{step:?}");
    let again = catalog
        .ensure(&name("tiny"), &never, &CancellationToken::new())
        .unwrap();
    assert_eq!(again, image);
}

#[test]
fn a_new_guestd_gives_a_new_initramfs_alone() {
    let fixture = Fixture::new();
    let first = ensure(&fixture.catalog(1), "tiny").unwrap();
    let second = ensure(&fixture.catalog(2), "tiny").unwrap();
    assert_eq!(first.kernel, second.kernel);
    assert_ne!(first.initramfs, second.initramfs);
    assert!(first.initramfs.exists(), "a Space may be starting from it");
    let third = ensure(&fixture.catalog(3), "tiny").unwrap();
    assert!(!first.initramfs.exists() && second.initramfs.exists() && third.initramfs.exists());
}

#[test]
fn a_newer_kernel_in_the_cache_is_taken() {
    let fixture = Fixture::new();
    let catalog = fixture.catalog(1);
    ensure(&catalog, "tiny").unwrap();
    add_kernel(&fixture.home, "6.1-2", 2);
    let image = ensure(&catalog, "tiny").unwrap();
    assert_eq!(image.kernel_version, "6.1-2");
    assert_eq!(std::fs::read_to_string(image.kernel).unwrap(), "6.1-2");
}

#[test]
fn an_image_outlives_the_cache() {
    let fixture = Fixture::new();
    let catalog = fixture.catalog(1);
    let image = ensure(&catalog, "tiny").unwrap();
    std::fs::remove_dir_all(fixture.home.cache()).unwrap();
    assert_eq!(ensure(&catalog, "tiny").unwrap(), image);
}

#[test]
fn a_damaged_image_is_told_and_mended() {
    let fixture = Fixture::new();
    let catalog = fixture.catalog(1);
    let image = ensure(&catalog, "tiny").unwrap();
    std::fs::write(&image.initramfs, "cut").unwrap();
    let error = catalog.get(&name("tiny")).unwrap_err();
    assert!(
        matches!(error, ImageError::Damaged { found: 3, .. }),
        "{error}"
    );
    assert!(!catalog.ls().unwrap().pop().unwrap().built);
    assert_eq!(ensure(&catalog, "tiny").unwrap(), image);
}

/// Puts a `linux` image with this root in place, as a build of an earlier guestd left it.
fn add_linux(home: &HomePaths, root: &str) -> PathBuf {
    let dir = home.image(&name("linux"));
    std::fs::create_dir_all(&dir).unwrap();
    let piece = |file: &str, content: &str| {
        std::fs::write(dir.join(file), content).unwrap();
        Piece {
            file: file.to_owned(),
            bytes: content.len() as u64,
            sha256: manifest::sha256_of(content.as_bytes()),
        }
    };
    let manifest = Manifest {
        format: FORMAT,
        arch: Arch::HOST,
        created_unix: 1,
        kernel: piece("kernel-a", "K"),
        kernel_version: "6.1-1".to_owned(),
        kernel_recipe: 2,
        initramfs: piece("initramfs-a", "I"),
        initramfs_recipe: 1,
        guestd_sha256: "0".repeat(64),
        root: Some(RootPiece {
            piece: piece(root, "ROOT"),
            recipe: crate::rootfs::RECIPE,
            suite: "bookworm".to_owned(),
        }),
    };
    manifest.publish(&dir).unwrap();
    dir.join(root)
}

#[test]
fn a_new_guestd_keeps_the_root_file_system() {
    let fixture = Fixture::new();
    let root = add_linux(&fixture.home, "root-a.ext4");
    let phases = Mutex::new(Vec::new());
    let note = |step: Progress| phases.lock().unwrap().push(step.phase);
    let image = fixture
        .catalog(1)
        .ensure(&name("linux"), &note, &CancellationToken::new())
        .unwrap();
    assert_eq!((image.root, image.root_bytes), (Some(root), 4));
    assert_eq!(
        *phases.lock().unwrap(),
        [Phase::WritingInitramfs, Phase::Publishing]
    );
}

#[test]
fn old_roots_stay_until_nobody_uses_them() {
    let fixture = Fixture::new();
    let old = add_linux(&fixture.home, "root-a.ext4");
    let new = add_linux(&fixture.home, "root-b.ext4");
    let catalog = fixture.catalog(1);
    ensure(&catalog, "linux").unwrap();
    assert!(old.exists());
    catalog
        .prune_roots(&name("linux"), &|path| path == old)
        .unwrap();
    assert!(old.exists() && new.exists());
    assert!(catalog.prune_roots(&name("linux"), &|_| false).unwrap() > 0);
    assert!(!old.exists() && new.exists());
}

#[test]
fn an_image_in_use_is_not_removed() {
    let fixture = Fixture::new();
    let catalog = fixture.catalog(1);
    let tiny = name("tiny");
    let nobody = |_: &ImageName| Vec::new();
    assert!(matches!(
        catalog.rm(&tiny, &nobody),
        Err(ImageError::NotBuilt { .. })
    ));
    assert!(matches!(
        catalog.rm(&name("mars"), &nobody),
        Err(ImageError::Unknown { .. })
    ));
    ensure(&catalog, "tiny").unwrap();
    let error = catalog
        .rm(&tiny, &|_| vec![SpaceName::new("web").unwrap()])
        .unwrap_err();
    assert_eq!(error.to_string(), "the image tiny is in use by web");
    assert!(catalog.get(&tiny).is_ok());
    let lock = FileLock::try_take(&catalog.lock_path(&tiny))
        .unwrap()
        .unwrap();
    assert!(matches!(
        catalog.rm(&tiny, &nobody),
        Err(ImageError::Busy { .. })
    ));
    drop(lock);
    assert!(catalog.rm(&tiny, &nobody).unwrap() > 0);
    assert!(matches!(
        catalog.get(&tiny),
        Err(ImageError::NotBuilt { .. })
    ));
    assert!(!fixture.home.image(&tiny).exists());
}

#[test]
fn builders_of_one_image_build_once() {
    let fixture = Fixture::new();
    let catalog = fixture.catalog(1);
    let builds = AtomicUsize::new(0);
    let count = |step: Progress| {
        if step.phase == Phase::WritingInitramfs {
            builds.fetch_add(1, Ordering::SeqCst);
        }
    };
    std::thread::scope(|scope| {
        let builders: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| catalog.ensure(&name("tiny"), &count, &CancellationToken::new()))
            })
            .collect();
        let images: Vec<Image> = builders
            .into_iter()
            .map(|builder| builder.join().unwrap().unwrap())
            .collect();
        assert!(images.windows(2).all(|pair| pair[0] == pair[1]));
    });
    assert_eq!(builds.load(Ordering::SeqCst), 1);
}

#[test]
fn cancelling_leaves_nothing_behind() {
    let fixture = Fixture::new();
    let catalog = fixture.catalog(1);
    for phase in [Phase::WritingInitramfs, Phase::Publishing] {
        let cancel = CancellationToken::new();
        let stop = |step: Progress| {
            if step.phase == phase {
                cancel.cancel();
            }
        };
        let error = catalog.ensure(&name("tiny"), &stop, &cancel).unwrap_err();
        assert!(error.is_cancelled(), "{error}");
        assert!(matches!(
            catalog.get(&name("tiny")),
            Err(ImageError::NotBuilt { .. })
        ));
        assert_eq!(build_folders(&fixture.home), [] as [PathBuf; 0]);
    }
    ensure(&catalog, "tiny").unwrap();
}

#[test]
fn waiting_for_another_build_can_be_cancelled() {
    let fixture = Fixture::new();
    let catalog = fixture.catalog(1);
    let _lock = FileLock::try_take(&catalog.lock_path(&name("tiny")))
        .unwrap()
        .unwrap();
    let cancel = CancellationToken::new();
    let stop = |step: Progress| {
        assert_eq!(step.phase, Phase::Waiting);
        cancel.cancel();
    };
    assert!(
        catalog
            .ensure(&name("tiny"), &stop, &cancel)
            .unwrap_err()
            .is_cancelled()
    );
}

/// Runs only as a process of its own, for the test below: builds, and stops for ever at a step.
#[test]
#[ignore = "a helper process of another test"]
fn helper_that_stops_in_the_middle() {
    let (Ok(home), Ok(phase)) = (std::env::var(HELPER_HOME), std::env::var(HELPER_PHASE)) else {
        return;
    };
    let stop = |step: Progress| {
        if step.phase.to_string() == phase {
            println!("\nREADY");
            loop {
                std::thread::park();
            }
        }
    };
    let home = HomePaths::new(home);
    let _ = catalog(&home, 2).ensure(&name("tiny"), &stop, &CancellationToken::new());
}

#[test]
fn a_killed_build_publishes_nothing_and_is_swept() {
    for (phase, had_image) in [
        (Phase::WritingInitramfs, false),
        (Phase::Publishing, false),
        (Phase::Publishing, true),
    ] {
        let fixture = Fixture::new();
        let before = had_image.then(|| ensure(&fixture.catalog(1), "tiny").unwrap());
        let mut helper = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "catalog::tests::helper_that_stops_in_the_middle"])
            .args(["--ignored", "--nocapture"])
            .env(HELPER_HOME, fixture.home.root())
            .env(HELPER_PHASE, phase.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(helper.stdout.take().unwrap()).lines();
        assert!(
            lines.map_while(Result::ok).any(|line| line == "READY"),
            "the helper never stopped"
        );
        let catalog = fixture.catalog(1);
        assert_eq!(
            catalog.sweep().unwrap(),
            [] as [PathBuf; 0],
            "its folder is not stale yet"
        );
        helper.kill().unwrap();
        helper.wait().unwrap();

        assert_eq!(
            build_folders(&fixture.home).len(),
            1,
            "SIGKILL leaves the folder"
        );
        match before {
            None => {
                assert!(matches!(
                    catalog.get(&name("tiny")),
                    Err(ImageError::NotBuilt { .. })
                ));
            }
            Some(before) => assert_eq!(catalog.get(&name("tiny")).unwrap(), before),
        }
        assert_eq!(catalog.sweep().unwrap().len(), 1);
        assert_eq!(build_folders(&fixture.home), [] as [PathBuf; 0]);
        ensure(&fixture.catalog(2), "tiny").unwrap();
    }
}

#[test]
fn a_full_disk_is_told_apart() {
    let full = io::Error::from(io::ErrorKind::StorageFull);
    let home = HomePaths::new("/nonexistent");
    let error = build_failed(&home, &name("tiny"), BuildError::Io(full));
    assert!(error.is_disk_full() && !error.is_network());
    assert!(error.hint().unwrap().contains("make room"));
}
