//! The one program of the `tiny` image that offers a shell and the usual commands.

use std::path::Path;

use fs_err as fs;

use crate::apt::Apt;
use crate::command::Tool;
use crate::error::BuildError;
use crate::job::Job;
use crate::part::{Freshness, Kind, Origin, Part};
use crate::progress::Phase;
use crate::tree::small::Parts;

const PACKAGE: &str = "busybox-static";
const PROGRAM_FILE: &str = "busybox";
const APPLETS_FILE: &str = "applets";

/// A static busybox.
#[derive(Debug, Clone)]
pub(crate) struct Busybox {
    part: Part,
}

impl Busybox {
    /// Gives the cached busybox or fetches one.
    pub(crate) fn obtain(job: &Job<'_>, freshness: Freshness) -> Result<Self, BuildError> {
        let part = Part::obtain(job, Kind::Busybox, freshness, &|folder| fetch(job, folder))?;
        Ok(Self { part })
    }

    /// The cached busybox, if there is one.
    pub(crate) fn cached(cache: &Path) -> Option<Self> {
        Part::newest(cache, Kind::Busybox).map(|part| Self { part })
    }

    /// All that a small system is made from.
    pub(crate) fn parts(&self) -> Result<Parts, BuildError> {
        Ok(Parts {
            busybox: self.program()?,
            applets: self.applets()?,
        })
    }

    /// The program's bytes.
    pub(crate) fn program(&self) -> Result<Vec<u8>, BuildError> {
        Ok(fs::read(self.part.dir.join(PROGRAM_FILE))?)
    }

    /// The names under which it can be called.
    pub(crate) fn applets(&self) -> Result<Vec<String>, BuildError> {
        let text = fs::read_to_string(self.part.dir.join(APPLETS_FILE))?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

fn fetch(job: &Job<'_>, folder: &Path) -> Result<Origin, BuildError> {
    job.report(Phase::Resolving, None, PACKAGE);
    let apt = Apt::new(job)?;
    let (packages, tree) = apt.fetch_and_unpack(&|apt| Ok(vec![apt.package(PACKAGE)?]))?;
    let program = ["bin/busybox", "usr/bin/busybox"]
        .map(|path| tree.join(path))
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| BuildError::NotInPackage {
            package: PACKAGE.to_owned(),
            what: "busybox".to_owned(),
        })?;
    // Packages differ in what they compile in, so the program itself says what it can do.
    let list = job.capture(Tool::new(&program.to_string_lossy()).arg("--list"))?;
    fs::copy(&program, folder.join(PROGRAM_FILE))?;
    fs::write(folder.join(APPLETS_FILE), list)?;
    Ok(Origin {
        version: packages[0].version.clone(),
        release: String::new(),
    })
}
