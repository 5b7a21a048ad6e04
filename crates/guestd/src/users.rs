//! Users and groups, read from `/etc/passwd` and `/etc/group` directly.
//!
//! A static glibc cannot load the name service modules that `getpwnam` wants, so guestd reads the
//! files itself, anew each time: they change while it runs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::small_file;

/// A user as `/etc/passwd` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Login name; the number as text for a user who is not in the file.
    pub name: String,
    /// Numeric id.
    pub uid: u32,
    /// Numeric id of the first group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// Home folder.
    pub home: PathBuf,
    /// Login shell.
    pub shell: String,
}

/// Why a user cannot be found.
#[derive(Debug, thiserror::Error)]
#[error("no user {name:?} in this Space")]
pub struct UnknownUser {
    /// What was asked for.
    pub name: String,
}

/// Whether `id` can name a user or a group. To `setuid` the highest number means "stay who you
/// are", so a command for that user would run as root.
fn is_id(id: u32) -> bool {
    id != u32::MAX
}

/// The user databases at one moment.
#[derive(Debug, Clone, Default)]
pub struct Users {
    passwd: String,
    group: String,
}

impl Users {
    /// Reads the databases; one that is missing, or no file, is empty.
    pub fn load() -> Self {
        Self {
            passwd: small_file::text("/etc/passwd"),
            group: small_file::text("/etc/group"),
        }
    }

    /// Finds a user by name or, for digits alone, by number. A number needs no entry.
    pub fn find(&self, name_or_uid: &str) -> Result<User, UnknownUser> {
        let number = name_or_uid.parse::<u32>().ok().filter(|id| is_id(*id));
        let entry = self
            .entries()
            .find(|user| user.name == name_or_uid)
            .or_else(|| self.entries().find(|user| Some(user.uid) == number));
        match (entry, number) {
            (Some(mut user), _) => {
                user.groups = self.groups_of(&user.name, user.gid);
                Ok(user)
            }
            (None, Some(uid)) => Ok(User {
                name: uid.to_string(),
                uid,
                gid: uid,
                groups: Vec::new(),
                home: PathBuf::from("/"),
                shell: "/bin/sh".to_owned(),
            }),
            (None, None) => Err(UnknownUser {
                name: name_or_uid.to_owned(),
            }),
        }
    }

    /// The user that this process runs as.
    pub fn current(&self) -> User {
        let uid = rustix::process::geteuid().as_raw();
        let mut user = match self.find(&uid.to_string()) {
            Ok(user) => user,
            Err(UnknownUser { .. }) => unreachable!("a number always names a user"),
        };
        user.gid = rustix::process::getegid().as_raw();
        if uid == 0 && user.home == Path::new("/") && Path::new("/root").is_dir() {
            user.home = PathBuf::from("/root");
        }
        user
    }

    /// Names by number, for listings.
    pub fn names(&self) -> Names {
        let group = self.group.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?.to_owned();
            Some((fields.nth(1)?.parse().ok()?, name))
        });
        Names {
            users: self.entries().map(|user| (user.uid, user.name)).collect(),
            groups: group.collect(),
        }
    }

    fn entries(&self) -> impl Iterator<Item = User> {
        self.passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?.to_owned();
            let uid = fields.nth(1)?.parse::<u32>().ok()?;
            let gid = fields.next()?.parse::<u32>().ok()?;
            if !is_id(uid) || !is_id(gid) {
                return None;
            }
            let home = fields.nth(1)?;
            let shell = fields.next().filter(|shell| !shell.is_empty());
            Some(User {
                name,
                uid,
                gid,
                groups: Vec::new(),
                home: PathBuf::from(if home.is_empty() { "/" } else { home }),
                shell: shell.unwrap_or("/bin/sh").to_owned(),
            })
        })
    }

    fn groups_of(&self, name: &str, gid: u32) -> Vec<u32> {
        let mut groups = vec![gid];
        for line in self.group.lines() {
            let mut fields = line.split(':');
            let Some(gid) = fields.nth(2).and_then(|gid| gid.parse().ok()) else {
                continue;
            };
            let members = fields.next().unwrap_or_default();
            if members.split(',').any(|member| member == name) && !groups.contains(&gid) {
                groups.push(gid);
            }
        }
        groups
    }
}

/// Names of users and groups by number.
#[derive(Debug, Clone, Default)]
pub struct Names {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Names {
    /// The user's name, or the number as text.
    pub fn user(&self, uid: u32) -> String {
        self.users.get(&uid).cloned().unwrap_or(uid.to_string())
    }

    /// The group's name, or the number as text.
    pub fn group(&self, gid: u32) -> String {
        self.groups.get(&gid).cloned().unwrap_or(gid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users() -> Users {
        Users {
            passwd: "root:x:0:0:root:/root:/bin/bash\nbroken\nbar:x:2020:2020::/home/bar:\n".into(),
            group: "root:x:0:\nwheel:x:10:foo,bar\nbar:x:2020:\n\n".into(),
        }
    }

    #[test]
    fn names_and_numbers_find_the_same_user() {
        let bar = users().find("bar").unwrap();
        assert_eq!(users().find("2020").unwrap(), bar);
        assert_eq!(bar.groups, [2020, 10]);
        assert_eq!(bar.shell, "/bin/sh");
        assert_eq!(users().find("root").unwrap().home, Path::new("/root"));
    }

    #[test]
    fn a_number_needs_no_entry_but_a_name_does() {
        assert_eq!(users().find("1234").unwrap().gid, 1234);
        assert_eq!(
            users().find("nobody").unwrap_err().to_string(),
            "no user \"nobody\" in this Space"
        );
        assert!(users().find("-1").is_err());
    }

    #[test]
    fn the_number_that_means_no_change_is_nobody() {
        let mut users = users();
        assert!(users.find("4294967295").is_err());
        assert_eq!(users.find("4294967294").unwrap().uid, u32::MAX - 1);
        users.passwd += "sly:x:4294967295:0::/:\nsly2:x:7:4294967295::/:\n";
        assert!(users.find("sly").is_err());
        assert!(users.find("sly2").is_err());
    }

    #[test]
    fn names_fall_back_to_numbers() {
        let names = users().names();
        assert_eq!((names.user(0), names.user(7)), ("root".into(), "7".into()));
        assert_eq!(names.group(10), "wheel");
    }
}
