//! Sentences that several reports share.

use airlock_model::Kind;

use super::rate;
use crate::environment::{Host, LoadAverage};
use crate::result::{Environment, Formula, Limits, SpaceFacts};

/// The limit, how it follows from what was measured, and why so.
pub(crate) fn limit_formula(limits: &Limits) -> String {
    let (limit, one) = (
        rate(limits.sha256_mib_s),
        rate(limits.sha256_one_core_mib_s),
    );
    let cores = limits.cores;
    match limits.formula {
        Formula::SpaceCpus => format!(
            "{limit} MiB/s: {cores} vCPUs x {one} MiB/s, because its own vCPUs hash every byte"
        ),
        Formula::SharedCores => format!(
            "{limit} MiB/s: {cores} cores x {one} MiB/s / 2, because both ends hash on the same cores"
        ),
    }
}

/// What a Space's processors are called.
pub(crate) const fn cpus_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Auto | Kind::Vm => "vCPUs",
        Kind::Container => "CPUs",
    }
}

/// What a Space is, what runs it, why, and what it has.
pub(crate) fn space_line(space: &SpaceFacts) -> String {
    let reason = |reason: &Option<String>| {
        reason
            .as_ref()
            .map_or_else(String::new, |reason| format!(" ({reason})"))
    };
    let accel = space.accel.map_or_else(String::new, |accel| {
        format!(" on {accel}{}", reason(&space.accel_reason))
    });
    format!(
        "{} {} by {}{}{accel}, {} {}, {} MiB of memory, {} GiB of disk, network {}, {}",
        space.image,
        space.kind,
        space.runtime,
        reason(&space.kind_reason),
        space.cpus,
        cpus_word(space.kind),
        space.memory_mb,
        space.disk_gb,
        space.network,
        if space.made_for_this_run {
            "made for this run"
        } else {
            "made before this run"
        }
    )
}

/// The section on what the figures depend on.
pub(crate) fn environment(environment: &Environment) -> String {
    let (host, software, space) = (&environment.host, &environment.software, &environment.space);
    let mut lines = vec![
        ("Host".to_owned(), host_line(host)),
        (
            "File systems".to_owned(),
            format!("Spaces on {}, files on {}", host.home_fs, host.scratch_fs),
        ),
        (
            "Load average".to_owned(),
            format!(
                "{} before, {} after",
                loads(environment.load_before),
                loads(environment.load_after)
            ),
        ),
        ("Space".to_owned(), space_line(space)),
    ];
    for protection in &space.protection {
        lines.push(("Protection".to_owned(), protection.clone()));
    }
    if let Some(boot_ms) = space.boot_ms {
        let boot = format!("{boot_ms} ms to the first healthy answer");
        lines.push(("Boot".to_owned(), boot));
    }
    lines.push(("QEMU".to_owned(), software.qemu.clone()));
    lines.push(("Airlock".to_owned(), software.airlock_version.clone()));
    for binary in &software.binaries {
        lines.push((format!("SHA-256 of {}", binary.name), binary.sha256.clone()));
    }
    let mut out = String::from("## Environment\n\n");
    for (name, value) in lines {
        super::push(&mut out, format_args!("- {name}: {value}"));
    }
    out
}

fn host_line(host: &Host) -> String {
    format!(
        "{}, {} CPUs ({}), {} MiB of memory, {}, {}",
        host.cpu_model,
        host.cpus,
        host.cpu_flags.join(" "),
        host.memory_mib,
        host.kernel,
        host.os
    )
}

fn loads(load: LoadAverage) -> String {
    load.map(|value| format!("{value:.2}")).join(" ")
}

/// What a reader must know of the machine before quoting a figure.
pub(crate) fn caveats(environment: &Environment) -> Vec<String> {
    let mut caveats = vec!["One run on one machine; compare only runs on the same machine.".into()];
    if environment.space.accel == Some(airlock_model::Accel::Tcg) {
        caveats.push(
            "The Space ran by software emulation (TCG); with hardware virtualisation every figure \
             is another."
                .into(),
        );
    }
    if environment.load_before[0] > environment.host.cpus as f64 / 4.0 {
        caveats.push(format!(
            "The host was busy when the run began (load {:.2}).",
            environment.load_before[0]
        ));
    }
    caveats
}
