//! Finding helper programs on this host.

use std::ffi::OsString;
use std::path::PathBuf;

/// Why a program was not found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// No folder of `PATH` has it.
    #[error("{program} is not in PATH")]
    NotInPath {
        /// Its name.
        program: String,
    },
    /// A variable names a file that is not there.
    #[error("{variable} names {path}, which is no file")]
    OverrideMissing {
        /// The variable.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
    },
}

/// Finds `program`: what the environment variable `variable` names if it is set, else the first
/// executable of that name in `PATH` and the administrators' folders.
pub fn find(program: &str, variable: &'static str) -> Result<PathBuf, FindError> {
    let named = std::env::var_os(variable).filter(|value| !value.is_empty());
    if let Some(path) = named.map(PathBuf::from) {
        return if path.is_file() {
            Ok(path)
        } else {
            Err(FindError::OverrideMissing { variable, path })
        };
    }
    in_path(program, std::env::var_os("PATH")).ok_or_else(|| FindError::NotInPath {
        program: program.to_owned(),
    })
}

/// Folders that an ordinary user's `PATH` lacks on some systems, and in which programs are that
/// everyone may run.
const ADMIN_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The first executable file called `program` in the folders of `path`, or where administrators
/// have theirs.
fn in_path(program: &str, path: Option<OsString>) -> Option<PathBuf> {
    std::env::split_paths(&path.unwrap_or_default())
        .filter(|folder| folder.is_absolute())
        .chain(ADMIN_FOLDERS.map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| {
            file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_search_wants_an_executable_in_an_absolute_folder() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tool");
        fs_err::write(&file, "").unwrap();
        fs_err::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let path = Some(folder.path().as_os_str().to_owned());
        assert_eq!(in_path("tool", path.clone()), None);
        fs_err::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(in_path("tool", path), Some(file));
        assert_eq!(in_path("tool", Some("relative".into())), None);
        assert_eq!(in_path("tool", None), None);
    }
}
