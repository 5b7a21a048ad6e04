//! Folders, listed in pages.
//!
//! A page starts behind the path that its token names, in byte order of whole paths, so a listing
//! needs no state here and no entry that stays is missed or seen twice while others come and go.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use airlock_wire::cua::v1::{ListDirRequest, ListDirResponse};
use airlock_wire::{Fault, FaultKind};

use super::entry::describe;
use crate::paths::escape_path;
use crate::users::Users;

const DEFAULT_PAGE: usize = 1000;
const MAX_PAGE: usize = 10_000;

/// One page of the entries beneath `root`.
pub(super) fn page(root: &Path, request: &ListDirRequest) -> Result<ListDirResponse, Fault> {
    let size = match request.page_size as usize {
        0 => DEFAULT_PAGE,
        size => size.min(MAX_PAGE),
    };
    let after = match request.page_token.as_str() {
        "" => None,
        token => Some(decode_token(token)?),
    };
    let mut smallest = Smallest {
        after,
        most: size + 1,
        paths: BinaryHeap::new(),
    };
    let walk = Walk {
        depth: request.depth.max(1),
        hidden: request.include_hidden,
    };
    walk.beneath(root, Path::new(""), 1, &mut smallest)?;
    let mut found: Vec<PathBuf> = smallest
        .paths
        .into_sorted_vec()
        .into_iter()
        .map(|bytes| bytes.0)
        .collect();
    let has_more = found.len() > size;
    found.truncate(size);
    let next_page_token = match found.last() {
        Some(last) if has_more => hex::encode(last.as_os_str().as_bytes()),
        Some(_) | None => String::new(),
    };
    let names = Users::load().names();
    let entries = found.iter().filter_map(|relative| {
        let path = root.join(relative);
        // Gone since it was read: then it is no entry any more.
        let metadata = path.symlink_metadata().ok()?;
        Some(describe(&path, &metadata, &names))
    });
    Ok(ListDirResponse {
        entries: entries.collect(),
        next_page_token,
    })
}

/// A path in the order of its bytes.
#[derive(PartialEq, Eq)]
struct ByBytes(PathBuf);

impl Ord for ByBytes {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0
            .as_os_str()
            .as_bytes()
            .cmp(other.0.as_os_str().as_bytes())
    }
}

impl PartialOrd for ByBytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The smallest paths behind a point, and no more of them than a page needs: memory stays flat
/// however large the folder is.
struct Smallest {
    after: Option<PathBuf>,
    most: usize,
    paths: BinaryHeap<ByBytes>,
}

impl Smallest {
    fn offer(&mut self, path: PathBuf) {
        let path = ByBytes(path);
        let bytes = path.0.as_os_str().as_bytes();
        if self
            .after
            .as_ref()
            .is_some_and(|after| bytes <= after.as_os_str().as_bytes())
        {
            return;
        }
        if self.paths.len() < self.most {
            self.paths.push(path);
        } else if self.paths.peek().is_some_and(|largest| path < *largest) {
            self.paths.pop();
            self.paths.push(path);
        }
    }
}

struct Walk {
    depth: u32,
    hidden: bool,
}

impl Walk {
    /// Offers everything in `root/relative`. A folder below the first that vanishes or may not
    /// be read is listed itself, without content.
    fn beneath(
        &self,
        root: &Path,
        relative: &Path,
        level: u32,
        smallest: &mut Smallest,
    ) -> Result<(), Fault> {
        let folder = root.join(relative);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if level == 1 => {
                return Err(Fault::from_io(escape_path(&folder), &error));
            }
            Err(_) => return Ok(()),
        };
        for entry in entries {
            let entry = entry.map_err(|error| Fault::from_io(escape_path(&folder), &error))?;
            let name = entry.file_name();
            if !self.hidden && name.as_bytes().starts_with(b".") {
                continue;
            }
            let path = relative.join(&name);
            let descend = level < self.depth && entry.file_type().is_ok_and(|kind| kind.is_dir());
            if descend {
                self.beneath(root, &path, level + 1, smallest)?;
            }
            smallest.offer(path);
        }
        Ok(())
    }
}

fn decode_token(token: &str) -> Result<PathBuf, Fault> {
    let bytes = hex::decode(token).map_err(|_| {
        let message = format!("{token:?} is no page token of this guestd");
        Fault::new(FaultKind::InvalidArgument, message)
    })?;
    Ok(PathBuf::from(OsStr::from_bytes(&bytes)))
}
