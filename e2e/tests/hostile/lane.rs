//! The lane: memory that the Space may write at any time.

use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use airlock_e2e::{
    Kind, TestSpace, airlock, command, on_both_kinds, same_bytes, sha256, wait_until, write_random,
};

use crate::{python, python_command, upload};

on_both_kinds! {
    every_day: ;
    slow_on_vm: a_scribbled_lane_never_makes_a_wrong_file, a_filled_lane_is_emptied;
}

const MIB: u64 = 1024 * 1024;

/// Opens the lane as root in the Space finds it: a disk in a machine, a descriptor of the first
/// process in a container.
const FIND: &str = "
import glob, os, sys, time
def lane():
    for path in glob.glob('/proc/1/fd/*'):
        if 'airlock-lane' in os.readlink(path):
            return os.open(path, os.O_RDWR)
    for path in glob.glob('/sys/block/*/serial'):
        if open(path).read().strip() == 'airlock-lane':
            return os.open('/dev/' + path.split('/')[3], os.O_RDWR | os.O_DSYNC)
    sys.exit('no lane')
fd = lane()
size = os.lseek(fd, 0, os.SEEK_END)
";

/// Writes 64 KiB of noise at places all over the lane, and punches holes where it can.
const SCRIBBLE: &str = "
import ctypes, random
libc = ctypes.CDLL(None)
end = time.time() + float(sys.argv[1])
count = 0
while time.time() < end:
    at = random.randrange(0, size // 4096 - 16) * 4096
    os.pwrite(fd, os.urandom(65536), at)
    if count % 7 == 0:
        libc.fallocate(fd, 3, ctypes.c_long(at), ctypes.c_long(65536))
    count += 1
print(count)
";

const FILL: &str = "
block = os.urandom(1 << 20)
for at in range(0, size, len(block)):
    try: os.pwrite(fd, block[:size - at], at)
    except OSError as error: sys.exit(str(error))
print(size)
";

fn start_python(space: &TestSpace, script: &str, args: &[&str]) -> Child {
    python_command(space, &format!("{FIND}{script}"), args)
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

/// Success with wrong bytes is the one thing that must not be.
fn a_scribbled_lane_never_makes_a_wrong_file(kind: Kind) {
    let space = TestSpace::with(kind, "scribble", "linux", &[]);
    let folder = tempfile::tempdir().unwrap();
    let (there, back) = (folder.path().join("there"), folder.path().join("back"));
    write_random(&there, 24 * MIB + 77, 21);
    let sum = sha256(&there);
    let _ran = upload(&space, &there, "/root/good").expect(0);
    let duration = match kind {
        Kind::Container => Duration::from_secs(12),
        Kind::Vm => Duration::from_secs(40),
    };
    let end = Instant::now() + duration;
    let scribbler = start_python(&space, SCRIBBLE, &[&duration.as_secs().to_string()]);
    let (mut right, mut refused) = (0, 0);
    while Instant::now() < end {
        let started = Instant::now();
        let up = upload(&space, &there, "/root/up");
        if up.code == 0 {
            let inside = space.sh("sha256sum /root/up | cut -d' ' -f1");
            assert_eq!(inside, sum, "a wrong file was published in the Space");
            right += 1;
        } else {
            assert!(up.stderr.contains("error:"), "{up:?}");
            refused += 1;
        }
        std::fs::write(&back, "old").unwrap();
        let down = airlock(["cp", &space.at("/root/good"), back.to_str().unwrap()]);
        if down.code == 0 {
            assert!(
                same_bytes(&there, &back),
                "a wrong file was published on the host"
            );
            right += 1;
        } else {
            assert_eq!(std::fs::read(&back).unwrap(), b"old");
            refused += 1;
        }
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "{up:?} {down:?}"
        );
    }
    let told = airlock_e2e::Ran::from(scribbler.wait_with_output().unwrap()).expect(0);
    let count: u64 = told.text().trim().parse().unwrap();
    println!("{count} scribbles: {right} transfers right, {refused} refused");
    assert!(count > 100, "{told:?}");
    // The Space left the lane alone again, and all is as before.
    let ran = airlock([
        "cp",
        "--json",
        there.to_str().unwrap(),
        &space.at("/root/up"),
    ])
    .expect(0);
    assert_eq!(ran.json()["route"], "lane", "{ran:?}");
    let partial = "ls -A /root | grep -c '^.airlock-'; true";
    assert_eq!(space.sh(partial), "0", "partial files stay in the Space");
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 2, "partial files stay on the host");
}

/// What a lane full of noise takes of the host's memory is given back.
fn a_filled_lane_is_emptied(kind: Kind) {
    let space = TestSpace::with(kind, "fill", "linux", &[]);
    let keeper = space.keeper_state()["keeper"]["pid"].as_u64().unwrap();
    let lane = lane_of(keeper);
    let held = || std::fs::metadata(&lane).unwrap().blocks() * 512;
    let before = held();
    let filler = start_python(&space, FILL, &[]);
    wait_until("the lane fills", || held() > before + 64 * MIB);
    let told = airlock_e2e::Ran::from(filler.wait_with_output().unwrap()).expect(0);
    let size: u64 = told.text().trim().parse().unwrap();
    assert!(size > 200 * MIB && size < 300 * MIB, "{size}");
    let emptied = Instant::now();
    wait_until("the lane is emptied", || held() < before + 8 * MIB);
    assert!(
        emptied.elapsed() < Duration::from_secs(5),
        "{:?}",
        emptied.elapsed()
    );
    // Its size is what it was: sealed.
    let cut = python(&space, &format!("{FIND}os.ftruncate(fd, 0)"), &[]);
    assert_ne!(cut.code, 0, "{cut:?}");
    assert_eq!(std::fs::metadata(&lane).unwrap().len(), size);
    let mut copy = command(["cp", "--json", "/proc/self/exe", &space.at("/root/after")]);
    let ran = airlock_e2e::run(&mut copy).expect(0);
    assert_eq!(ran.json()["route"], "lane", "{ran:?}");
}

fn lane_of(keeper: u64) -> std::path::PathBuf {
    let fds = std::fs::read_dir(format!("/proc/{keeper}/fd")).unwrap();
    fds.flatten()
        .map(|entry| entry.path())
        .find(|path| {
            std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("airlock-lane"))
        })
        .unwrap()
}
