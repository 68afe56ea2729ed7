//! `hawkeye advise`: reports what huge pages would save for a process. Measures and changes
//! nothing.
//!
//! ```text
//!  measurement (reads the process) --> facts --> findings --> Advice --> advice_text, or JSON
//!                                                   `-- remedies (commands that would change it)
//! ```
//! Only `measurement` touches the machine. A new finding takes three changes: a variant in
//! `finding`, its condition in `findings` and its sentence in `advice_text`.

mod advice_text;
mod facts;
mod finding;
mod findings;
mod measurement;
mod remedies;

use super::client_options;
use crate::options;
use crate::progress::show_progress_line;
use anyhow::Result;
use clap::Args;
use facts::AdviceFacts;
use finding::Advice;
use serde::Serialize;
use std::process::ExitCode;

/// Measure what a process would gain and waste with huge pages.
///
/// Also measures what address translation costs it now, checks the settings that affect that, and
/// prints commands that would change it.
///
/// Changes nothing: no setting, no page of the process. Like a manager, it samples the process for
/// a few milliseconds at a time, which slows the process down by about 1 %.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye advise $(pidof redis-server)
  hawkeye advise --seconds 60 --json 4711

Exit status 0: the process was measured, whatever the result; 1: it could not
be measured.")]
pub struct AdviseOptions {
    /// Seconds to measure; more seconds rank regions better.
    #[arg(long, value_name = "S", default_value = "30", value_parser = parse_measuring_seconds)]
    seconds: f64,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Process to measure.
    #[arg(value_parser = options::parse_pid)]
    pid: u32,
}

fn parse_measuring_seconds(text: &str) -> Result<f64, String> {
    let seconds: Option<f64> = text.trim().parse().ok();
    let seconds = seconds.filter(|s| (1.0..=3600.0).contains(s));
    seconds.ok_or_else(|| format!("{text:?} is not a number of seconds from 1 to 3600"))
}

#[derive(Serialize)]
struct AdviceReport<'a> {
    #[serde(flatten)]
    advice: &'a Advice,
    sentences: Vec<String>,
    #[serde(flatten)]
    facts: &'a AdviceFacts,
}

impl AdviseOptions {
    pub fn execute(self) -> Result<ExitCode> {
        let show =
            |so_far: &str| show_progress_line(&format!("measuring process {}: {so_far}", self.pid));
        let facts = measurement::measure_process(self.pid, self.seconds, show);
        show_progress_line("");
        let facts = facts?;
        let advice = findings::advice_from_facts(&facts);
        let report = AdviceReport {
            advice: &advice,
            sentences: advice.findings.iter().map(advice_text::finding_sentence).collect(),
            facts: &facts,
        };
        client_options::print_text_or_json(self.json, &report, |_| {
            advice_text::advice_text(&facts, &advice)
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
