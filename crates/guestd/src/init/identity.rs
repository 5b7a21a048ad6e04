//! What makes this Space itself: host name, machine id, name servers.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use airlock_model::BootConfig;
use rustix::fs::OFlags;

use crate::console::say;

/// Sets the host name and writes the files of `/etc` that differ between Spaces.
pub(super) fn write(config: &BootConfig, on_disk: bool) {
    let hostname = config.hostname.as_str();
    if let Err(errno) = rustix::system::sethostname(hostname.as_bytes()) {
        say(format_args!("the host name was not set: {errno}"));
    }
    write_files(config);
    if !on_disk {
        make_temporary_folder();
    }
}

/// Writes the files of `/etc` alone, where the host name is set already.
///
/// A Space that made something else of one of them keeps that: it must still start.
pub(super) fn write_files(config: &BootConfig) {
    let hostname = config.hostname.as_str();
    let _ = fs::create_dir("/etc");
    let hosts = format!("127.0.0.1 localhost {hostname}\n::1 localhost ip6-localhost\n");
    put("/etc/hostname", &format!("{hostname}\n"));
    put("/etc/hosts", &hosts);
    put("/etc/resolv.conf", &resolv_conf(config));
    put("/etc/machine-id", &format!("{}\n", config.machine_id));
}

fn resolv_conf(config: &BootConfig) -> String {
    let mut text = String::new();
    for server in config.network.iter().flat_map(|net| &net.dns) {
        text.push_str("nameserver ");
        text.push_str(server);
        text.push('\n');
    }
    text
}

/// Replaces `path`, be it a link or a pipe: images often point `resolv.conf` at a service that is
/// not here, and writing to a pipe would wait for its reader.
fn put(path: &str, content: &str) {
    let path = Path::new(path);
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        let _ = fs::remove_file(path);
    }
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags((OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed())
        .open(path)
        .and_then(|mut file| file.write_all(content.as_bytes()));
    if let Err(error) = written {
        say(format_args!("{} was not written: {error}", path.display()));
    }
}

fn make_temporary_folder() {
    // It may be part of the initramfs already.
    let _ = crate::publish::make_dir(Path::new("/tmp"), 0o1777, None);
}
