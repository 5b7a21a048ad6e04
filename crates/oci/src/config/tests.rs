use super::*;

fn config() -> ContainerConfig {
    let map = vec![IdMapping {
        inside: 0,
        outside: 100_000,
        count: 65_536,
    }];
    ContainerConfig {
        hostname: "space".to_owned(),
        args: vec!["/init".to_owned()],
        env: vec![("PATH".to_owned(), "/bin".to_owned())],
        rootfs: PathBuf::from("/spaces/one/root"),
        uid_map: map.clone(),
        gid_map: map,
        netns: None,
        sysfs: None,
        cgroup: None,
        cgroup_mount: CgroupMount::Hidden,
        mounts: Vec::new(),
        host_cpus: 2,
        zero: Zero::HostRoot,
        open_files: DEFAULT_OPEN_FILES,
    }
}

fn limits() -> Limits {
    Limits {
        cpus: 2,
        memory_bytes: 256 << 20,
        pids: 128,
        can_limit_swap: true,
        can_limit_devices: true,
    }
}

fn json(config: &ContainerConfig) -> serde_json::Value {
    serde_json::to_value(build(config).unwrap()).unwrap()
}

fn mount_at<'a>(spec: &'a serde_json::Value, target: &str) -> Option<&'a serde_json::Value> {
    let mounts = spec["mounts"].as_array().unwrap();
    mounts.iter().find(|mount| mount["destination"] == target)
}

fn has_option(mount: &serde_json::Value, option: &str) -> bool {
    let options = mount["options"].as_array().unwrap();
    options.iter().any(|one| one == option)
}

#[test]
fn a_space_has_every_namespace_and_no_way_to_more() {
    let spec = json(&config());
    let namespaces = spec["linux"]["namespaces"].as_array().unwrap();
    for kind in ["user", "pid", "mount", "ipc", "uts", "cgroup", "network"] {
        assert!(
            namespaces.contains(&serde_json::json!({"type": kind})),
            "{kind}"
        );
    }
    assert_eq!(spec["process"]["noNewPrivileges"], true);
    assert_eq!(
        spec["process"]["capabilities"]["ambient"],
        serde_json::json!([])
    );
    assert_eq!(
        spec["process"]["capabilities"]["inheritable"],
        serde_json::json!([])
    );
    let bounding = &spec["process"]["capabilities"]["bounding"];
    assert_eq!(bounding.as_array().unwrap().len(), 11);
    for kept_out in [
        "CAP_NET_RAW",
        "CAP_MKNOD",
        "CAP_AUDIT_WRITE",
        "CAP_SYS_ADMIN",
    ] {
        assert!(
            !bounding
                .as_array()
                .unwrap()
                .iter()
                .any(|cap| cap == kept_out)
        );
    }
    assert_eq!(spec["linux"]["seccomp"]["defaultAction"], "SCMP_ACT_ERRNO");
    assert!(spec["process"].get("oomScoreAdj").is_none());
}

#[test]
fn without_a_cgroup_no_limit_is_asked_for() {
    let spec = json(&config());
    assert!(spec["linux"].get("resources").is_none());
    assert!(spec["linux"].get("cgroupsPath").is_none());
    assert!(mount_at(&spec, "/sys/fs/cgroup").is_none());
}

#[test]
fn limits_are_whole_cpus_and_memory_without_swap() {
    let with = ContainerConfig {
        cgroup: Some(("/airlock/one".to_owned(), limits())),
        cgroup_mount: CgroupMount::ReadOnly,
        ..config()
    };
    let spec = json(&with);
    let resources = &spec["linux"]["resources"];
    assert_eq!(
        resources["cpu"],
        serde_json::json!({"quota": 200_000, "period": 100_000})
    );
    assert_eq!(
        resources["memory"],
        serde_json::json!({"limit": 256 << 20, "swap": 256 << 20})
    );
    assert_eq!(resources["pids"]["limit"], 128);
    assert_eq!(
        resources["devices"],
        serde_json::json!([{"allow": false, "access": "rwm"}])
    );
    assert_eq!(spec["linux"]["cgroupsPath"], "/airlock/one");
    assert!(has_option(mount_at(&spec, "/sys/fs/cgroup").unwrap(), "ro"));
    assert!(has_option(
        mount_at(&spec, "/dev/shm").unwrap(),
        "size=134217728"
    ));
}

#[test]
fn what_the_host_cannot_limit_is_not_mentioned() {
    let limits = Limits {
        can_limit_swap: false,
        can_limit_devices: false,
        ..limits()
    };
    let with = ContainerConfig {
        cgroup: Some(("/airlock/one".to_owned(), limits)),
        ..config()
    };
    let spec = json(&with);
    let resources = &spec["linux"]["resources"];
    assert!(resources["memory"].get("swap").is_none());
    assert!(resources.get("devices").is_none());
}

#[test]
fn a_joined_network_brings_its_sysfs_and_its_settings() {
    let joined = ContainerConfig {
        netns: Some(PathBuf::from("/run/netns/one")),
        sysfs: Some(PathBuf::from("/spaces/one/sys")),
        ..config()
    };
    let spec = json(&joined);
    assert!(spec["linux"].get("sysctl").is_none());
    let sys = mount_at(&spec, "/sys").unwrap();
    assert_eq!(sys["type"], "bind");
    assert!(has_option(sys, "ro"));
    let namespaces = spec["linux"]["namespaces"].as_array().unwrap();
    assert!(namespaces.contains(&serde_json::json!({"type": "network", "path": "/run/netns/one"})));
    let without_sysfs = ContainerConfig {
        sysfs: None,
        ..joined
    };
    assert_eq!(build(&without_sysfs), Err(ConfigError::Sysfs));
}

#[test]
fn what_needs_more_ids_than_there_are_is_left_out() {
    let one_id = vec![IdMapping {
        inside: 0,
        outside: 1000,
        count: 1,
    }];
    let spec = json(&ContainerConfig {
        uid_map: one_id.clone(),
        gid_map: one_id,
        ..config()
    });
    assert!(!has_option(mount_at(&spec, "/dev/pts").unwrap(), "gid=5"));
    assert_eq!(spec["linux"]["sysctl"]["net.ipv4.ping_group_range"], "0 0");
    let many = json(&config());
    assert!(has_option(mount_at(&many, "/dev/pts").unwrap(), "gid=5"));
    assert_eq!(
        many["linux"]["sysctl"]["net.ipv4.ping_group_range"],
        "0 65535"
    );
}

#[test]
fn maps_are_refused_for_what_is_wrong_with_them() {
    let run = |inside, outside, count| IdMapping {
        inside,
        outside,
        count,
    };
    let kind = IdKind::User;
    let wrong = |mapping| ConfigError::Mapping { kind, mapping };
    let cases = [
        (vec![], ConfigError::NoRoot { kind }),
        (vec![run(1, 100_000, 10)], ConfigError::NoRoot { kind }),
        // Root of the host is only ever the first id of a run.
        (vec![run(0, 0, 1)], ConfigError::MapsHostRoot { kind }),
        (
            vec![run(0, 100_000, 1), run(1, 0, 2)],
            ConfigError::MapsHostRoot { kind },
        ),
        (vec![run(0, 100_000, 0)], wrong(run(0, 100_000, 0))),
        // One past the last id there is.
        (vec![run(0, u32::MAX, 1)], wrong(run(0, u32::MAX, 1))),
        // Neighbours by one, inside and outside.
        (
            vec![run(0, 100_000, 10), run(9, 200_000, 1)],
            wrong(run(9, 200_000, 1)),
        ),
        (
            vec![run(0, 100_000, 10), run(10, 100_009, 1)],
            wrong(run(10, 100_009, 1)),
        ),
    ];
    for (uid_map, error) in cases {
        let config = ContainerConfig {
            uid_map,
            ..config()
        };
        assert_eq!(build(&config), Err(error));
    }
    let touching = vec![run(0, 100_000, 10), run(10, 100_010, 1)];
    assert!(
        build(&ContainerConfig {
            uid_map: touching,
            ..config()
        })
        .is_ok()
    );
}

#[test]
fn mounts_cover_neither_the_root_nor_the_kernel() {
    let to = |target: &str| ContainerConfig {
        mounts: vec![Mount {
            source: PathBuf::from("/host/file"),
            target: PathBuf::from(target),
            writable: false,
        }],
        ..config()
    };
    for target in ["/", "/proc/self/status", "/sys", "/dev/null"] {
        let error = ConfigError::Target {
            target: PathBuf::from(target),
        };
        assert_eq!(build(&to(target)), Err(error));
    }
    for target in ["etc/resolv.conf", "/etc/../proc"] {
        assert!(
            matches!(build(&to(target)), Err(ConfigError::Path { .. })),
            "{target}"
        );
    }
    let spec = json(&to("/etc/resolv.conf"));
    let mount = mount_at(&spec, "/etc/resolv.conf").unwrap();
    for option in ["bind", "ro", "nosuid", "nodev"] {
        assert!(has_option(mount, option), "{option}");
    }
}

#[test]
fn what_no_program_could_be_started_with_is_refused() {
    let wrong = [
        ContainerConfig {
            args: vec![],
            ..config()
        },
        ContainerConfig {
            args: vec!["a\0b".to_owned()],
            ..config()
        },
        ContainerConfig {
            env: vec![("A=B".to_owned(), String::new())],
            ..config()
        },
        ContainerConfig {
            hostname: "a b".to_owned(),
            ..config()
        },
        ContainerConfig {
            hostname: "a".repeat(65),
            ..config()
        },
        ContainerConfig {
            rootfs: PathBuf::from("root"),
            ..config()
        },
        ContainerConfig {
            cgroup: Some(("airlock".to_owned(), limits())),
            ..config()
        },
        ContainerConfig {
            cgroup: Some((
                "/airlock".to_owned(),
                Limits {
                    pids: 0,
                    ..limits()
                },
            )),
            ..config()
        },
    ];
    for config in wrong {
        assert!(build(&config).is_err(), "{config:?}");
    }
}
