//! Proofs, overlays and QMP on a QEMU without a machine.

use std::path::Path;
use std::time::{Duration, Instant};

use airlock_model::Accel;
use airlock_process::{self as process, SpawnRequest};
use airlock_process::{InheritedFds, RunAs};
use airlock_qemu::accel::{AccelError, KERNEL_MARKER, resolve};
use airlock_qemu::qmp::QmpError;
use airlock_qemu::{Backend, ProbeContext, Qmp, overlay};

use crate::{initramfs, qemu};

#[tokio::test]
async fn auto_and_kvm_agree_with_what_a_boot_shows() {
    let (Some(qemu), Some(kernel)) = (qemu().await, initramfs::kernel()) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let initrd = initramfs::write(&kernel, folder.path());
    let cache = folder.path().join("accel.json");
    for run_as in [None, RunAs::for_vm()] {
        let context = ProbeContext {
            qemu: &qemu,
            kernel: &kernel,
            initrd: &initrd,
            marker: KERNEL_MARKER,
            cache: &cache,
            run_as,
            deadline: Duration::from_secs(5),
        };
        let started = Instant::now();
        let auto = resolve(Accel::Auto, &context).await.unwrap();
        eprintln!("auto as {run_as:?}: {auto:?} in {:?}", started.elapsed());
        let asked = resolve(Accel::Kvm, &context).await;
        match auto.accel {
            Backend::Kvm => assert_eq!(asked.unwrap().accel, Backend::Kvm),
            Backend::Tcg => assert!(
                matches!(
                    asked,
                    Err(AccelError::Unproven { .. } | AccelError::WrongHost { .. })
                ),
                "{asked:?}"
            ),
            Backend::Hvf => panic!("HVF on Linux"),
        }
        // The second answer came from the file; a third within no time shows it.
        assert_eq!(resolve(Accel::Auto, &context).await.unwrap(), auto);
        let tcg = resolve(Accel::Tcg, &context).await.unwrap();
        assert_eq!(tcg.accel, Backend::Tcg);
    }
    assert!(no_child_is_left(), "a probe's QEMU still runs");
}

/// Whether this process has no QEMU that boots from a probe's descriptors.
fn no_child_is_left() -> bool {
    let own = std::process::id();
    let children = fs_err::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| {
            let stat = fs_err::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent = stat
                .rsplit_once(')')
                .and_then(|(_, rest)| rest.split(' ').nth(2));
            let command = fs_err::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            parent == Some(own.to_string().as_str()) && command.contains("-accel\0kvm")
        });
    children.count() == 0
}

#[tokio::test]
async fn overlays_are_private_files_without_a_backing_name() {
    use std::os::unix::fs::MetadataExt;
    let Some(qemu) = qemu().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("overlay.qcow2");
    let started = Instant::now();
    overlay::create(&qemu, &path, 8 << 30, RunAs::for_vm())
        .await
        .unwrap();
    eprintln!("overlay made in {:?}", started.elapsed());
    let header = fs_err::read(&path).unwrap();
    assert_eq!(header[..4], *b"QFI\xfb");
    assert_eq!(header[8..16], [0; 8], "offset of the backing file's name");
    assert_eq!(header[24..32], (8_u64 << 30).to_be_bytes(), "virtual size");
    let metadata = fs_err::metadata(&path).unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o600);
    assert!(
        metadata.blocks() * 512 < 1 << 20,
        "an empty overlay takes no room"
    );

    let again = overlay::create(&qemu, &path, 8 << 30, RunAs::for_vm()).await;
    assert!(
        matches!(again, Err(overlay::OverlayError::File { .. })),
        "{again:?}"
    );
    assert!(path.exists(), "someone else's file stays");
}

#[tokio::test]
async fn a_failed_overlay_leaves_no_file() {
    let Some(mut qemu) = qemu().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("overlay.qcow2");
    let huge = overlay::create(&qemu, &path, u64::MAX - 511, None).await;
    assert!(
        matches!(
            huge,
            Err(overlay::OverlayError::Qmp { .. } | overlay::OverlayError::Job { .. })
        ),
        "{huge:?}"
    );
    assert!(!path.exists());
    qemu.path = Path::new("/bin/false").to_owned();
    let dead = overlay::create(&qemu, &path, 1 << 30, None).await;
    assert!(
        matches!(dead, Err(overlay::OverlayError::Qmp { .. })),
        "{dead:?}"
    );
    assert!(!path.exists());
}

#[tokio::test]
async fn qmp_drives_a_qemu_without_a_machine() {
    let Some(qemu) = qemu().await else { return };
    let (ours, theirs) = process::socket_pair().unwrap();
    let mut inherited = InheritedFds::new();
    let fd = inherited.add(theirs);
    let words = "-machine none -nodefaults -no-user-config -display none -S";
    let mut argv: Vec<_> = words.split(' ').map(Into::into).collect();
    argv.extend(["-chardev".into(), format!("socket,id=qmp,fd={fd}").into()]);
    argv.extend(["-mon".into(), "chardev=qmp,mode=control".into()]);
    let mut process = process::spawn(SpawnRequest {
        binary: qemu.path,
        argv,
        inherited,
        run_as: RunAs::for_vm(),
        log: None,
    })
    .unwrap();
    let qmp = Qmp::connect(ours).await.unwrap();
    assert_eq!(qmp.version(), qemu.version);
    let mut events = qmp.events();
    assert_eq!(qmp.query_status().await.unwrap().status, "prelaunch");
    qmp.cont().await.unwrap();
    assert!(qmp.query_status().await.unwrap().running);
    assert_eq!(events.recv().await.unwrap().name, "RESUME");
    qmp.stop().await.unwrap();
    let refused = qmp.execute("no-such-command", None).await;
    assert!(
        matches!(refused, Err(QmpError::Refused { .. })),
        "{refused:?}"
    );
    let none = qmp.info_usernet_port().await;
    assert!(matches!(none, Err(QmpError::Unexpected { .. })), "{none:?}");
    qmp.quit().await.unwrap();
    assert!(process.wait().await.unwrap().success());
}
