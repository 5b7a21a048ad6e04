//! What the kernel finds in memory when it starts: guestd, kernel modules and, in `tiny`, busybox.
//!
//! ```text
//! /init                                   guestd
//! /lib/modules/<release>/…/*.ko           modules, unpacked
//! /lib/modules/load-order                 their absolute paths, one a line, in load order
//! /dev/console                            so that the first messages go somewhere
//! /bin/busybox, /bin/<applet> -> busybox  `tiny` alone; /sbin and /usr/{bin,sbin} lead to /bin
//! ```
//! The archive is not compressed: unpacking costs an emulated processor more than reading.

use std::io::{self, Write};

use crate::busybox::Busybox;
use crate::cpio::Archive;
use crate::error::BuildError;
use crate::kernel::Kernel;

/// Raised when the same parts give another initramfs than before.
pub(crate) const RECIPE: u32 = 1;

/// Where guestd finds the list of modules.
pub const LOAD_ORDER: &str = "/lib/modules/load-order";

/// Where `tiny` has its busybox.
pub const BUSYBOX: &str = "/bin/busybox";

/// The folders of every initramfs.
pub(crate) const FOLDERS: [(&str, u32); 12] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("mnt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("sys", 0o555),
    ("sysroot", 0o755),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("var", 0o755),
];

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n\
                      nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n";
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost\n";
const PROFILE: &str = "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n";
const SHELLS: &str = "/bin/sh\n";
const OS_RELEASE: &str = "NAME=\"Airlock tiny\"\nID=airlock-tiny\nPRETTY_NAME=\"Airlock tiny\"\n";

/// Writes an initramfs; with busybox it is a whole small system, without only a way to the root.
pub(crate) fn write<W: Write>(
    out: W,
    guestd: &[u8],
    kernel: &Kernel,
    busybox: Option<&Busybox>,
) -> Result<W, BuildError> {
    let mut archive = Archive::new(out);
    for (path, mode) in FOLDERS {
        archive.folder(path, mode)?;
    }
    archive.char_device("dev/console", 0o600, (5, 1))?;
    archive.char_device("dev/null", 0o666, (1, 3))?;
    archive.file("init", 0o755, guestd)?;
    add_modules(&mut archive, kernel)?;
    if let Some(busybox) = busybox {
        add_small_system(&mut archive, &busybox.program()?, &busybox.applets()?)?;
    }
    Ok(archive.finish()?)
}

fn add_modules<W: Write>(archive: &mut Archive<W>, kernel: &Kernel) -> Result<(), BuildError> {
    let folder = format!("lib/modules/{}", kernel.release());
    let mut order = String::new();
    for module in kernel.modules()? {
        let path = format!("{folder}/{}", module.path);
        archive.file(&path, 0o644, &module.content)?;
        order.push('/');
        order.push_str(&path);
        order.push('\n');
    }
    archive.file(LOAD_ORDER.trim_start_matches('/'), 0o644, order.as_bytes())?;
    Ok(())
}

fn add_small_system<W: Write>(
    archive: &mut Archive<W>,
    busybox: &[u8],
    applets: &[String],
) -> io::Result<()> {
    for item in small_system(busybox, applets) {
        match item {
            Item::Folder { path, mode } => archive.folder(path, mode)?,
            Item::File {
                path,
                mode,
                content,
            } => archive.file(path, mode, content)?,
            Item::Link { path, target } => archive.link(&path, target)?,
        }
    }
    Ok(())
}

/// One file of the small system; all belong to root.
pub(crate) enum Item<'a> {
    /// A folder.
    Folder { path: &'static str, mode: u32 },
    /// A regular file.
    File {
        path: &'static str,
        mode: u32,
        content: &'a [u8],
    },
    /// A symbolic link.
    Link { path: String, target: &'static str },
}

/// What `tiny` consists of besides [`FOLDERS`], guestd and kernel modules; the same for a Space
/// that boots it and for one that is a container.
pub(crate) fn small_system<'a>(busybox: &'a [u8], applets: &[String]) -> Vec<Item<'a>> {
    let text = |path, text: &'static str| Item::File {
        path,
        mode: 0o644,
        content: text.as_bytes(),
    };
    let folder = |path, mode| Item::Folder { path, mode };
    let link = |path: String, target| Item::Link { path, target };
    let mut items = vec![
        text("etc/passwd", PASSWD),
        text("etc/group", GROUP),
        text("etc/hosts", HOSTS),
        text("etc/profile", PROFILE),
        text("etc/shells", SHELLS),
        text("etc/os-release", OS_RELEASE),
        folder("var/tmp", 0o1777),
        link("var/run".into(), "../run"),
        folder("usr/local/bin", 0o755),
        Item::File {
            path: BUSYBOX.trim_start_matches('/'),
            mode: 0o755,
            content: busybox,
        },
    ];
    // guestd is the first process; busybox's own would only get in its way.
    let is_wanted =
        |applet: &str| !["busybox", "init", "linuxrc"].contains(&applet) && !applet.contains('/');
    let wanted = applets.iter().filter(|applet| is_wanted(applet));
    items.extend(wanted.map(|applet| link(format!("bin/{applet}"), "busybox")));
    items.extend([
        link("sbin".into(), "bin"),
        link("usr/bin".into(), "../bin"),
        link("usr/sbin".into(), "../bin"),
    ]);
    items
}
