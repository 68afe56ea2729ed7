//! `hawkeye text`: makes the program text of one process huge, and keeps that if it pays.
//!
//! ```text
//!  candidates (reads the process, and which others map its files) --> TextCandidates
//!                                                                          |
//!  rate_source: counters, or a command --> trial (base, huge, base, ...) <-'
//!                                            `--> TextReport --> text, or JSON
//! ```
//! `hawkeye_policy::text_trial` decides by the rates. Only `hawkeye_linux::promote::program_text`
//! changes pages.

mod candidates;
mod error;
mod rate_source;
mod report;
mod trial;

use super::client_options::print_text_or_json;
use super::daemon::watermark_table;
use crate::config::{Config, find_config_file};
use crate::options;
use crate::output::print_to_stderr;
use crate::progress::show_progress_line;
use anyhow::Result;
use candidates::TextCandidates;
use clap::Args;
use error::TextError;
use hawkeye_linux::machine_lease::manager_lock::{ManagerLock, state_dir};
use hawkeye_linux::probe::read_host_facts;
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::promote::program_text::TextPromoter;
use hawkeye_linux::stop_signals::StopSignals;
use hawkeye_policy::MemoryGuard;
use hawkeye_policy::text_trial::TextTrialPlan;
use rate_source::RateSource;
use report::{TextReport, text_report};
use std::process::ExitCode;
use std::time::Duration;
use trial::TextSession;

/// Make a program's text huge, and keep that if it makes the program faster.
///
/// Takes the regions of 2 MiB that its executable mappings of files hold whole. Windows with base
/// pages and with huge pages alternate. The text stays huge until the process ends if the median
/// gain is 1 % or more, and huge pages are faster in more windows than chance explains.
///
/// The rate is instructions per cycle where this machine counts them, or what a command of yours
/// prints. Where several processes map a file, no call takes its huge pages back, so only --keep
/// promotes it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye text --rate-command /usr/local/bin/requests-served 4711
  hawkeye text --keep $(pidof redis-server)

Exit status 0: the text was huge already, stays huge, or has base pages again
because it gained too little; 1: nothing could be promoted, or the trial failed;
128 and the signal's number: stopped by a signal, with base pages again.")]
pub struct TextOptions {
    /// Promote without a trial. Where several processes map a file, that is final.
    #[arg(long, conflicts_with_all = ["rate_command", "seconds"])]
    keep: bool,

    /// Seconds that the trial takes.
    #[arg(long, value_name = "S", default_value = "60", value_parser = parse_trial_seconds)]
    seconds: Duration,

    /// Command (for sh) that prints one growing number, such as requests served.
    #[arg(long, value_name = "CMD")]
    rate_command: Option<String>,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Process.
    #[arg(value_parser = options::parse_pid)]
    pid: u32,
}

fn parse_trial_seconds(text: &str) -> Result<Duration, String> {
    let seconds = options::parse_seconds(text)?;
    let fits = (3.0..=3600.0).contains(&seconds.as_secs_f64());
    fits.then_some(seconds)
        .ok_or_else(|| format!("{text:?} is not a number of seconds from 3 to 3600"))
}

impl TextOptions {
    pub fn execute(self) -> Result<ExitCode> {
        // First: a signal must not end this program while text is huge for a trial.
        let signals = StopSignals::take_over()?;
        let result = self.promote_and_report(&signals);
        show_progress_line("");
        match result {
            Ok(report) => {
                print_text_or_json(self.json, &report, text_report)?;
                Ok(ExitCode::from(u8::from(!report.outcome.is_success())))
            }
            Err(TextError::Stopped(signal)) => {
                let left = match self.keep {
                    true => "what is promoted so far stays huge",
                    false => "the text has base pages again",
                };
                print_to_stderr(&format!("hawkeye: stopped by signal {signal}: {left}\n"));
                Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX)))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn promote_and_report(&self, signals: &StopSignals) -> Result<TextReport, TextError> {
        if let Some(why) = read_host_facts().why_nothing_promoted() {
            return Err(TextError::PageSizes(why));
        }
        let process = ProcessHandle::open(self.pid)?;
        // The daemon's: its rules say which processes are left alone.
        let config = Config::load_or_default(find_config_file(None))?;
        candidates::check_process_may_be_changed(self.pid, &config)?;
        let rate = match self.keep {
            true => None,
            false => Some(RateSource::choose(self.pid, self.rate_command.clone())?),
        };
        // No manager may promote or split meanwhile.
        let _instance = ManagerLock::claim(&state_dir(), &format!("text {}", self.pid))?;
        let mut promoter = TextPromoter::new(process);
        let found = TextCandidates::find(&mut promoter, self.keep, &config)?;
        let (marks, limit) = (watermark_table(&config), config.settings.pressure_limit_percent);
        let guard = MemoryGuard::new(marks, limit)?;
        let mut session = TextSession::new(promoter, signals, guard, found.regions());
        let mut trial = None;
        match rate {
            _ if found.candidates.is_empty() => {}
            None => session.promote_for_good()?,
            Some(rate) => {
                let plan = TextTrialPlan::for_duration(self.seconds);
                trial = session.try_and_decide(plan, rate)?;
            }
        }
        let huge = session.huge_regions()?;
        Ok(TextReport::new(self.pid, found, &huge, &session.refused, trial))
    }
}
