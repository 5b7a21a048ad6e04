use super::*;

/// A machine with everything, descriptors 10 to 17.
fn full(arch: Arch, accel: Backend) -> VmConfig {
    VmConfig {
        arch,
        accel,
        cpus: 2,
        memory_mb: 2048,
        kernel: Source::Fd(10),
        initrd: Source::Fd(11),
        cmdline: "console=x quiet".into(),
        lane: Some(Lane { fd: 12 }),
        root: Some(RootDisk {
            base: 13,
            overlay: 14,
        }),
        control: Some(ControlNet {
            mac: "52:54:00:00:00:01".into(),
        }),
        data: Some(DataNet {
            mac: "52:54:00:00:00:02".into(),
            fd: 15,
        }),
        qmp: 16,
        console: 17,
        sandbox: true,
    }
}

/// One option a line, as a person would write it.
fn lines(config: &VmConfig) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in build(config) {
        let word = word.into_string().unwrap();
        match lines.last_mut() {
            Some(last) if !word.starts_with('-') => {
                last.push(' ');
                last.push_str(&word);
            }
            Some(_) | None => lines.push(word),
        }
    }
    lines
}

const COMMON: &[&str] = &[
    "-add-fd fd=12,set=1",
    "-object iothread,id=lane-io",
    "-blockdev driver=file,node-name=lane-file,filename=/dev/fdset/1,locking=off,aio=threads,\
     cache.direct=off,cache.no-flush=on",
    "-blockdev driver=raw,node-name=lane,file=lane-file,cache.direct=off,cache.no-flush=on",
    "-device virtio-blk-pci,drive=lane,serial=airlock-lane,iothread=lane-io,\
     discard=off,write-zeroes=off",
    "-add-fd fd=13,set=2",
    "-add-fd fd=14,set=3",
    "-object iothread,id=root-io",
    "-blockdev driver=file,node-name=base-file,filename=/dev/fdset/2,read-only=on,locking=off",
    "-blockdev driver=raw,node-name=base,file=base-file,read-only=on",
    "-blockdev driver=file,node-name=overlay-file,filename=/dev/fdset/3,locking=off,aio=threads,\
     discard=unmap,cache.direct=off,cache.no-flush=on",
    "-blockdev driver=qcow2,node-name=root,file=overlay-file,backing=base,\
     discard=unmap,cache.direct=off,cache.no-flush=on",
    "-device virtio-blk-pci,drive=root,serial=airlock-root,iothread=root-io",
    "-device virtio-rng-pci",
    "-add-fd fd=17,set=4",
    "-chardev file,id=console,path=/dev/fdset/4,append=on",
    "-serial chardev:console",
    "-chardev socket,id=qmp,fd=16",
    "-mon chardev=qmp,mode=control",
    "-netdev user,id=control,restrict=on,ipv6=off,net=169.254.193.0/24,\
     dhcpstart=169.254.193.15,hostfwd=tcp:127.0.0.1:0-169.254.193.15:3211",
    "-device virtio-net-pci,netdev=control,mac=52:54:00:00:00:01,romfile=",
    "-netdev stream,id=data,addr.type=fd,addr.str=15,server=off",
    "-device virtio-net-pci,netdev=data,mac=52:54:00:00:00:02,romfile=",
    "-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
];

fn expect(config: &VmConfig, head: &[&str], append: &str) {
    let folder = "/proc/self/fd";
    let kernel = format!("-kernel {folder}/10");
    let initrd = format!("-initrd {folder}/11");
    let mut expected = vec![
        "-nodefaults",
        "-no-user-config",
        "-display none",
        "-no-reboot",
    ];
    expected.extend(head);
    let append = format!("-append console=x quiet{append}");
    expected.extend(["-smp 2", "-m 2048M", &kernel, &initrd, &append]);
    expected.extend(COMMON);
    assert_eq!(lines(config), expected);
}

const MEMORY: &str = "-object memory-backend-memfd,id=mem,size=2048M,share=on";

#[test]
fn x86_64_tcg() {
    let head = [
        "-machine q35,smm=off,vmport=off,i8042=off,sata=off,usb=off,hpet=off,memory-backend=mem",
        MEMORY,
        "-accel tcg,thread=multi,tb-size=256",
        "-cpu max,la57=off",
    ];
    expect(
        &full(Arch::X86_64, Backend::Tcg),
        &head,
        " nokaslr mitigations=off tsc=reliable no_timer_check",
    );
}

#[test]
fn x86_64_kvm() {
    let head = [
        "-machine q35,smm=off,vmport=off,i8042=off,sata=off,usb=off,hpet=off,memory-backend=mem",
        MEMORY,
        "-accel kvm",
        "-cpu host",
    ];
    expect(&full(Arch::X86_64, Backend::Kvm), &head, "");
}

#[test]
fn aarch64_kvm() {
    let head = [
        "-machine virt,gic-version=max,memory-backend=mem",
        MEMORY,
        "-accel kvm",
        "-cpu host",
    ];
    expect(&full(Arch::Aarch64, Backend::Kvm), &head, "");
}

#[test]
fn aarch64_tcg() {
    let head = [
        "-machine virt,gic-version=3,memory-backend=mem",
        MEMORY,
        "-accel tcg,thread=multi,tb-size=256",
        "-cpu max",
    ];
    expect(
        &full(Arch::Aarch64, Backend::Tcg),
        &head,
        " nokaslr mitigations=off",
    );
}

/// macOS has neither memfd, nor seccomp, nor passt, and another descriptor folder.
#[test]
fn aarch64_macos_hvf() {
    let config = VmConfig {
        data: None,
        sandbox: false,
        ..full(Arch::Aarch64, Backend::Hvf)
    };
    let text = lines(&config).join("\n");
    assert!(text.contains("-machine virt,gic-version=max\n-accel hvf\n-cpu host\n"));
    assert!(
        text.contains("-kernel /dev/fd/10\n-initrd /dev/fd/11\n"),
        "{text}"
    );
    for absent in ["memfd", "-sandbox", "stream", "/proc"] {
        assert!(!text.contains(absent), "{absent} in {text}");
    }
}

#[test]
fn what_is_not_asked_for_is_not_there() {
    let config = VmConfig {
        lane: None,
        root: None,
        control: None,
        data: None,
        sandbox: false,
        kernel: Source::Path("/a b,c".into()),
        ..full(Arch::X86_64, Backend::Tcg)
    };
    let lines = lines(&config);
    let text = lines.join("\n");
    for absent in ["virtio-blk", "netdev", "-sandbox", "iothread", "set=2"] {
        assert!(!text.contains(absent), "{absent} in {text}");
    }
    assert!(lines.contains(&"-kernel /a b,c".to_owned()));
}

#[test]
fn the_fast_command_line_keeps_the_hardening() {
    let x86 = fast_cmdline(Arch::X86_64);
    assert!(x86.starts_with("console=ttyS0 quiet panic=-1 "), "{x86}");
    let arm = fast_cmdline(Arch::Aarch64);
    assert!(arm.starts_with("console=ttyAMA0 quiet panic=-1 "), "{arm}");
    for words in [x86, arm] {
        assert!(
            !words.contains("mitigations") && !words.contains("nokaslr"),
            "{words}"
        );
    }
}
