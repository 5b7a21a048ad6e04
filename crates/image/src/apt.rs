//! Fetches packages with the host's own apt, without installing anything.
//!
//! The host's package lists are used as they are. Where they are empty or so old that the server
//! has dropped a file, private lists under `cache/apt` are fetched instead: that needs no root
//! rights and changes nothing of the host.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::command::Tool;
use crate::error::BuildError;
use crate::host::{Family, MissingTools, Purpose};
use crate::job::Job;
use crate::progress::Phase;
use crate::sources;

/// What apt knows of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Names of the packages it depends on, first alternatives alone.
    pub(crate) depends: Vec<String>,
    download_bytes: u64,
}

/// The host's apt, as one build uses it.
pub(crate) struct Apt<'j> {
    job: &'j Job<'j>,
    use_private_lists: Cell<bool>,
}

impl<'j> Apt<'j> {
    /// Checks that the host can do this at all.
    pub(crate) fn new(job: &'j Job<'j>) -> Result<Self, BuildError> {
        match job.host.family {
            Family::Debian | Family::Ubuntu => {}
            Family::Other => {
                return Err(BuildError::UnsupportedHost {
                    id: job.host.id.clone(),
                });
            }
        }
        MissingTools::check(&job.host, Purpose::BuildAny)?;
        Ok(Self {
            job,
            use_private_lists: Cell::new(false),
        })
    }

    /// Which package names apply.
    pub(crate) fn family(&self) -> Family {
        self.job.host.family
    }

    /// Looks a package up; fetches private lists if the host's do not know it.
    pub(crate) fn package(&self, name: &str) -> Result<Package, BuildError> {
        if let Some(package) = self.look_up(name)? {
            return Ok(package);
        }
        if !self.use_private_lists.get() {
            self.fetch_lists()?;
            if let Some(package) = self.look_up(name)? {
                return Ok(package);
            }
        }
        Err(BuildError::NoPackage {
            package: name.to_owned(),
        })
    }

    /// Downloads packages and unpacks them into one new folder.
    ///
    /// `resolve` is called again after the lists changed, so that a package which the server has
    /// replaced meanwhile is looked up anew.
    pub(crate) fn fetch_and_unpack(
        &self,
        resolve: &dyn Fn(&Self) -> Result<Vec<Package>, BuildError>,
    ) -> Result<(Vec<Package>, PathBuf), BuildError> {
        let packages = resolve(self)?;
        match self.download_all(&packages) {
            Ok(files) => Ok((packages, self.unpack(&files)?)),
            Err(BuildError::Command(error)) if !self.use_private_lists.get() => {
                tracing::info!(%error, "download failed with the host's package lists");
                self.fetch_lists()?;
                let packages = resolve(self)?;
                let files = self.download_all(&packages)?;
                Ok((packages, self.unpack(&files)?))
            }
            Err(error) => Err(error),
        }
    }

    fn look_up(&self, name: &str) -> Result<Option<Package>, BuildError> {
        let tool = self
            .tool("apt-cache")
            .args(["show", "--no-all-versions", name]);
        match self.job.capture(tool) {
            Ok(output) => Ok(parse_record(&String::from_utf8_lossy(&output))),
            // apt-cache fails for a name that it does not know.
            Err(BuildError::Command(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn download_all(&self, packages: &[Package]) -> Result<Vec<PathBuf>, BuildError> {
        packages
            .iter()
            .map(|package| self.download(package))
            .collect()
    }

    fn download(&self, package: &Package) -> Result<PathBuf, BuildError> {
        let mib = package.download_bytes.div_ceil(1 << 20);
        let detail = format!("{} {} ({mib} MiB)", package.name, package.version);
        self.job.report(Phase::Fetching, None, &detail);
        let folder = self.job.fresh_folder("deb")?;
        let tool = self
            .tool("apt-get")
            .args([
                "-q",
                "download",
                &format!("{}={}", package.name, package.version),
            ])
            .folder(&folder);
        self.job.run(tool, &mut |_| {})?;
        let file = fs::read_dir(&folder)?
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"));
        file.ok_or_else(|| BuildError::NoPackage {
            package: package.name.clone(),
        })
    }

    fn unpack(&self, files: &[PathBuf]) -> Result<PathBuf, BuildError> {
        let folder = self.job.fresh_folder("unpacked")?;
        for file in files {
            let name = file
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            self.job.report(Phase::Unpacking, None, &name);
            self.job.run(
                Tool::new("dpkg-deb").arg("-x").arg(file).arg(&folder),
                &mut |_| {},
            )?;
        }
        Ok(folder)
    }

    fn fetch_lists(&self) -> Result<(), BuildError> {
        self.job.report(Phase::Resolving, None, "package lists");
        let root = self.private_root();
        fs::create_dir_all(root.join("lists/partial"))?;
        fs::create_dir_all(root.join("cache/archives/partial"))?;
        fs::write(
            root.join("sources.list"),
            sources::own_sources(&self.job.host),
        )?;
        self.use_private_lists.set(true);
        // Without this a server that does not answer is only a warning.
        let update = ["-q", "-o", "APT::Update::Error-Mode=any", "update"];
        self.job.run(self.tool("apt-get").args(update), &mut |_| {})
    }

    fn private_root(&self) -> PathBuf {
        self.job.cache.join("apt")
    }

    fn tool(&self, name: &str) -> Tool {
        // Downloads go to folders of ours, which apt's own download user cannot enter.
        let tool = Tool::new(name).args(["-o", "APT::Sandbox::User=root"]);
        if !self.use_private_lists.get() {
            return tool;
        }
        let root = self.private_root();
        let set = |key: &str, path: &Path| format!("{key}={}", path.display());
        tool.arg("-o")
            .arg(set("Dir::Etc::sourcelist", &root.join("sources.list")))
            .args(["-o", "Dir::Etc::sourceparts=/dev/null", "-o"])
            .arg(set("Dir::State::lists", &root.join("lists")))
            .arg("-o")
            .arg(set("Dir::Cache", &root.join("cache")))
    }
}

/// Reads the first paragraph that `apt-cache show` prints.
fn parse_record(text: &str) -> Option<Package> {
    let record = text.split("\n\n").next()?;
    let field = |name: &str| {
        record
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    };
    let depends = ["Pre-Depends", "Depends"]
        .iter()
        .filter_map(|name| field(name))
        .flat_map(|list| list.split(','))
        .filter_map(|entry| entry.split('|').next()?.split_whitespace().next())
        .map(|name| name.split(':').next().unwrap_or(name).to_owned())
        .collect();
    Some(Package {
        name: field("Package")?.to_owned(),
        version: field("Version")?.to_owned(),
        depends,
        download_bytes: field("Size")
            .and_then(|size| size.parse().ok())
            .unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_apt_prints() {
        let text = "Package: linux-image-6.8.0-40-generic\nVersion: 6.8.0-40.40\nSize: 14000000\n\
                    Pre-Depends: dpkg (>= 1)\nDepends: kmod, linux-base (>= 4.5) | x, \
                    linux-modules-6.8.0-40-generic, python3:any\nDescription: x\n Depends: no\n\n\
                    Package: other\nVersion: 1\n";
        let package = parse_record(text).unwrap();
        assert_eq!(package.name, "linux-image-6.8.0-40-generic");
        assert_eq!(package.version, "6.8.0-40.40");
        assert_eq!(
            package.depends,
            [
                "dpkg",
                "kmod",
                "linux-base",
                "linux-modules-6.8.0-40-generic",
                "python3"
            ]
        );
        assert_eq!(parse_record(""), None);
    }
}
