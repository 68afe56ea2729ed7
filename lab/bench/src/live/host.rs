//! The machine that experiments run on, taken over for their time.

use super::Scale;
use crate::error::BenchError;
use hawkeye_linux::probe::small_pages::{touch_costs, try_sizes};
use hawkeye_linux::probe::touch_costs::TouchCosts;
use hawkeye_linux::sample::counters::CounterEvents;
use hawkeye_linux::stop::{StopSignals, Waited, let_signals_through};
use hawkeye_linux::takeover::instance::state_dir;
use hawkeye_linux::takeover::thp_settings::{
    THP_DIR, enabled_file, read_setting, restore_leftovers, restrain_khugepaged,
};
use hawkeye_linux::{Means, Takeover};
use hawkeye_policy::BloatThreshold;
use hawkeye_workload::Workload;
use hawkeye_workload::core_set::CoreSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The smallest order of free pages that a virtual machine reports to its hypervisor (mm/page_reporting.c).
const REPORTING: &str = "/sys/module/page_reporting/parameters/page_reporting_order";
/// One more than the largest that there is.
const REPORT_NOTHING: &str = "11";

/// The machine, and the program that workloads are started with.
pub struct Host {
    takeover: Takeover,
    program: PathBuf,
}

impl Host {
    /// Takes the machine over. `program` understands `workload NAME ...`.
    ///
    /// # Errors
    /// Another manager is running, or nothing can be managed here.
    pub fn take_over(program: PathBuf) -> Result<Self, BenchError> {
        restore_on_signals()?;
        let mut takeover = Takeover::begin("bench")?;
        if !takeover.decision().can_manage {
            return Err(BenchError::Impossible(takeover.decision().verdict.clone()));
        }
        // Base pages must be possible: with `always` everything would be huge from the start.
        let enabled = enabled_file();
        if read_setting(&enabled)? != "madvise" {
            takeover.settings().set(&enabled, "madvise")?;
        }
        restrain_khugepaged(takeover.settings(), BloatThreshold::default().zero_pages())?;
        // What is free would go back to the hypervisor after two seconds, and what is measured then is how it is had
        // again.
        let reporting = Path::new(REPORTING);
        if reporting.exists() {
            takeover.settings().set(reporting, REPORT_NOTHING)?;
        }
        Ok(Self { takeover, program })
    }

    /// Uses `bytes` of memory once: a hypervisor may back it only then, and what is measured
    /// afterwards should not be that.
    pub fn warm_up(&self, bytes: u64) -> Result<(), BenchError> {
        let mib = bytes.min(available_bytes() / 10 * 9) >> 20;
        self.start(&format!("burner --mib {mib} --pages huge"))?
            .wait_ready()?;
        Ok(())
    }

    /// The same with all that is free, for experiments that fill memory as fast as they can; not in the short form.
    pub fn warm_up_for(&self, scale: Scale) -> Result<(), BenchError> {
        match scale {
            Scale::Quick => Ok(()),
            Scale::Full => self.warm_up(u64::MAX),
        }
    }

    /// What managing uses, set up anew.
    pub fn means(&self) -> Result<Means, BenchError> {
        let mut means = self.takeover.means()?;
        means.prepare_overhead(&state_dir(), CounterEvents::default())?;
        Ok(means)
    }

    /// Sets a transparent-huge-page setting for the time of the experiments.
    pub fn set_thp(&mut self, file: &str, value: &str) -> Result<(), BenchError> {
        let path = Path::new(THP_DIR).join(file);
        Ok(self.takeover.settings().set(&path, value)?)
    }

    /// Sets one by its path.
    pub fn set_file(&mut self, path: &Path, value: &str) -> Result<(), BenchError> {
        Ok(self.takeover.settings().set(path, value)?)
    }

    /// Puts one back that was set.
    pub fn put_back(&mut self, path: &Path) -> Result<(), BenchError> {
        Ok(self.takeover.settings().put_back(path)?)
    }

    /// What first touches cost, by a child of ours.
    pub fn touch_costs(&mut self) -> Result<TouchCosts, BenchError> {
        let facts = try_sizes(Some(self.takeover.settings()))?;
        touch_costs(&facts).ok_or_else(|| {
            BenchError::Impossible(
                "what first touches cost could not be told: too much goes on".into(),
            )
        })
    }

    /// Sets which faults get huge pages (`always`, `madvise`, `never`) for the time of the experiments.
    pub fn set_enabled(&mut self, value: &str) -> Result<(), BenchError> {
        Ok(self.takeover.settings().set(&enabled_file(), value)?)
    }

    /// The program that workloads are started with.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Starts a workload, given as on the command line.
    pub fn start(&self, words: &str) -> Result<Workload, BenchError> {
        Ok(Workload::spawn_command(self.command(words))?)
    }

    /// Starts a workload that stays on one core.
    ///
    /// # Errors
    /// It can't be started there.
    pub fn start_on(&self, core: usize, words: &str) -> Result<Workload, BenchError> {
        let cores = CoreSet::of(&[core]);
        let cores =
            cores.ok_or_else(|| BenchError::Impossible(format!("there is no core {core}")))?;
        let mut command = self.command(words);
        cores.keep(&mut command);
        Ok(Workload::spawn_command(command)?)
    }

    /// The command for a workload, given as on the command line.
    pub(super) fn command(&self, words: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("workload").args(words.split_whitespace());
        let_signals_through(&mut command);
        command
    }
}

/// Ends the program at SIGINT or SIGTERM, with every setting put back.
fn restore_on_signals() -> Result<(), BenchError> {
    let signals = StopSignals::take_over()?;
    std::thread::spawn(move || {
        loop {
            if let Waited::Signal(signal) = signals.wait(&[], Duration::from_secs(3600)) {
                if let Err(error) = restore_leftovers(&state_dir()) {
                    eprintln!("hawkeye: {error}; `hawkeye restore` tries again");
                }
                std::process::exit(128 + signal);
            }
        }
    });
    Ok(())
}

/// Memory that could be had without pushing anything out, in bytes.
pub fn available_bytes() -> u64 {
    hawkeye_linux::memory::system_memory::machine().map_or(0, |memory| {
        memory.total_bytes.saturating_sub(memory.used_bytes)
    })
}

/// Stops an experiment that would run the machine out of memory.
pub fn need_bytes(bytes: u64) -> Result<(), BenchError> {
    let available = available_bytes();
    if available < bytes + bytes / 8 {
        return Err(BenchError::Impossible(format!(
            "it takes {} MiB of free memory, and {} MiB are free",
            (bytes + bytes / 8) >> 20,
            available >> 20
        )));
    }
    Ok(())
}
