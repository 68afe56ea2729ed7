//! `hawkeye advise`: reports what huge pages would save for a process. Measures and changes
//! nothing.
//!
//! ```text
//!  measurement (reads the process) --> facts --> findings --> Advice --> advice_text, or JSON
//!                                                   `-- remedies (commands that would change it)
//!  on kernels with other page sizes: measurement (reads the process) --> unmeasured, or JSON
//!  --all, --cgroup: super::forecast (reads all processes) --> forecast_text, or JSON
//!  --shared-memory: shared_memory_survey (reads all processes) --> shared_memory_list, or JSON
//! ```
//! Only `measurement` and the two that read all processes touch the machine. A new finding takes
//! three changes: a variant in `finding`, its condition in `findings` and its sentence in
//! `advice_text`.

mod advice_text;
mod facts;
mod finding;
mod findings;
mod measurement;
mod remedies;
mod shared_memory_list;
mod unmeasured;

use super::client_options::print_text_or_json;
use super::forecast::{self, RecoverySettings};
use super::unmanaged_kernel::UnmanagedKernel;
use crate::options;
use crate::progress::show_progress_line;
use anyhow::{Result, bail};
use clap::Args;
use facts::AdviceFacts;
use finding::Advice;
use hawkeye_linux::memory::cgroup_limits::find_memory_hierarchy;
use hawkeye_linux::probe::read_host_facts;
use hawkeye_linux::processes::huge_page_context::ThpSettings;
use hawkeye_linux::sample::shared_memory_survey::survey_shared_memory;
use serde::Serialize;
use shared_memory_list::{SharedMemoryList, shared_memory_text};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use unmeasured::{UnmeasuredAdvice, unmeasured_advice_text};

/// Measure what a process would gain and waste with huge pages.
///
/// Also measures what address translation costs it now, checks the settings that affect that, and
/// prints commands that would change it.
///
/// With --all or --cgroup: a forecast of memory for each cgroup, if the kernel gave huge pages to
/// every program (enabled=always), without and with the profile `guard`.
///
/// With --shared-memory: each file of shared memory that a process of this machine maps, whether it
/// can become huge, and what would change that.
///
/// Changes nothing: no setting, no page of the process. Like a manager, it samples the process for
/// a few milliseconds at a time, which slows the process down by about 1 %. For a forecast it reads
/// page tables only, and rests between reads. For the list of shared memory it reads the mappings
/// of each process, and rests in the same way.
///
/// On a kernel with base pages of another size than 4 KiB, no process is measured. The advice on it
/// then rests on what it holds, on its allocator, its limits and the kernel's settings.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye advise $(pidof redis-server)
  hawkeye advise --seconds 60 --json 4711
  hawkeye advise --all
  hawkeye advise --cgroup /system.slice/redis.service
  hawkeye advise --shared-memory

Exit status 0: the process was measured, whatever the result, or there is
advice without a measurement; 1: it could not be measured.")]
pub struct AdviseOptions {
    /// Forecast the memory of every cgroup with huge pages for all programs.
    #[arg(long, conflicts_with_all = ["cgroup", "pid", "shared_memory"])]
    all: bool,

    /// Forecast the memory of a cgroup and of those below it.
    #[arg(
        long,
        value_name = "PATH",
        conflicts_with_all = ["pid", "shared_memory"],
        value_parser = parse_cgroup_path
    )]
    cgroup: Option<PathBuf>,

    /// List the shared memory of all processes, and what keeps it from huge pages.
    #[arg(long, conflicts_with = "pid")]
    shared_memory: bool,

    /// Seconds to measure; more seconds rank regions better. Forecasts and lists end earlier if
    /// they can.
    #[arg(long, value_name = "S", default_value = "30", value_parser = parse_measuring_seconds)]
    seconds: f64,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Process to measure.
    #[arg(
        value_parser = options::parse_pid,
        required_unless_present_any = ["all", "cgroup", "shared_memory"]
    )]
    pid: Option<u32>,
}

fn parse_cgroup_path(text: &str) -> Result<PathBuf, String> {
    // Components, so that a slash at the end does not matter.
    let path: PathBuf = Path::new(text).components().collect();
    let whole = path.is_absolute() && !text.split('/').any(|part| part == "..");
    let example = "such as /system.slice/redis.service";
    whole.then_some(path).ok_or(format!("{text:?} is not the path of a cgroup, {example}"))
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
        match (self.pid, &self.cgroup) {
            (Some(pid), _) => self.advise_on_process(pid)?,
            (None, Some(cgroup)) => self.forecast_below(cgroup)?,
            (None, None) if self.shared_memory => self.list_shared_memory()?,
            (None, None) => self.forecast_below(Path::new("/"))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn advise_on_process(&self, pid: u32) -> Result<()> {
        if let Some(kernel) = UnmanagedKernel::of_this_machine() {
            let facts = measurement::read_unmeasured_process(pid, kernel)?;
            let advice = UnmeasuredAdvice::new(facts);
            return print_text_or_json(self.json, &advice, unmeasured_advice_text);
        }
        let show = |so_far: &str| show_progress_line(&format!("measuring process {pid}: {so_far}"));
        let facts = measurement::measure_process(pid, self.seconds, show);
        show_progress_line("");
        let facts = facts?;
        let advice = findings::advice_from_facts(&facts);
        let report = AdviceReport {
            advice: &advice,
            sentences: advice.findings.iter().map(advice_text::finding_sentence).collect(),
            facts: &facts,
        };
        print_text_or_json(self.json, &report, |_| advice_text::advice_text(&facts, &advice))
    }

    fn forecast_below(&self, cgroup: &Path) -> Result<()> {
        let below_root = cgroup.strip_prefix("/").unwrap_or(cgroup);
        if find_memory_hierarchy().is_some_and(|(_, root)| !root.join(below_root).is_dir()) {
            bail!("there is no cgroup {} with a memory controller", cgroup.display());
        }
        show_progress_line("reading the memory of all processes");
        let settings = RecoverySettings::of_config_file(None);
        let forecast = forecast::measure_forecast(cgroup, &settings, self.seconds);
        show_progress_line("");
        print_text_or_json(self.json, &forecast?, forecast::forecast_text)
    }

    fn list_shared_memory(&self) -> Result<()> {
        if let Some(why) = read_host_facts().why_nothing_promoted() {
            bail!("which shared memory can become huge is not known: {why}");
        }
        show_progress_line("reading the mappings of all processes");
        let survey = survey_shared_memory(Instant::now() + Duration::from_secs_f64(self.seconds));
        show_progress_line("");
        let list = SharedMemoryList::new(survey?, ThpSettings::read().shmem_enabled);
        print_text_or_json(self.json, &list, shared_memory_text)
    }
}
