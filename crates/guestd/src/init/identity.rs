//! What makes this Space itself: host name, machine id, name servers.

use std::fs;
use std::io;
use std::path::Path;

use airlock_model::BootConfig;

use super::BootError;
use crate::console::say;

/// Sets the host name and writes the files of `/etc` that differ between Spaces.
pub(super) fn write(config: &BootConfig, on_disk: bool) -> Result<(), BootError> {
    let hostname = config.hostname.as_str();
    if let Err(errno) = rustix::system::sethostname(hostname.as_bytes()) {
        say(format_args!("the host name was not set: {errno}"));
    }
    write_files(config)?;
    if !on_disk {
        make_temporary_folder();
    }
    Ok(())
}

/// Writes the files of `/etc` alone, where the host name is set already.
pub(super) fn write_files(config: &BootConfig) -> Result<(), BootError> {
    let hostname = config.hostname.as_str();
    let _ = fs::create_dir("/etc");
    let hosts = format!("127.0.0.1 localhost {hostname}\n::1 localhost ip6-localhost\n");
    put("/etc/hostname", &format!("{hostname}\n"))?;
    put("/etc/hosts", &hosts)?;
    put("/etc/resolv.conf", &resolv_conf(config))?;
    put("/etc/machine-id", &format!("{}\n", config.machine_id))
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

/// Replaces `path`, be it a link: images often point `resolv.conf` at a service that is not here.
fn put(path: &str, content: &str) -> Result<(), BootError> {
    let path = Path::new(path);
    if path.is_symlink() {
        let _ = fs::remove_file(path);
    }
    fs::write(path, content).map_err(|source: io::Error| BootError::Write {
        path: path.to_owned(),
        source,
    })
}

fn make_temporary_folder() {
    // It may be part of the initramfs already.
    let _ = crate::publish::make_dir(Path::new("/tmp"), 0o1777, None);
}
