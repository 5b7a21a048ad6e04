//! The folder that a run leaves behind: `result.json`, `samples.csv` and `report.md`.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::report;
use crate::result::{RunResult, SCHEMA};
use crate::samples::{Sample, to_csv};

/// Name of the saved result.
pub const RESULT_FILE: &str = "result.json";
/// Name of the raw samples.
pub const SAMPLES_FILE: &str = "samples.csv";
/// Name of the rendered report.
pub const REPORT_FILE: &str = "report.md";

/// Why a run's files could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// Something is already there; nothing is ever overwritten.
    #[error("{path} is there already", path = path.display())]
    Exists {
        /// The folder that was asked for.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("cannot {action}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Why not; the path stands in it.
        #[source]
        source: io::Error,
    },
    /// A saved result is no JSON of this format.
    #[error("{path} is no result of this version", path = path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A saved result is of another format or version.
    #[error("{path} has schema {found:?}, expected {SCHEMA:?}", path = path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// The schema that it names.
        found: String,
    },
}

fn io_error(action: &'static str) -> impl Fn(io::Error) -> OutputError {
    move |source| OutputError::Io { action, source }
}

/// Where a run that began at `start` puts its files unless told otherwise.
pub fn default_dir(start: Timestamp) -> PathBuf {
    let name = start.strftime("%Y%m%dT%H%M%SZ-file-transfer").to_string();
    Path::new("bench-results").join(name)
}

/// A folder that this run made and nobody else may use.
///
/// It is made before the measurements, so that a bad path costs seconds and not a whole run, and
/// goes away again when nothing was saved.
#[derive(Debug)]
pub struct OutputDir {
    path: PathBuf,
    saved: bool,
}

impl OutputDir {
    /// Makes the folder and its parents; an existing one is refused.
    pub fn claim(path: &Path) -> Result<Self, OutputError> {
        if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("")) {
            fs_err::create_dir_all(parent).map_err(io_error("make the folder for the results"))?;
        }
        match fs_err::create_dir(path) {
            Ok(()) => Ok(Self {
                path: path.to_owned(),
                saved: false,
            }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(OutputError::Exists {
                    path: path.to_owned(),
                })
            }
            Err(error) => Err(io_error("make the folder for the results")(error)),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes samples and result, then renders the report from the file just written.
    pub fn save(&mut self, samples: &[Sample], result: &RunResult) -> Result<(), OutputError> {
        let write = |name: &str, text: &str| {
            fs_err::write(self.path.join(name), text).map_err(io_error("write the results"))
        };
        let json = serde_json::to_string_pretty(result).map_err(|source| OutputError::Format {
            path: self.path.join(RESULT_FILE),
            source,
        })?;
        self.saved = true;
        write(SAMPLES_FILE, &to_csv(samples))?;
        write(RESULT_FILE, &(json + "\n"))?;
        let saved = load(&self.path.join(RESULT_FILE))?;
        write(REPORT_FILE, &report::markdown(&saved))
    }
}

impl Drop for OutputDir {
    fn drop(&mut self) {
        if !self.saved {
            // Removes the folder only while it is empty; a failure leaves an empty folder.
            let _ = fs_err::remove_dir(&self.path);
        }
    }
}

/// Reads a saved result.
pub fn load(path: &Path) -> Result<RunResult, OutputError> {
    let text = fs_err::read_to_string(path).map_err(io_error("read the result"))?;
    let format = |source| OutputError::Format {
        path: path.to_owned(),
        source,
    };
    let value: serde_json::Value = serde_json::from_str(&text).map_err(format)?;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(found) if found != SCHEMA => Err(OutputError::Schema {
            path: path.to_owned(),
            found: found.to_owned(),
        }),
        Some(_) | None => serde_json::from_value(value).map_err(format),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::sample_result;

    #[test]
    fn saves_three_files_and_reads_the_result_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let result = sample_result();
        let mut output = OutputDir::claim(&path).unwrap();
        output.save(&[], &result).unwrap();
        drop(output);
        assert_eq!(load(&path.join(RESULT_FILE)).unwrap(), result);
        let report = std::fs::read_to_string(path.join(REPORT_FILE)).unwrap();
        assert_eq!(report, report::markdown(&result));
        let samples = std::fs::read_to_string(path.join(SAMPLES_FILE)).unwrap();
        assert!(samples.starts_with("metric,"));
    }

    #[test]
    fn refuses_what_is_there_and_leaves_nothing_when_unused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let output = OutputDir::claim(&path).unwrap();
        assert!(matches!(
            OutputDir::claim(&path),
            Err(OutputError::Exists { .. })
        ));
        drop(output);
        assert!(!path.exists());
    }

    #[test]
    fn another_version_is_not_taken_for_this_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(RESULT_FILE);
        std::fs::write(&path, r#"{"schema":"airlock.bench.file-transfer/2"}"#).unwrap();
        assert!(matches!(load(&path), Err(OutputError::Schema { .. })));
        std::fs::write(&path, "{}").unwrap();
        assert!(matches!(load(&path), Err(OutputError::Format { .. })));
        std::fs::write(&path, "no json").unwrap();
        assert!(matches!(load(&path), Err(OutputError::Format { .. })));
    }

    #[test]
    fn the_default_folder_sorts_by_time() {
        let start: Timestamp = "2025-01-02T03:04:05.678Z".parse().unwrap();
        assert_eq!(
            default_dir(start),
            Path::new("bench-results/20250102T030405Z-file-transfer")
        );
    }
}
