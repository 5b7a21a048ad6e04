//! Embeds the static guestd binary that `AIRLOCK_GUESTD` names, if it is set.

use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-env-changed=AIRLOCK_GUESTD");
    let out = Path::new(&env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("guestd_bin.rs");
    let text = match env::var_os("AIRLOCK_GUESTD").filter(|path| !path.is_empty()) {
        Some(path) => {
            // A relative path means the folder in which cargo was called, which a build script
            // cannot know; so only absolute ones are taken.
            let path = Path::new(&path);
            assert!(
                path.is_absolute(),
                "AIRLOCK_GUESTD must be an absolute path: {}",
                path.display()
            );
            assert!(
                path.is_file(),
                "AIRLOCK_GUESTD names no file: {}",
                path.display()
            );
            println!("cargo:rerun-if-changed={}", path.display());
            format!("Some(include_bytes!({:?}))", path.display().to_string())
        }
        None => "None".to_owned(),
    };
    fs::write(out, text).expect("the build's own folder is writable");
}
