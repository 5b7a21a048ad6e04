//! From a request to what the kernel needs: program, arguments, environment, user, folder.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use airlock_wire::cua::v1::ProcessConfig;
use airlock_wire::{Fault, FaultKind};

use crate::paths;
use crate::state::{Defaults, find_user};
use crate::sys::spawn::{Ids, SpawnFailure, Step};
use crate::users::User;

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Text is UTF-8 for every command, whatever the image has configured.
const DEFAULT_LANG: &str = "C.UTF-8";
const DEFAULT_TERM: &str = "xterm-256color";

/// A command ready to be started.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) programs: Vec<CString>,
    pub(super) args: Vec<CString>,
    pub(super) env: Vec<CString>,
    pub(super) cwd: CString,
    pub(super) ids: Option<Ids>,
    command: String,
    user: String,
}

/// What a failed start means to the caller.
#[derive(Debug)]
pub(super) enum StartFailure {
    /// The call fails.
    Fault(Fault),
    /// The command ends at once, as a shell would have it: 126 cannot run, 127 not found.
    End { exit_code: i32, error: String },
}

impl Launch {
    /// Checks `config` and completes it by the defaults. `term` is set for a terminal.
    pub(super) fn new(
        config: &ProcessConfig,
        defaults: &Defaults,
        term: Option<&str>,
    ) -> Result<Self, Fault> {
        if config.command.is_empty() {
            return Err(Fault::new(
                FaultKind::InvalidArgument,
                "the command is empty",
            ));
        }
        let name = if config.user.is_empty() {
            &defaults.user
        } else {
            &config.user
        };
        let user = find_user(name)?;
        let env = environment(config, defaults, &user, term)?;
        let cwd = working_folder(config, defaults, &user)?;
        let words = std::iter::once(&config.command).chain(&config.args);
        let args = words.map(|word| c_string(word.as_bytes(), "an argument"));
        let search = env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
        let own = rustix::process::geteuid().as_raw();
        let ids = (user.uid != own).then(|| Ids {
            uid: user.uid,
            gid: user.gid,
            groups: user.groups.clone(),
        });
        Ok(Self {
            programs: candidates(&config.command, search)?,
            args: args.collect::<Result<_, _>>()?,
            env: env
                .iter()
                .map(|(key, value)| c_string(format!("{key}={value}").as_bytes(), key))
                .collect::<Result<_, _>>()?,
            cwd: c_string(cwd.as_os_str().as_bytes(), "the working folder")?,
            ids,
            command: config.command.clone(),
            user: user.name,
        })
    }

    /// What a failed start means to the caller.
    pub(super) fn explain(&self, failure: SpawnFailure) -> StartFailure {
        let error = std::io::Error::from(failure.errno);
        let cwd = Path::new(OsStr::from_bytes(self.cwd.as_bytes()));
        match failure.step {
            Step::Folder => {
                let path = format!("working folder {}", cwd.display());
                StartFailure::Fault(Fault::from_io(path, &error))
            }
            Step::User => StartFailure::Fault(Fault::new(
                FaultKind::PermissionDenied,
                format!("cannot become user {:?}: {error}", self.user),
            )),
            Step::Execute if failure.errno == rustix::io::Errno::TOOBIG => {
                let bytes: usize = self
                    .args
                    .iter()
                    .chain(&self.env)
                    .map(|text| text.as_bytes().len())
                    .sum();
                StartFailure::Fault(Fault::new(
                    FaultKind::LimitExceeded,
                    format!(
                        "{}: {bytes} bytes of arguments and environment are more than the kernel \
                         takes",
                        self.command
                    ),
                ))
            }
            Step::Execute if failure.errno == rustix::io::Errno::NOENT => StartFailure::End {
                exit_code: 127,
                error: format!("{}: command not found", self.command),
            },
            Step::Execute => StartFailure::End {
                exit_code: 126,
                error: format!("{}: {error}", self.command),
            },
            Step::Clone | Step::Stdio | Step::Terminal => StartFailure::Fault(Fault::new(
                FaultKind::Internal,
                format!("{} could not be started: {error}", self.command),
            )),
        }
    }
}

/// Refuses what cannot be in an environment.
pub(crate) fn check_env(key: &str, value: &str) -> Result<(), Fault> {
    if key.is_empty() || key.contains(['=', '\0']) || value.contains('\0') {
        let message = format!("{key:?} cannot be set in an environment");
        return Err(Fault::new(FaultKind::InvalidArgument, message));
    }
    Ok(())
}

/// The defaults, then what `Init` set, then what the call sets. guestd's own never leaks in.
fn environment(
    config: &ProcessConfig,
    defaults: &Defaults,
    user: &User,
    term: Option<&str>,
) -> Result<BTreeMap<String, String>, Fault> {
    let mut env = BTreeMap::from([
        ("PATH".to_owned(), DEFAULT_PATH.to_owned()),
        ("LANG".to_owned(), DEFAULT_LANG.to_owned()),
        ("HOME".to_owned(), user.home.to_string_lossy().into_owned()),
        ("USER".to_owned(), user.name.clone()),
        ("LOGNAME".to_owned(), user.name.clone()),
        ("SHELL".to_owned(), user.shell.clone()),
    ]);
    if let Some(term) = term {
        let term = if term.is_empty() { DEFAULT_TERM } else { term };
        env.insert("TERM".to_owned(), term.to_owned());
    }
    for (key, value) in defaults.env.iter().chain(&config.env) {
        check_env(key, value)?;
        env.insert(key.clone(), value.clone());
    }
    Ok(env)
}

/// The call's folder, else the default one, else the user's home, else the root.
fn working_folder(
    config: &ProcessConfig,
    defaults: &Defaults,
    user: &User,
) -> Result<PathBuf, Fault> {
    for wire in [&config.cwd, &defaults.workdir] {
        if !wire.is_empty() {
            return Ok(paths::resolve(wire.as_bytes(), &user.home)?);
        }
    }
    if user.home.is_dir() {
        Ok(user.home.clone())
    } else {
        Ok(PathBuf::from("/"))
    }
}

/// The files that `command` may mean: itself when it has a slash, else one in each folder of
/// the search path.
fn candidates(command: &str, search: &str) -> Result<Vec<CString>, Fault> {
    if command.contains('/') {
        return Ok(vec![c_string(command.as_bytes(), "the command")?]);
    }
    search
        .split(':')
        .map(|folder| {
            let folder = if folder.is_empty() { "." } else { folder };
            c_string(format!("{folder}/{command}").as_bytes(), "the command")
        })
        .collect()
}

fn c_string(bytes: &[u8], what: &str) -> Result<CString, Fault> {
    CString::new(bytes).map_err(|_| {
        let message = format!("{what} contains a NUL byte");
        Fault::new(FaultKind::InvalidArgument, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_path_gives_candidates_in_order() {
        let found = candidates("ls", "/a::/b").unwrap();
        assert_eq!(
            found,
            [c"/a/ls".into(), c"./ls".into(), CString::from(c"/b/ls")]
        );
        assert_eq!(candidates("./x", "/a").unwrap(), [CString::from(c"./x")]);
        assert!(candidates("a\0b", "/a").is_err());
    }

    #[test]
    fn the_call_overrides_init_and_init_the_defaults() {
        let mut defaults = Defaults::default();
        defaults
            .env
            .extend([("A".into(), "init".into()), ("LANG".into(), "C".into())]);
        let config = ProcessConfig {
            command: "x".into(),
            env: [("A".to_owned(), "call".to_owned())].into(),
            ..ProcessConfig::default()
        };
        let user = find_user("").unwrap();
        let env = environment(&config, &defaults, &user, Some("")).unwrap();
        assert_eq!((env["A"].as_str(), env["LANG"].as_str()), ("call", "C"));
        assert_eq!(
            (env["TERM"].as_str(), env["USER"].as_str()),
            (DEFAULT_TERM, &*user.name)
        );
        assert!(!env.contains_key("CARGO"));
        assert!(check_env("A=B", "").is_err() && check_env("A", "\0").is_err());
    }
}
