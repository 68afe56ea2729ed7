//! `hawkeye report`: shows a recording.

use super::client_options;
use crate::memory_limit::with_memory_limit;
use crate::report::{RecordingExtent, RecordingReport, ReportBuilder, html_page, report_text};
use anyhow::{Context, Result};
use clap::Args;
use hawkeye_recording::{RecordingError, RecordingRow, RecordingRows};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show a recording: tables and maps of coverage as text, as JSON, or as a page for a browser.
///
/// FILE was written by `hawkeye record`, by --record of run, attach and sim run, or by the daemon.
/// It may be a file, a folder, or the FILE.part that a killed manager has left.
#[derive(Args)]
#[command(
    after_help = "\
Example:
  hawkeye report redis.parquet --html redis.html
`hawkeye help report` describes all options in full.",
    after_long_help = "\
Example:
  hawkeye report redis.parquet --html redis.html"
)]
pub struct ReportOptions {
    /// Recording to show.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,

    /// Write a page of HTML that needs no network and no other file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Memory that a report may need, besides four times the length of its file: mostly for maps.
const MOST_BYTES: u64 = 1 << 30;

impl ReportOptions {
    pub fn execute(self) -> Result<ExitCode> {
        let report = summarize_within_memory_limit(&self.file).map_err(|error| {
            match error.message_names_file() {
                true => anyhow::Error::from(error),
                false => anyhow::Error::from(error).context(self.file.display().to_string()),
            }
        })?;
        if let Some(path) = &self.html {
            write_private_file(path, &html_page(&report)?)?;
        }
        client_options::print_text_or_json(self.json, &report, report_text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn summarize_within_memory_limit(path: &Path) -> Result<RecordingReport, RecordingError> {
    let length = path.metadata().map_or(0, |found| found.len());
    let most_bytes = MOST_BYTES.saturating_add(length.saturating_mul(4));
    with_memory_limit(most_bytes, path, || summarize_recording(path))
}

/// Writes a file that only its owner may read when it is new: addresses help to attack a process.
fn write_private_file(path: &Path, text: &str) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("can't write {}", path.display()))
}

/// Reads the recording twice: first for its extent, then for its contents.
fn summarize_recording(path: &Path) -> Result<RecordingReport, RecordingError> {
    let mut extent = RecordingExtent::default();
    for_each_row(RecordingRows::open(path)?, |row| extent.add_row(&row))?;
    let mut summing = ReportBuilder::for_recording_extent(extent);
    let rows = RecordingRows::open(path)?;
    let (about, unfinished) = (rows.origin().clone(), rows.is_unfinished());
    let bad_rows = for_each_row(rows, |row| summing.add_row(&row))?;
    Ok(summing.finish(&about, unfinished, bad_rows))
}

/// Passes every row to `look`. Returns the number of rows that could not be read.
fn for_each_row(
    rows: RecordingRows,
    mut look: impl FnMut(RecordingRow),
) -> Result<u64, RecordingError> {
    let mut bad_rows = 0;
    for row in rows {
        match row {
            Ok(row) => look(row),
            Err(RecordingError::Value { .. }) => bad_rows += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(bad_rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_the_owner_may_read_a_new_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("report.html");
        for text in ["first, and longer", "second"] {
            write_private_file(&path, text).expect("the file is written");
            let found = std::fs::read_to_string(&path).expect("the file can be read");
            assert_eq!(found, text);
        }
        let mode = path.metadata().expect("the file exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
