//! What the figures depend on besides Airlock: the host, the software and its load.
//!
//! Nothing here identifies the person or the machine: no host name, user name, address or path.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

mod parse;

/// CPU features that change how fast bytes are hashed, copied or emulated.
const FLAGS_OF_INTEREST: &[&str] = &[
    "sha_ni",
    "avx2",
    "avx512f",
    "aes",
    "vmx",
    "svm",
    "hypervisor",
    "sha2",
    "asimd",
];

/// The machine that ran the benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// The processor, as the kernel names it.
    pub cpu_model: String,
    /// Which of the features that matter here it has.
    pub cpu_flags: Vec<String>,
    /// Processors that this process may use.
    pub cpus: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Kernel name, release and architecture.
    pub kernel: String,
    /// The distribution, as it names itself.
    pub os: String,
    /// File system of the Spaces' folder.
    pub home_fs: String,
    /// File system that holds the benchmark's own files on the host.
    pub scratch_fs: String,
}

/// The programs that took part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Software {
    /// Airlock's version and build.
    pub airlock_version: String,
    /// SHA-256 of each program, and of the image of a Space made for the run.
    pub binaries: Vec<Binary>,
    /// First line of QEMU's version, or why there is none.
    pub qemu: String,
}

/// One program and what identifies it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Binary {
    /// What it is, for example `airlock`.
    pub name: String,
    /// Its SHA-256 in hexadecimal, or its build id where the file cannot be read.
    pub sha256: String,
}

/// Average runnable tasks over 1, 5 and 15 minutes.
pub type LoadAverage = [f64; 3];

impl Host {
    /// Looks at this machine. What cannot be found out reads `unknown`.
    pub fn capture(home: &Path, scratch: &Path) -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let mounts = read("/proc/self/mountinfo");
        let file_system = |path: &Path| {
            let path = fs_err::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            parse::file_system_of(&mounts, &path).unwrap_or_else(unknown)
        };
        Self {
            cpu_model: parse::cpu_model(&cpuinfo).unwrap_or_else(unknown),
            cpu_flags: parse::cpu_flags(&cpuinfo, FLAGS_OF_INTEREST),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: parse::memory_mib(&read("/proc/meminfo")).unwrap_or(0),
            kernel: format!(
                "{} {} {}",
                read("/proc/sys/kernel/ostype").trim(),
                read("/proc/sys/kernel/osrelease").trim(),
                std::env::consts::ARCH
            ),
            os: parse::os_name(&read("/etc/os-release")).unwrap_or_else(unknown),
            home_fs: file_system(home),
            scratch_fs: file_system(scratch),
        }
    }
}

impl Software {
    /// Looks at the programs of this run; hashes the running executable.
    pub fn capture(airlock_version: &str) -> Self {
        let own = std::env::current_exe()
            .and_then(|path| sha256_of_file(&path))
            .unwrap_or_else(|error| format!("unknown ({error})"));
        Self {
            airlock_version: airlock_version.to_owned(),
            binaries: vec![Binary {
                name: "airlock".to_owned(),
                sha256: own,
            }],
            qemu: qemu_version(),
        }
    }

    /// The same with some more programs.
    #[must_use]
    pub fn with(&self, binaries: &[Binary]) -> Self {
        let mut all = self.clone();
        all.binaries.extend_from_slice(binaries);
        all
    }
}

/// The load right now, or zeros where the system does not say.
pub fn load_average() -> LoadAverage {
    parse::load_average(&read("/proc/loadavg")).unwrap_or_default()
}

fn qemu_version() -> String {
    let program = format!("qemu-system-{}", std::env::consts::ARCH);
    match Command::new(&program).arg("--version").output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout)
            .lines()
            .next()
            .map_or_else(unknown, str::to_owned),
        Err(error) => format!("unknown ({program}: {error})"),
    }
}

fn sha256_of_file(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut file = fs_err::File::open(path)?;
    let mut hasher = airlock_digest::FileHasher::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish().to_string()),
            n => hasher.update(&buffer[..n]),
        }
    }
}

fn read(path: &str) -> String {
    fs_err::read_to_string(path).unwrap_or_default()
}

fn unknown() -> String {
    "unknown".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_described() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::capture(dir.path(), dir.path());
        assert!(host.cpus >= 1);
        assert!(host.kernel.contains(std::env::consts::ARCH));
        assert_eq!(host.home_fs, host.scratch_fs);
        if cfg!(target_os = "linux") {
            assert!(host.memory_mib > 0);
            assert_ne!(host.home_fs, "unknown");
        }
    }

    #[test]
    fn the_running_program_is_identified() {
        let software = Software::capture("1.2.3");
        assert_eq!(software.binaries[0].sha256.len(), 64);
        assert!(!software.qemu.is_empty());
    }
}
