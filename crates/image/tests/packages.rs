//! Builds from real packages. They need the package servers and root, so they run on request:
//! `cargo test -p airlock-image --test packages -- --ignored`.

use std::path::Path;

use airlock_image::{Catalog, ImageError, Phase, Progress, guestd_bin};
use airlock_model::{HomePaths, ImageName};
use tokio_util::sync::CancellationToken;

fn catalog(home: &HomePaths) -> Catalog {
    // Any static program serves: nothing is booted here.
    let guestd = guestd_bin::from_file("/bin/busybox".into()).expect("busybox-static is installed");
    Catalog::new(home).with_guestd(guestd)
}

/// Processes and mounts that still have to do with the folder.
fn traces_of(folder: &Path) -> Vec<String> {
    let folder = folder.to_string_lossy();
    std::fs::read_dir("/proc")
        .expect("/proc is mounted")
        .filter_map(Result::ok)
        .flat_map(|process| ["cmdline", "mountinfo"].map(|file| process.path().join(file)))
        .filter_map(|file| String::from_utf8(std::fs::read(file).ok()?).ok())
        .filter(|text| text.contains(&*folder))
        .collect()
}

#[test]
#[ignore = "needs package servers and root"]
fn a_build_cancelled_while_packages_unpack_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let home = HomePaths::new(folder.path().join("home"));
    let linux = ImageName::new("linux").expect("a name");
    let cancel = CancellationToken::new();
    let stop = |step: Progress| {
        if step.phase == Phase::Configuring {
            cancel.cancel();
        }
    };
    let error = catalog(&home)
        .ensure(&linux, &stop, &cancel)
        .expect_err("cancelled");
    assert!(matches!(error, ImageError::Cancelled { .. }), "{error}");
    assert!(matches!(
        catalog(&home).get(&linux),
        Err(ImageError::NotBuilt { .. })
    ));
    let left: Vec<_> = std::fs::read_dir(home.cache())
        .expect("the cache is there")
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("build-"))
        .filter(|entry| entry.path().is_dir())
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(traces_of(&home.cache()), [] as [String; 0]);
}
