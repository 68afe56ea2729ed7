//! The machine that experiments run on; the experiment has it for itself.

use super::Scale;
use super::lasting_settings::{LastingSettings, restore_lasting_settings_from_record};
use super::memory_cgroup::remove_cgroups_of_experiments;
use super::programs::program_kind::ProgramKind;
use super::programs::running_process::signal_process_and_descendants;
use crate::error::{BenchError, BenchResult, bail, impossible};
use hawkeye_linux::machine_lease::manager_lock::state_dir;
use hawkeye_linux::machine_lease::restore_settings_on_stop_signals;
use hawkeye_linux::machine_lease::thp_settings::{
    KernelSettingsGuard, KernelThpPlan, KhugepagedMode, THP_DIR, enabled_file,
    start_programs_on_base_pages,
};
use hawkeye_linux::probe;
use hawkeye_linux::probe::mthp_sizes::{FirstTouchCosts, derive_first_touch_costs, try_mthp_sizes};
use hawkeye_linux::sample::counters::EventCodeOverrides;
use hawkeye_linux::sample::walk_costs;
use hawkeye_linux::stop_signals::{StopSignals, unblock_signals_in_child};
use hawkeye_linux::{ChosenKernelMethods, MachineLease};
use hawkeye_policy::BloatThreshold;
use hawkeye_workload::WorkloadProcess;
use hawkeye_workload::core_set::CoreSet;
use nix::sys::signal::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long the cgroups of an experiment may take to end at a stop signal.
const CGROUPS_END_WITHIN: Duration = Duration::from_secs(1);

/// The machine, and the program that starts workloads.
pub struct BenchHost {
    // Declared before the lease, so that they are restored before the lock is released.
    lasting_settings: LastingSettings,
    /// `None` while another manager runs for an experiment.
    lease: Option<MachineLease>,
    program: PathBuf,
    /// The programs to measure where an experiment has several; empty: those it usually has.
    selected: Vec<ProgramKind>,
    session: SessionOptions,
}

/// What a session adds to the kept rounds of an experiment.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// Rounds of each program; `None`: as many as the experiment usually has.
    pub rounds: Option<usize>,
    /// The folder that keeps them; `None`: they are not kept.
    pub folder: Option<PathBuf>,
}

impl BenchHost {
    /// Takes the machine over. `program` accepts the arguments `workload NAME ...`.
    ///
    /// # Errors
    /// Another manager is running, or nothing can be managed here.
    pub fn take_over_machine(program: PathBuf) -> BenchResult<Self> {
        let signals = StopSignals::take_over()?;
        let lease = Some(Self::acquire_and_prepare_lease()?);
        restore_settings_on_stop_signals(signals, || {
            if let Err(error) = restore_lasting_settings_from_record() {
                eprintln!("hawkeye-lab: {error}: the next `hawkeye-lab bench` tries again");
            }
            remove_cgroups_of_experiments(CGROUPS_END_WITHIN);
            // A manager that an experiment has stopped could not restore its settings. It gets its
            // signal when this program has ended.
            signal_process_and_descendants(std::process::id(), Signal::SIGCONT);
        })?;
        let mut lasting_settings = LastingSettings::restore_leftovers_and_start()?;
        lasting_settings.stop_free_page_reporting()?;
        let session = SessionOptions::default();
        Ok(Self { lasting_settings, lease, program, selected: Vec::new(), session })
    }

    /// Sets what this session adds to the kept rounds of experiments.
    pub fn set_session_options(&mut self, session: SessionOptions) {
        self.session = session;
    }

    /// The rounds to measure in this session, where that was chosen.
    pub(crate) fn rounds(&self) -> Option<usize> {
        self.session.rounds
    }

    /// The file that keeps the rounds of an experiment, if they are kept.
    pub(crate) fn kept_rounds_file(&self, experiment: &str) -> Option<PathBuf> {
        let folder = self.session.folder.as_ref()?;
        Some(folder.join(format!("{experiment}-rounds.jsonl")))
    }

    /// Limits experiments with several programs to those of these names, such as `jvm-hash-map`;
    /// empty: no limit.
    ///
    /// # Errors
    /// There is no program of one of the names.
    pub fn select_programs(&mut self, names: &[String]) -> BenchResult<()> {
        self.selected = names.iter().map(|name| name.parse()).collect::<BenchResult<_>>()?;
        Ok(())
    }

    /// The programs to measure, out of `all` that an experiment can run; `usual` where none were
    /// selected.
    ///
    /// # Errors
    /// The experiment runs none of those that were selected.
    pub(crate) fn selected_programs(
        &self,
        all: &[ProgramKind],
        usual: &[ProgramKind],
    ) -> BenchResult<Vec<ProgramKind>> {
        if self.selected.is_empty() {
            return Ok(usual.to_vec());
        }
        let selected = all.iter().copied().filter(|kind| self.selected.contains(kind));
        let selected: Vec<_> = selected.collect();
        if selected.is_empty() {
            let known: Vec<_> = all.iter().map(|kind| kind.command_line_name()).collect();
            bail!("this experiment runs none of these programs; it can run {}", known.join(", "));
        }
        Ok(selected)
    }

    fn acquire_and_prepare_lease() -> BenchResult<MachineLease> {
        let mut lease = MachineLease::acquire_and_probe("bench")?;
        if !lease.decision().can_manage {
            return Err(BenchError::Impossible(lease.decision().verdict.clone()));
        }
        start_programs_on_base_pages(lease.settings())?;
        // khugepaged goes on, but fills nothing again that counts as bloat by default.
        let restrained = KernelThpPlan {
            khugepaged: KhugepagedMode::Leave,
            kernel_split: true,
            align_shared_memory: false,
            zero_pages: BloatThreshold::default().zero_pages(),
        };
        restrained.apply_to_kernel_settings(lease.settings())?;
        Ok(lease)
    }

    /// Releases the machine and takes it over again, with the settings that experiments start from:
    /// what an earlier experiment has set is not left to the next one, also if that failed.
    ///
    /// # Errors
    /// The machine cannot be taken over again.
    pub(super) fn renew_lease(&mut self) -> BenchResult<()> {
        // Its settings are restored before others are set.
        self.lease = None;
        self.lease = Some(Self::acquire_and_prepare_lease()?);
        Ok(())
    }

    fn settings_guard(&mut self) -> BenchResult<&mut KernelSettingsGuard> {
        let none = || impossible!("another manager has the machine now");
        Ok(self.lease.as_mut().ok_or_else(none)?.settings())
    }

    /// Restores all settings but that of free page reporting, and lets another manager have the
    /// machine while `work` runs. Then takes the machine over again, also if `work` fails.
    ///
    /// # Errors
    /// `work` fails, or the machine cannot be taken over again. Of two errors both are reported.
    pub fn release_lease_while<T>(
        &mut self,
        work: impl FnOnce(&Self) -> BenchResult<T>,
    ) -> BenchResult<T> {
        self.release_lease_under_settings(&[], work)
    }

    /// As [`Self::release_lease_while`]. These settings are in force while `work` runs, and are
    /// what the other manager finds.
    pub(crate) fn release_lease_under_settings<T>(
        &mut self,
        settings: &[(PathBuf, String)],
        work: impl FnOnce(&Self) -> BenchResult<T>,
    ) -> BenchResult<T> {
        self.lease = None;
        let mut set = settings.iter();
        let done = set
            .try_for_each(|(file, value)| self.lasting_settings.set(file, value))
            .and_then(|()| work(self));
        let mut set = settings.iter();
        let restored = set.try_for_each(|(file, _)| self.lasting_settings.restore(file));
        match restored.and_then(|()| Self::acquire_and_prepare_lease()) {
            Ok(lease) => self.lease = Some(lease),
            Err(error) => match done {
                Ok(_) => return Err(error),
                Err(first) => bail!("{first}; taking over the machine again also failed: {error}"),
            },
        }
        done
    }

    /// Touches `bytes` of memory once. A hypervisor may back memory only at that point, which
    /// should not be measured later.
    pub fn touch_memory_once(&self, bytes: u64) -> BenchResult<()> {
        let mib = bytes.min(available_memory_bytes() / 10 * 9) >> 20;
        self.start_workload(&format!("burner --mib {mib} --pages huge"))?.wait_ready()?;
        Ok(())
    }

    /// The same for all free memory, for experiments that fill memory as fast as they can; skipped
    /// in the short form.
    pub fn touch_free_memory_if_full_scale(&self, scale: Scale) -> BenchResult<()> {
        match scale {
            Scale::Quick => Ok(()),
            Scale::Full => self.touch_memory_once(u64::MAX),
        }
    }

    pub(crate) fn new_kernel_backend(&self) -> BenchResult<ChosenKernelMethods> {
        let none = || impossible!("another manager has the machine now");
        let lease = self.lease.as_ref().ok_or_else(none)?;
        let mut means = probe::set_up_chosen_methods(lease.decision(), None)?;
        let costs = walk_costs::load_or_measure_costs(&state_dir())?;
        means.enable_overhead_estimate(costs.into(), EventCodeOverrides::default());
        Ok(means)
    }

    /// Sets a transparent-huge-page setting until the experiments end.
    pub fn set_thp_setting(&mut self, file: &str, value: &str) -> BenchResult<()> {
        let path = Path::new(THP_DIR).join(file);
        Ok(self.settings_guard()?.set(&path, value)?)
    }

    pub(crate) fn set_kernel_setting(&mut self, path: &Path, value: &str) -> BenchResult<()> {
        Ok(self.settings_guard()?.set(path, value)?)
    }

    pub(crate) fn restore_kernel_setting(&mut self, path: &Path) -> BenchResult<()> {
        Ok(self.settings_guard()?.put_back(path)?)
    }

    /// Stops the reporting of free pages to the hypervisor. Experiments start with it stopped.
    pub fn stop_free_page_reporting(&mut self) -> BenchResult<()> {
        self.lasting_settings.stop_free_page_reporting()
    }

    /// Restores the reporting of free pages to the hypervisor.
    pub fn restore_free_page_reporting(&mut self) -> BenchResult<()> {
        self.lasting_settings.restore_free_page_reporting()
    }

    /// The costs of first touches, measured by a child process.
    pub fn measure_first_touch_costs(&mut self) -> BenchResult<FirstTouchCosts> {
        let facts = try_mthp_sizes(Some(self.settings_guard()?))?;
        derive_first_touch_costs(&facts).ok_or_else(|| {
            impossible!("measuring the cost of first touches failed: this machine is too busy")
        })
    }

    /// Sets which faults get huge pages (`always`, `madvise`, `never`) until the experiments end.
    pub fn set_thp_enabled(&mut self, value: &str) -> BenchResult<()> {
        Ok(self.settings_guard()?.set(&enabled_file(), value)?)
    }

    pub(crate) fn workload_program_path(&self) -> &Path {
        &self.program
    }

    /// Starts a workload, given as on the command line.
    pub(crate) fn start_workload(&self, words: &str) -> BenchResult<WorkloadProcess> {
        Ok(WorkloadProcess::spawn_command(self.workload_command(words))?)
    }

    /// Starts a workload that stays on one core.
    pub fn start_workload_on_core(&self, core: usize, words: &str) -> BenchResult<WorkloadProcess> {
        let cores = CoreSet::from_core_numbers(&[core]);
        let cores = cores.ok_or_else(|| impossible!("this machine has no core {core}"))?;
        let mut command = self.workload_command(words);
        cores.restrict_command(&mut command);
        Ok(WorkloadProcess::spawn_command(command)?)
    }

    pub(super) fn workload_command(&self, words: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("workload").args(words.split_whitespace());
        unblock_signals_in_child(&mut command);
        command
    }
}

/// Memory available without swapping or evicting anything, in bytes.
pub fn available_memory_bytes() -> u64 {
    hawkeye_linux::memory::system_memory::machine_memory_use()
        .map_or(0, |memory| memory.total_bytes.saturating_sub(memory.used_bytes))
}

/// Fails if an experiment would run the machine out of memory.
pub fn require_available_memory(bytes: u64) -> BenchResult<()> {
    let available = available_memory_bytes();
    if available < bytes + bytes / 8 {
        bail!(
            "the experiment needs {} MiB of free memory, but {} MiB are free",
            (bytes + bytes / 8) >> 20,
            available >> 20
        );
    }
    Ok(())
}
