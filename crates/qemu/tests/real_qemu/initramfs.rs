//! A small initramfs: busybox, the virtio modules, and a shell script that runs what it is told.

use std::io::Write;
use std::path::{Path, PathBuf};

const BUSYBOX: &str = "/bin/busybox";

/// In load order.
const MODULES: [&str; 10] = [
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "drivers/block/virtio_blk.ko",
    "net/core/failover.ko",
    "drivers/net/net_failover.ko",
    "drivers/net/virtio_net.ko",
    "drivers/char/hw_random/virtio-rng.ko",
];

/// Printed on the console once the guest answers.
pub(crate) const READY: &str = "TEST-GUEST-READY";

/// Serves one command per connection: a line in, its output back.
const SERVE: &str = "#!/bin/busybox sh\nread -r line\neval \"$line\" 2>&1\n";

const INIT: &str = r"#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for m in MODULES; do insmod /lib/$m; done
ip link set lo up
for n in /sys/class/net/eth*; do
  if [ $(cat $n/address) = 52:54:00:00:00:01 ]; then
    ip link set ${n##*/} up
    ip addr add CONTROL dev ${n##*/}
  fi
done
echo READY $(cat /proc/uptime)
while :; do nc -l -p PORT -e /bin/serve; done
";

/// The kernel to boot, or `None` with a printed reason.
pub(crate) fn kernel() -> Option<PathBuf> {
    let Some(kernel) = std::env::var_os("AIRLOCK_TEST_KERNEL").map(PathBuf::from) else {
        eprintln!("skipped: AIRLOCK_TEST_KERNEL names no kernel");
        return None;
    };
    if !Path::new(BUSYBOX).is_file() {
        eprintln!("skipped: {BUSYBOX} is missing (package busybox-static)");
        return None;
    }
    Some(kernel)
}

/// Writes the initramfs for `kernel` into `folder`.
pub(crate) fn write(kernel: &Path, folder: &Path) -> PathBuf {
    let release = kernel
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .strip_prefix("vmlinuz-")
        .unwrap();
    let modules = kernel.parent().unwrap().parent().unwrap();
    let modules = modules.join("lib/modules").join(release).join("kernel");
    let names: Vec<_> = MODULES
        .iter()
        .map(|path| Path::new(path).file_name().unwrap().to_str().unwrap())
        .collect();
    let init = INIT
        .replace("MODULES", &names.join(" "))
        .replace("CONTROL", airlock_qemu::argv::CONTROL_GUEST_CIDR)
        .replace("PORT", &airlock_qemu::argv::GUEST_PORT.to_string())
        .replace("READY", READY);

    let path = folder.join("initrd");
    let mut archive = Archive(fs_err::File::create(&path).unwrap());
    for name in ["bin", "proc", "sys", "dev", "lib"] {
        archive.add(name, 0o040_755, b"");
    }
    archive.add("init", 0o100_755, init.as_bytes());
    archive.add("bin/serve", 0o100_755, SERVE.as_bytes());
    archive.add("bin/busybox", 0o100_755, &fs_err::read(BUSYBOX).unwrap());
    for (module, name) in MODULES.iter().zip(names) {
        let bytes = fs_err::read(modules.join(module)).unwrap();
        archive.add(&format!("lib/{name}"), 0o100_644, &bytes);
    }
    cpio::newc::trailer(archive.0).unwrap();
    path
}

struct Archive(fs_err::File);

impl Archive {
    fn add(&mut self, name: &str, mode: u32, bytes: &[u8]) {
        let size = u32::try_from(bytes.len()).unwrap();
        let mut entry = cpio::newc::Builder::new(name)
            .mode(mode)
            .write(&mut self.0, size);
        entry.write_all(bytes).unwrap();
        entry.finish().unwrap();
    }
}
