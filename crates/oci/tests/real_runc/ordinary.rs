//! What is left of a Space that an ordinary user starts, who has one id to give.

use airlock_oci::{ContainerConfig, IdMapping};

use crate::container::{Container, text};

#[test]
fn an_ordinary_users_space_is_as_strict_and_has_one_id() {
    let Some((container, user)) = Container::of_ordinary_user("ordinary") else {
        return;
    };
    let map = vec![IdMapping {
        inside: 0,
        outside: user,
        count: 1,
    }];
    let config = ContainerConfig {
        uid_map: map.clone(),
        gid_map: map,
        ..container.config(
            "id -u; grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/self/status
             (touch /tmp/file && chown 1:1 /tmp/file) 2>/dev/null && echo SUCCEEDED: an owner
             unshare -U true 2>/dev/null && echo SUCCEEDED: a namespace
             ls /sys/class/net",
        )
    };
    let output = container.run(&config);
    // What crun says of its attempts at more ids goes to the other stream.
    let said = String::from_utf8_lossy(&output.stdout);
    let expected = "0\nCapBnd:\t00000000800405fb\nNoNewPrivs:\t1\nSeccomp:\t2\nlo\n";
    assert_eq!(said, expected, "{}", text(&output));
}
