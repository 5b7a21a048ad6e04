//! Two Spaces see nothing of each other.

use airlock_e2e::{Kind, TestSpace, command, on_both_kinds, start, wait_until};

use crate::python;

on_both_kinds! {
    every_day: ;
    slow_on_vm: two_spaces_see_nothing_of_each_other;
}

const OFFER: &str = "
import ctypes, os, socket, sys, time
libc = ctypes.CDLL(None)
libc.shmget(0x41495231, 4096, 0o1666)
open('/dev/shm/offer', 'w').write('here')
open('/tmp/offer', 'w').write('here')
a = socket.socket(socket.AF_UNIX); a.bind('\\0airlock-offer'); a.listen()
t = socket.socket(); t.bind(('0.0.0.0', 4711)); t.listen()
open('/root/ready', 'w').close()
time.sleep(100)
";

const LOOK: &str = "
import ctypes, os, socket, sys
libc = ctypes.CDLL(None)
found = []
if libc.shmget(0x41495231, 0, 0) >= 0: found.append('shared memory')
found += [p for p in ['/dev/shm/offer', '/tmp/offer'] if os.path.exists(p)]
for kind, address in [(socket.AF_UNIX, '\\0airlock-offer')] + [(socket.AF_INET, (a, 4711)) for a in sys.argv[1:]]:
    s = socket.socket(kind); s.settimeout(2)
    try:
        s.connect(address); found.append(str(address))
    except OSError: pass
for p in os.listdir('/proc'):
    if p.isdigit() and int(p) != os.getpid():
        try:
            if b'airlock-offer' in open(f'/proc/{p}/cmdline', 'rb').read(): found.append(p)
        except OSError: pass
print(found)
";

fn two_spaces_see_nothing_of_each_other(kind: Kind) {
    let one = TestSpace::with(kind, "one", "linux", &[]);
    let other = TestSpace::with(kind, "other", "linux", &[]);
    let mut offer = start(&mut command([
        "exec", &one.name, "--", "python3", "-c", OFFER,
    ]));
    wait_until("the offer stands", || {
        one.exec(&["test", "-e", "/root/ready"]).code == 0
    });
    let addresses =
        one.sh("hostname -I 2>/dev/null || ip -4 -o addr | awk '{print $4}' | cut -d/ -f1");
    let mut words: Vec<&str> = addresses.split_whitespace().collect();
    words.push("127.0.0.1");
    // The offer is real: its own Space finds all of it.
    let own = python(&one, LOOK, &words).expect(0).text();
    for part in [
        "shared memory",
        "/dev/shm/offer",
        "/tmp/offer",
        "airlock-offer",
        "127.0.0.1",
    ] {
        assert!(own.contains(part), "no {part} in {own}");
    }
    assert_eq!(python(&other, LOOK, &words).expect(0).text().trim(), "[]");
    let names = other.sh("cat /proc/*/comm 2>/dev/null | sort | uniq -c | sort -rn; hostname");
    assert!(!names.contains(&one.name), "{names}");
    offer.kill().unwrap();
    offer.wait().unwrap();
}
