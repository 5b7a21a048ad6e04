//! One entry of a file system, as the wire has it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use airlock_wire::Fault;
use airlock_wire::cua::v1::{EntryInfo, FileType};

use crate::paths::{escape, escape_path};
use crate::users::{Names, Users};

/// Describes the entry at `path`; a link at its end is followed or not.
pub(super) fn stat(path: &Path, follow: bool) -> Result<EntryInfo, Fault> {
    let metadata = if follow {
        path.metadata()
    } else {
        path.symlink_metadata()
    };
    let metadata = metadata.map_err(|error| Fault::from_io(escape_path(path), &error))?;
    Ok(describe(path, &metadata, &Users::load().names()))
}

/// Describes an entry whose metadata is known.
pub(super) fn describe(path: &Path, metadata: &Metadata, names: &Names) -> EntryInfo {
    let kind = metadata.file_type();
    let kind = if kind.is_file() {
        FileType::File
    } else if kind.is_dir() {
        FileType::Directory
    } else if kind.is_symlink() {
        FileType::Symlink
    } else {
        FileType::Other
    };
    let link = if kind == FileType::Symlink {
        path.read_link().ok()
    } else {
        None
    };
    let name = path.file_name().unwrap_or(path.as_os_str());
    EntryInfo {
        name: escape(name.as_encoded_bytes()),
        path: escape_path(path),
        r#type: kind.into(),
        size: metadata.size(),
        mode: metadata.mode() & 0o7777,
        owner: names.user(metadata.uid()),
        group: names.group(metadata.gid()),
        modified_at: Some(prost_types::Timestamp {
            seconds: metadata.mtime(),
            nanos: metadata.mtime_nsec() as i32,
        }),
        symlink_target: link.map(|target| escape_path(&target)).unwrap_or_default(),
        metadata: std::collections::HashMap::new(),
    }
}
