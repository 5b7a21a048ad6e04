//! `airlock spaces …`.

use std::fmt::Write as _;

use airlock::{Event, SpaceInfo};

use crate::commands::Context;
use crate::commands::build_talk::BuildTalk;
use crate::output::table;

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod info;
pub(crate) mod list;
pub(crate) mod start;
pub(crate) mod stop;

/// Tells what happens while a Space is made or started.
fn narrator(context: &Context) -> impl Fn(Event) + Send + Sync + use<> {
    let talk = BuildTalk::new(context.out);
    move |event| match event {
        Event::Image(step) => talk.step(&step),
        Event::Note(text) => talk.note(&text),
        Event::Booting => talk.activity("booting"),
        Event::Ready { boot_ms } => {
            talk.note(&format!(
                "ready, {:.1} s after power-on",
                boot_ms as f64 / 1000.0
            ));
        }
    }
}

/// One line for each Space.
fn list_table(spaces: &[SpaceInfo]) -> String {
    let rows: Vec<[String; 8]> = spaces
        .iter()
        .map(|space| {
            [
                space.name.to_string(),
                space.state.to_string(),
                space.image.to_string(),
                machine(space),
                space.cpus.to_string(),
                format!("{} MiB", space.memory_mb),
                format!("{} GiB", space.disk_gb),
                space.created_at.clone(),
            ]
        })
        .collect();
    table::render(
        [
            "NAME", "STATE", "IMAGE", "MACHINE", "CPUS", "MEMORY", "DISK", "CREATED",
        ],
        &rows,
    )
}

/// `qemu/tcg`: what runs it and what executes its instructions.
fn machine(space: &SpaceInfo) -> String {
    match space.accel {
        Some(accel) => format!("{}/{accel}", space.runtime),
        None => space.runtime.to_string(),
    }
}

/// Everything about a Space, one line for each thing.
fn details(space: &SpaceInfo) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let written = writeln!(text, "{name:<10} {value}");
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    };
    line("name", &space.name);
    line("state", &space.state);
    if let Some(detail) = &space.detail {
        line("because", detail);
    }
    line("image", &space.image);
    match &space.kind_reason {
        Some(reason) => line("kind", &format!("{} ({reason})", space.kind)),
        None => line("kind", &space.kind),
    }
    line("runtime", &space.runtime);
    if let Some(accel) = space.accel {
        match &space.accel_reason {
            Some(reason) => line("accel", &format!("{accel} ({reason})")),
            None => line("accel", &accel),
        }
    }
    line("cpus", &space.cpus);
    line("memory", &format!("{} MiB", space.memory_mb));
    line("disk", &format!("{} GiB", space.disk_gb));
    line("network", &space.network);
    line("created", &space.created_at);
    if let Some(started) = &space.started_at {
        line("started", started);
    }
    if let Some(boot_ms) = space.boot_ms {
        line("boot", &format!("{boot_ms} ms"));
    }
    for fact in &space.protection {
        line("protection", fact);
    }
    if let Some(pid) = space.pid {
        line("keeper", &format!("pid {pid}"));
    }
    text
}
