//! `cargo xtask codegen`: Rust code from the `.proto` files, committed and drift-checked.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fs_err as fs;

/// Every file of the contract, relative to `proto/`.
const PROTOS: &[&str] = &[
    "cua/env/v1/common.proto",
    "cua/env/v1/system.proto",
    "cua/env/v1/process.proto",
    "cua/env/v1/filesystem.proto",
    "airlock/lane/v1/lane.proto",
];

/// Writes the generated code, or with `check` fails when it differs from what is committed.
pub(crate) fn run(root: &Path, check: bool) -> Result<()> {
    let target = root.join("crates/wire/src/generated");
    let fresh = tempfile::tempdir()?;
    generate(&root.join("proto"), fresh.path())?;
    let mut drifted = Vec::new();
    for entry in fs::read_dir(fresh.path())? {
        let entry = entry?;
        let code = fs::read_to_string(entry.path())?;
        let file = target.join(entry.file_name());
        if fs::read_to_string(&file).unwrap_or_default() == code {
            continue;
        }
        if check {
            drifted.push(file);
        } else {
            fs::create_dir_all(&target)?;
            fs::write(&file, code)?;
        }
    }
    if !drifted.is_empty() {
        bail!("generated code is out of date: {drifted:?}\nhint: run `cargo xtask codegen`");
    }
    Ok(())
}

fn generate(proto_dir: &Path, out: &Path) -> Result<()> {
    let files: Vec<PathBuf> = PROTOS.iter().map(|p| proto_dir.join(p)).collect();
    let set = protox::compile(&files, [proto_dir]).context("compiling the .proto files")?;
    tonic_prost_build::configure()
        .out_dir(out)
        .bytes(".airlock.lane.v1")
        .bytes(".cua.env.v1.FileChunk.data")
        .bytes(".cua.env.v1.ProcessData")
        .bytes(".cua.env.v1.UploadChunkRequest.data")
        .bytes(".cua.env.v1.WriteFileRequest")
        .compile_fds(set)
        .context("generating Rust code")
}
