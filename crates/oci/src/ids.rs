//! Which ids of the host stand for those of a container Space.
//!
//! As root, a range that no user of the host has. As an ordinary user, the subordinate ids that
//! `/etc/subuid` and `/etc/subgid` give (subuid(5)), with the user's own id left out, so that
//! root of a Space is not even the person who made it. Without those, a single id.

use std::fs;
use std::io;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::IdMapping;

/// Ids that a Linux system expects to have: 0 to 65,535, `nobody` among them.
pub const ID_COUNT: u32 = 65_536;
/// Where root looks for a range first: above what distributions give to users.
const FIRST_BASE: u32 = 1 << 30;
/// Programs that write the maps of an ordinary user.
const MAPPERS: [&str; 2] = ["newuidmap", "newgidmap"];

/// A range of subordinate ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// The first.
    pub start: u32,
    /// How many.
    pub count: u32,
}

/// The ids of a Space, by who makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Ids {
    /// Made by root: the Space's ids begin at `base`.
    Root {
        /// The host's id of the Space's root.
        base: u32,
    },
    /// Made by a user with subordinate ids.
    Subordinate {
        /// Of `/etc/subuid`.
        uids: Range,
        /// Of `/etc/subgid`.
        gids: Range,
    },
    /// Made by a user without: everyone in the Space is that user.
    Single,
}

impl Ids {
    /// The ids for Spaces of the calling user.
    pub fn choose() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let (uids, gids) = (read("/etc/subuid"), read("/etc/subgid"));
        let uid = rustix::process::geteuid();
        if uid.is_root() {
            return Self::Root {
                base: free_base(&uids, &gids),
            };
        }
        let passwd = read("/etc/passwd");
        let name = name_of(&passwd, uid.as_raw());
        let own = |table: &str| first_range(table, name, uid.as_raw());
        let can_map = MAPPERS
            .iter()
            .all(|program| airlock_process::find(program, "AIRLOCK_NEWIDMAP").is_ok());
        match (own(&uids), own(&gids)) {
            (Some(uids), Some(gids)) if can_map => Self::Subordinate { uids, gids },
            (_, _) => Self::Single,
        }
    }

    /// Whether the minder needs a user namespace of its own to work in.
    pub const fn needs_user_namespace(&self) -> bool {
        match self {
            Self::Root { .. } => false,
            Self::Subordinate { .. } | Self::Single => true,
        }
    }

    /// The id, as the minder sees it, that owns files of the Space's root; `None` where all files
    /// are the user's own and none can be given away.
    pub const fn file_base(&self) -> Option<u32> {
        match self {
            Self::Root { base } => Some(*base),
            Self::Subordinate { .. } => Some(1),
            Self::Single => None,
        }
    }

    /// The Space's ids, as the minder sees them; users and groups alike.
    pub fn inner(&self) -> Vec<IdMapping> {
        let (outside, count) = match self {
            Self::Root { base } => (*base, ID_COUNT),
            Self::Subordinate { uids, gids } => (1, uids.count.min(gids.count).min(ID_COUNT)),
            Self::Single => (0, 1),
        };
        vec![IdMapping {
            inside: 0,
            outside,
            count,
        }]
    }

    /// What a person should know of it.
    pub fn describe(&self) -> String {
        match self {
            Self::Root { base } => format!(
                "the Space's ids are {base} to {} on the host, none of them a user",
                base + (ID_COUNT - 1)
            ),
            Self::Subordinate { uids, .. } => {
                format!(
                    "the Space's root is the subordinate id {} on the host",
                    uids.start
                )
            }
            Self::Single => {
                "everyone in the Space is one user of the host, so files have no other \
                             owners; ranges in /etc/subuid and /etc/subgid and the package uidmap \
                             give it more"
                    .to_owned()
            }
        }
    }
}

/// Why the ids of a user namespace could not be set.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// A program that writes maps failed.
    #[error("{program} failed: {output}")]
    Mapper {
        /// Its name.
        program: &'static str,
        /// What it said.
        output: String,
    },
    /// A file of the process could not be written.
    #[error("cannot write {file} of the new user namespace: {source}")]
    Write {
        /// The file's name.
        file: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl MapError {
    /// What a person can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Mapper { .. } => {
                "the ranges in /etc/subuid and /etc/subgid must be yours alone, and newuidmap and \
                 newgidmap (package uidmap) setuid root"
            }
            Self::Write { .. } => "see sysctl user.max_user_namespaces; --kind vm needs none",
        }
    }
}

/// Sets the ids of the user namespace of process `pid`, from outside it.
pub fn map(pid: u32, ids: &Ids) -> Result<(), MapError> {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    match ids {
        Ids::Root { .. } => Ok(()),
        Ids::Subordinate { uids, gids } => {
            run_mapper("newuidmap", pid, uid, *uids)?;
            run_mapper("newgidmap", pid, gid, *gids)
        }
        Ids::Single => {
            let write = |file: &'static str, text: String| {
                fs::write(format!("/proc/{pid}/{file}"), text)
                    .map_err(|source| MapError::Write { file, source })
            };
            // Without this a process could leave groups that deny it something.
            write("setgroups", "deny".to_owned())?;
            write("uid_map", format!("0 {uid} 1"))?;
            write("gid_map", format!("0 {gid} 1"))
        }
    }
}

/// Maps 0 to `own` and everything from 1 on to `range`.
fn run_mapper(program: &'static str, pid: u32, own: u32, range: Range) -> Result<(), MapError> {
    let count = range.count.min(ID_COUNT);
    let words = [pid, 0, own, 1, 1, range.start, count].map(|word| word.to_string());
    let output = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| MapError::Mapper {
            program,
            output: error.to_string(),
        })?;
    if output.status.success() {
        return Ok(());
    }
    Err(MapError::Mapper {
        program,
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// The first range of whole [`ID_COUNT`]s above which and in which nobody's ids lie.
fn free_base(uids: &str, gids: &str) -> u32 {
    let taken: Vec<Range> = [uids, gids]
        .into_iter()
        .flat_map(ranges)
        .map(|(_, range)| range)
        .collect();
    let is_free = |base: u32| {
        taken.iter().all(|range| {
            u64::from(range.start) + u64::from(range.count) <= u64::from(base)
                || u64::from(range.start) >= u64::from(base) + u64::from(ID_COUNT)
        })
    };
    (FIRST_BASE..i32::MAX as u32 - ID_COUNT)
        .step_by(ID_COUNT as usize)
        .find(|base| is_free(*base))
        .unwrap_or(FIRST_BASE)
}

/// The lines `owner:start:count`.
fn ranges(table: &str) -> impl Iterator<Item = (&str, Range)> {
    table.lines().filter_map(|line| {
        let mut fields = line.trim().split(':');
        let owner = fields.next()?;
        let start = fields.next()?.parse().ok()?;
        let count = fields.next()?.parse().ok()?;
        Some((owner, Range { start, count }))
    })
}

fn first_range(table: &str, name: Option<&str>, uid: u32) -> Option<Range> {
    let number = uid.to_string();
    ranges(table)
        .filter(|(_, range)| range.count > 0)
        .find(|(owner, _)| Some(*owner) == name || *owner == number)
        .map(|(_, range)| range)
}

fn name_of(passwd: &str, uid: u32) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_takes_ids_that_nobody_has() {
        assert_eq!(free_base("", ""), FIRST_BASE);
        let taken = format!("u:100000:65536\nv:{}:65536\n", FIRST_BASE + 5);
        assert_eq!(free_base(&taken, ""), FIRST_BASE + 2 * ID_COUNT);
        assert_eq!(
            free_base("junk\nx:y:z\n", &taken),
            FIRST_BASE + 2 * ID_COUNT
        );
    }

    #[test]
    fn a_user_is_found_by_name_or_number() {
        let passwd = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(name_of(passwd, 1000), Some("ann"));
        assert_eq!(name_of(passwd, 1001), None);
        let table = "bob:1:2\nann:100000:65536\n1001:7:8\n";
        let range = |start, count| Some(Range { start, count });
        assert_eq!(
            first_range(table, Some("ann"), 1000),
            range(100_000, 65_536)
        );
        assert_eq!(first_range(table, None, 1001), range(7, 8));
        assert_eq!(first_range(table, None, 1002), None);
    }

    #[test]
    fn the_space_never_has_the_hosts_root() {
        for ids in [
            Ids::Root { base: FIRST_BASE },
            Ids::Subordinate {
                uids: Range {
                    start: 100_000,
                    count: 65_536,
                },
                gids: Range {
                    start: 100_000,
                    count: 65_536,
                },
            },
        ] {
            assert!(ids.inner().iter().all(|run| run.outside > 0));
        }
    }
}
