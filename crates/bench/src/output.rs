//! The folder that a run leaves behind: `result.json`, `samples.csv` and `report.md`.
//!
//! A run of several kinds leaves one such folder for each, named by the kind, and beside them a
//! `report.md` that compares them.

use std::io;
use std::path::{Path, PathBuf};

use airlock_model::Kind;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

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
    #[error("{path} has schema {found:?}, expected {expected:?}", path = path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// The schema that it names.
        found: String,
        /// The one that was to be read.
        expected: &'static str,
    },
}

/// The result of a benchmark, as it is saved and rendered.
pub trait Saved: Serialize + DeserializeOwned {
    /// Name of the benchmark, and of its folders.
    const BENCHMARK: &'static str;
    /// The value of `schema`.
    const SCHEMA: &'static str;

    /// The kind of Space that it speaks of.
    fn kind(&self) -> Kind;
    /// Its report in Markdown.
    fn report(&self) -> String;
    /// The report in Markdown that compares the results of one run.
    fn comparison(results: &[Self]) -> String;
}

fn io_error(action: &'static str) -> impl Fn(io::Error) -> OutputError {
    move |source| OutputError::Io { action, source }
}

/// Where a run of a benchmark that began at `start` puts its files unless told otherwise.
pub fn default_dir<R: Saved>(start: Timestamp) -> PathBuf {
    let time = start.strftime("%Y%m%dT%H%M%SZ");
    Path::new("bench-results").join(format!("{time}-{}", R::BENCHMARK))
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

    /// Writes samples (as CSV) and result of every kind, then renders the reports from the files
    /// just written. Returns what these hold, and the path of the report to read first.
    pub fn save_all<R: Saved>(
        &mut self,
        results: Vec<(String, R)>,
    ) -> Result<(Vec<R>, PathBuf), OutputError> {
        self.saved = true;
        let report = self.path.join(REPORT_FILE);
        let compares = results.len() > 1;
        let mut saved = Vec::new();
        for (samples_csv, result) in results {
            let folder = if compares {
                let folder = self.path.join(result.kind().as_str());
                fs_err::create_dir(&folder).map_err(io_error("make the folder of a kind"))?;
                folder
            } else {
                self.path.clone()
            };
            saved.push(save(&folder, &samples_csv, &result)?);
        }
        if compares {
            write(&report, &R::comparison(&saved))?;
        }
        Ok((saved, report))
    }
}

fn save<R: Saved>(folder: &Path, samples_csv: &str, result: &R) -> Result<R, OutputError> {
    let path = folder.join(RESULT_FILE);
    let json = serde_json::to_string_pretty(result).map_err(|source| OutputError::Format {
        path: path.clone(),
        source,
    })?;
    write(&folder.join(SAMPLES_FILE), samples_csv)?;
    write(&path, &(json + "\n"))?;
    let saved: R = load(&path)?;
    write(&folder.join(REPORT_FILE), &saved.report())?;
    Ok(saved)
}

fn write(path: &Path, text: &str) -> Result<(), OutputError> {
    fs_err::write(path, text).map_err(io_error("write the results"))
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
pub fn load<R: Saved>(path: &Path) -> Result<R, OutputError> {
    let text = fs_err::read_to_string(path).map_err(io_error("read the result"))?;
    let format = |source| OutputError::Format {
        path: path.to_owned(),
        source,
    };
    let value: serde_json::Value = serde_json::from_str(&text).map_err(format)?;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(found) if found != R::SCHEMA => Err(OutputError::Schema {
            path: path.to_owned(),
            found: found.to_owned(),
            expected: R::SCHEMA,
        }),
        Some(_) | None => serde_json::from_value(value).map_err(format),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::RunResult;
    use crate::result::tests::{sample_result, sample_result_of};

    #[test]
    fn saves_three_files_and_reads_the_result_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let result = sample_result();
        let mut output = OutputDir::claim(&path).unwrap();
        let (saved, report) = output
            .save_all(vec![("metric,\n".to_owned(), result.clone())])
            .unwrap();
        drop(output);
        assert_eq!(saved, std::slice::from_ref(&result));
        assert_eq!(load::<RunResult>(&path.join(RESULT_FILE)).unwrap(), result);
        assert_eq!(std::fs::read_to_string(report).unwrap(), result.report());
        let samples = std::fs::read_to_string(path.join(SAMPLES_FILE)).unwrap();
        assert_eq!(samples, "metric,\n");
        assert_eq!(std::fs::read_dir(path).unwrap().count(), 3);
    }

    #[test]
    fn several_kinds_have_a_folder_each_and_one_report() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let results = [Kind::Container, Kind::Vm].map(sample_result_of);
        let mut output = OutputDir::claim(&path).unwrap();
        let (_, report) = output
            .save_all(results.iter().map(|r| (String::new(), r.clone())).collect())
            .unwrap();
        for result in &results {
            let folder = path.join(result.kind().as_str());
            assert_eq!(
                &load::<RunResult>(&folder.join(RESULT_FILE)).unwrap(),
                result
            );
            assert!(folder.join(SAMPLES_FILE).is_file());
            let own = std::fs::read_to_string(folder.join(REPORT_FILE)).unwrap();
            assert_eq!(own, result.report());
        }
        assert_eq!(report, path.join(REPORT_FILE));
        let text = std::fs::read_to_string(report).unwrap();
        assert_eq!(text, RunResult::comparison(&results));
        assert_eq!(std::fs::read_dir(path).unwrap().count(), 3);
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
        let read = || load::<RunResult>(&path).unwrap_err();
        std::fs::write(&path, r#"{"schema":"airlock.bench.file-transfer/1"}"#).unwrap();
        assert!(matches!(read(), OutputError::Schema { .. }));
        std::fs::write(&path, "{}").unwrap();
        assert!(matches!(read(), OutputError::Format { .. }));
        std::fs::write(&path, "no json").unwrap();
        assert!(matches!(read(), OutputError::Format { .. }));
    }

    #[test]
    fn the_default_folder_sorts_by_time() {
        let start: Timestamp = "2025-01-02T03:04:05.678Z".parse().unwrap();
        assert_eq!(
            default_dir::<RunResult>(start),
            Path::new("bench-results/20250102T030405Z-file-transfer")
        );
    }
}
