//! The managed session of `run`, `attach` and `daemon`, and its summary.

use super::page_size_switches::{self, ProbedSizeSwitches};
use super::prefault_session::PrefaultSession;
use crate::allocator_env_plan::AllocatorEnvPlan;
use crate::config::{Config, PrefaultMode};
use crate::json_file::JsonFile;
use crate::options::ManageOptions;
use crate::output::print_to_stderr;
use crate::program_resource_use::ProgramResourceUse;
use crate::progress::{ManagerProgress, show_progress_line};
use crate::recording::{ActiveRecording, RecordingTarget};
use crate::session_summary::{self, SessionSummary};
use crate::text_format::format_bytes;
use anyhow::{Result, bail};
use hawkeye_linux::machine_lease::manager_lock::state_dir;
use hawkeye_linux::machine_lease::thp_settings::{KernelThpPlan, KhugepagedMode};
use hawkeye_linux::page_sizes::ThpMode;
use hawkeye_linux::prefault::profile_store::{ProfileStore, profile_dir};
use hawkeye_linux::probe::HostFacts;
use hawkeye_linux::probe::kernel_decision::SamplerKind;
use hawkeye_linux::processes::descriptor_limit::raise_descriptor_limit;
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::sample::walk_costs::{self, CurrentWalkCosts};
use hawkeye_linux::stop_signals::StopSignals;
use hawkeye_linux::{LinuxMachine, MachineLease, ManagedTarget};
use hawkeye_manager::{LoopWakeReason, Machine, Manager, Settings};
use hawkeye_policy::policies::NoPromotion;
use hawkeye_policy::{
    HUGE_PAGE_BYTES, MemoryGuard, Policy, ProcessId, ReserveLimit, SettingsProfile, policies,
};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What the options of `run` or `attach` mean. `usual_profile` holds unless they name another.
fn policy_and_config(
    options: &ManageOptions,
    usual_profile: SettingsProfile,
    warm_bytes: u64,
) -> Result<(Box<dyn Policy>, Config)> {
    let settings = options.manager_settings()?;
    let profile = options.profile.unwrap_or(usual_profile);
    let policy =
        policies::make_policy_by_name(&options.policy_name(profile), &settings.policy_settings())?;
    let config = Config {
        profile,
        settings,
        khugepaged: KhugepagedMode::Off,
        kernel_split: options.kernel_split,
        shared_memory: options.shared_memory,
        align_shared_memory: options.align_shared_memory,
        fill: options.prefault_settings(profile, warm_bytes),
        small_pages: options.small_pages,
        learn: options.learn,
        recording: options.record.clone().map(RecordingTarget::File),
        ..Config::default()
    };
    Ok((policy, config))
}

/// Why the page sizes of a host do not allow what these options of `run` ask for, as a clause;
/// `None`: they do.
pub fn why_page_sizes_refuse(
    host: &HostFacts,
    options: &ManageOptions,
    usual_profile: SettingsProfile,
    warm_bytes: u64,
) -> Result<Option<String>> {
    let (policy, config) = policy_and_config(options, usual_profile, warm_bytes)?;
    let only_guards = wish_beyond_guard(policy.properties().only_recovers, &config).is_none();
    Ok(match only_guards {
        true => host.unsupported_page_sizes(),
        false => host.why_nothing_promoted(),
    })
}

/// The first wish that goes beyond giving memory back, if there is one. It is refused where nothing
/// is promoted. `guards`: the policy only recovers.
fn wish_beyond_guard(guards: bool, config: &Config) -> Option<&'static str> {
    let Config { fill, shared_memory, align_shared_memory, .. } = config;
    let wishes = [
        (config.recording.is_some(), "a recording"),
        (!guards, "another profile or policy than guard"),
        (fill.mode != PrefaultMode::Off, "prefault"),
        (fill.huge_faults, "huge pages at page faults"),
        (config.small_pages != ThpMode::Never, "page sizes at first touches"),
        (*shared_memory || *align_shared_memory, "shared memory"),
    ];
    wishes.into_iter().find_map(|(is_wished, wish)| is_wished.then_some(wish))
}

/// Everything that must be ready before the program is touched: a failure leaves it as it was.
pub struct PreparedSession {
    profile: SettingsProfile,
    lease: MachineLease,
    signals: StopSignals,
    policy: Box<dyn Policy>,
    settings: Settings,
    backend: hawkeye_linux::ChosenKernelMethods,
    prefault: PrefaultSession,
    sizes: Option<ProbedSizeSwitches>,
    learned: Option<ProfileStore>,
    recording: Option<ActiveRecording>,
    shared_memory: bool,
    /// The file for the summary.
    json: Option<JsonFile>,
}

impl PreparedSession {
    /// Takes the machine over for processes; `warm_bytes` are prefaulted when each starts.
    /// `usual_profile` holds unless the options name another.
    pub fn for_run_or_attach(
        options: &ManageOptions,
        usual_profile: SettingsProfile,
        warm_bytes: u64,
        purpose: &str,
    ) -> Result<Self> {
        let (policy, config) = policy_and_config(options, usual_profile, warm_bytes)?;
        // A pipe may wait for its reader here, so a signal must still end this program.
        let json = options.json.as_deref().map(JsonFile::open).transpose()?;
        // First: a signal before this line would leave settings changed until the next start.
        let signals = StopSignals::take_over()?;
        let warm = (config.fill.mode == PrefaultMode::On, warm_bytes);
        let walk_costs = walk_costs_without_waiting;
        let prepared =
            Self::take_over_machine(signals, policy, &config, warm, walk_costs, purpose)?;
        Ok(Self { json, ..prepared })
    }

    pub fn for_daemon(config: &Config) -> Result<Self> {
        let policy =
            policies::make_policy_by_name(&config.policy, &config.settings.policy_settings())?;
        let signals = StopSignals::take_over_with_reload()?;
        Self::take_over_machine(
            signals,
            policy,
            config,
            (false, 0),
            load_or_measure_walk_costs,
            "daemon",
        )
    }

    /// Takes the machine over to measure some processes, and their shared memory where wanted.
    /// No process is changed.
    pub fn for_measurement(
        mut settings: Settings,
        place: RecordingTarget,
        shared_memory: bool,
        purpose: &str,
    ) -> Result<Self> {
        settings.measure_only = true;
        let signals = StopSignals::take_over()?;
        let config = Config {
            settings,
            khugepaged: KhugepagedMode::Leave,
            recording: Some(place),
            shared_memory,
            ..Config::default()
        };
        let policy = Box::new(NoPromotion::WATCHING);
        Self::take_over_machine(
            signals,
            policy,
            &config,
            (false, 0),
            load_or_measure_walk_costs,
            purpose,
        )
    }

    /// A signal to stop that arrived since the machine was taken over, by its number.
    pub fn signal_so_far(&self) -> Option<i32> {
        self.signals.signal_so_far()
    }

    /// Uses `policy` instead of the one of `config`. `fill_required`: fails without prefault.
    fn take_over_machine(
        signals: StopSignals,
        policy: Box<dyn Policy>,
        config: &Config,
        (fill_required, warm_bytes): (bool, u64),
        walk_costs: fn() -> Result<CurrentWalkCosts>,
        purpose: &str,
    ) -> Result<Self> {
        let Config { mut settings, fill, .. } = *config;
        let guards = policy.properties().only_recovers;
        if guards && fill.mode == PrefaultMode::Off {
            // Nothing would use it, and it is memory.
            settings.reserve = ReserveLimit::OFF;
        }
        let prepared = PrefaultSession::start_loading_prefaulter(&fill);
        let mut lease = MachineLease::acquire_and_probe(purpose)?;
        let decision = lease.decision();
        if !decision.can_manage {
            bail!("{} Run `hawkeye doctor` for details.", decision.verdict);
        }
        if let Some(why) = &decision.cannot_promote {
            if let Some(wish) = wish_beyond_guard(guards, config) {
                bail!("{why} Not available here: {wish}.");
            }
        }
        match &decision.cannot_guard {
            Some(why) if guards => {
                bail!("{why} Run `hawkeye doctor` for details.")
            }
            Some(why) => tracing::warn!("{why}"),
            None => {}
        }
        if policy.sample_kinds().reads_access_bits() && decision.sampler == SamplerKind::Population
        {
            print_to_stderr(
                "hawkeye: this kernel shows no accesses: regions are ranked by their number of present pages alone (see `hawkeye doctor`)\n",
            );
        }
        let sees_accesses = decision.sampler == SamplerKind::AccessBits;
        if config.shared_memory && !(sees_accesses && decision.promotes_shared_memory) {
            print_to_stderr(
                "hawkeye: shared memory cannot be promoted here (see `hawkeye doctor`)\n",
            );
        }
        if !settings.measure_only {
            let plan = KernelThpPlan {
                khugepaged: config.khugepaged,
                kernel_split: config.kernel_split,
                align_shared_memory: config.align_shared_memory,
                zero_pages: settings.bloat.zero_pages(),
            };
            // In a container this may fail.
            if let Err(error) = plan.apply_to_kernel_settings(lease.settings()) {
                let refill = "khugepaged may refill recovered memory";
                tracing::warn!("some settings were not changed, and {refill}: {error}");
            }
        }
        let mut backend = lease.set_up_chosen_methods()?;
        if policy.sample_kinds().includes_overhead() {
            match walk_costs() {
                Ok(costs) => backend.enable_overhead_estimate(costs, config.counters),
                Err(error) if guards => {
                    tracing::warn!("recovery cannot see which memory is used most: {error:#}");
                }
                Err(error) => {
                    let other = "can't measure overhead here; --policy hawkeye-g does not need it";
                    return Err(error.context(other));
                }
            }
        }
        // Before the filler starts: it changes settings that this check depends on.
        let sizes =
            page_size_switches::probe_page_size_switches(config.small_pages, lease.settings())?;
        let prefault = PrefaultSession::start_wanted_prefault(
            &fill,
            prepared,
            fill_required,
            warm_bytes,
            MemoryGuard::new(settings.watermarks, settings.pressure_limit_percent)?,
            lease.settings(),
        )?;
        let recording = config.recording.as_ref();
        let recording =
            recording.map(|to| (to, ActiveRecording::start_recording(to.clone(), policy.name())));
        let recording = match recording {
            // Managing the machine does not depend on the recording.
            Some((RecordingTarget::Folder { folder, .. }, Err(error))) => {
                let folder = folder.display();
                tracing::error!("recording into {folder} does not start: {error:#}");
                None
            }
            Some((_, recording)) => Some(recording?),
            None => None,
        };
        Ok(Self {
            profile: config.profile,
            recording,
            signals,
            lease,
            policy,
            settings,
            backend,
            prefault,
            sizes,
            learned: config.learn.then(open_profile_store).flatten(),
            shared_memory: config.shared_memory,
            json: None,
        })
    }

    /// The manager, for callers with a loop of their own.
    pub fn into_active_session(mut self, scope: ManagedTarget) -> Result<ActiveSession> {
        let mut machine = LinuxMachine::new(self.backend, scope, self.signals);
        if self.shared_memory {
            machine.promote_shared_memory();
        }
        self.prefault.hand_prefaulter_to_machine(&mut machine);
        if let Some((switches, costs)) = self.sizes {
            machine.enable_page_size_choice(switches, costs);
        }
        if let Some(learned) = self.learned {
            machine.enable_program_profiles(learned);
        }
        let manager = Manager::new(machine, self.policy, self.settings)?;
        Ok(ActiveSession {
            manager,
            prefault: self.prefault,
            recording: self.recording,
            lease: self.lease,
        })
    }

    /// Manages until the end, or until `step` returns false. `step` gets the time since the start.
    pub fn manage_until_end(
        mut self,
        scope: ManagedTarget,
        mut step: impl FnMut(Duration) -> bool,
    ) -> Result<FinishedSession> {
        let sampler = match self.lease.decision().sampler {
            SamplerKind::AccessBits => "access bits",
            SamplerKind::Damon => "DAMON's estimate",
            SamplerKind::Population => "population",
        };
        let (profile, json) = (self.profile, self.json.take());
        let ActiveSession { mut manager, mut prefault, mut recording, mut lease } =
            self.into_active_session(scope)?;
        let cpu_before = manager.machine().management_costs().cpu;
        let mut progress = ManagerProgress::default();
        while manager.run_due_work_and_wait() != LoopWakeReason::Stop
            && step(manager.machine().now())
        {
            prefault.record_late_start(manager.machine_mut());
            prefault.switch_machine_settings(&manager, lease.settings());
            if let Some(recording) = &mut recording {
                recording.write_new_rows(&mut manager);
            }
            progress.draw_if_due(&manager);
        }
        show_progress_line("");
        prefault.record_late_start(manager.machine_mut());
        if let Some(recording) = &mut recording {
            recording.write_new_rows(&mut manager);
        }
        let policy = manager.policy().name();
        let waited = session_summary::budget_wait_notes(&manager);
        let (mut machine, journal) = manager.into_machine_and_journal();
        machine.read_page_sizes_now();
        machine.save_program_profiles();
        let mut notes = session_summary::notes_from_journal(&journal);
        notes.extend(waited);
        let refused = machine.peak_madv_nohugepage_bytes();
        if refused > 0 {
            let refused = format_bytes(refused);
            notes.push(format!(
                "{refused} were left alone: the program excludes them (MADV_NOHUGEPAGE)"
            ));
        }
        if machine.has_seen_thp_disabled_process() {
            let disabled = "huge pages are disabled for it (PR_SET_THP_DISABLE)";
            notes.push(format!("nothing of a process was promoted: {disabled}"));
        }
        let prefaulted = machine.prefault_statistics().unwrap_or_default();
        let (latest, totals) = (journal.latest_footprint, journal.totals().clone());
        let own_costs = machine.management_costs();
        let summary = SessionSummary {
            subject: String::new(),
            profile,
            policy,
            sampler,
            wall_s: machine.now().as_secs_f64(),
            exit_status: None,
            promoted: totals.promoted,
            first_promotion_s: journal.first_promotion.map(|at| at.as_secs_f64()),
            split: totals.split,
            recovered_bytes: totals.recovered_bytes,
            first_touch: AllocatorEnvPlan::default(),
            filled_ahead_bytes: prefaulted.filled * HUGE_PAGE_BYTES,
            fill_cpu_s: prefaulted.cpu.as_secs_f64(),
            prefault: prefault.start_outcome,
            prefault_pauses: prefaulted.pauses,
            freed_candidates: totals.freed,
            shared_candidates: totals.shared,
            scanned: totals.scanned,
            samples: totals.samples,
            errors: totals.errors,
            page_sizes: machine.observed_page_sizes(),
            manager_cpu_s: own_costs.cpu.saturating_sub(cpu_before).as_secs_f64(),
            longest_call_ms: own_costs.longest_call.as_secs_f64() * 1e3,
            program: ProgramResourceUse {
                rss_peak_bytes: journal.peak_rss_bytes(),
                rss_end_bytes: latest.rss_bytes,
                huge_end_bytes: latest.huge_bytes,
                ..ProgramResourceUse::default()
            },
            footprints: journal.footprints,
            notes,
        };
        Ok(FinishedSession { summary, json, lease: Some(lease), recording })
    }
}

/// Costs of page walks where a program has to start, or to be managed, at once.
fn walk_costs_without_waiting() -> Result<CurrentWalkCosts> {
    let mut measurer = Command::new(std::env::current_exe()?);
    measurer.arg("measure-page-walks");
    measurer.stdin(Stdio::null()).stdout(Stdio::null());
    Ok(CurrentWalkCosts::load_or_measure_meanwhile(&state_dir(), measurer)?)
}

/// Costs of page walks for a manager that can wait. It might manage a process that measures.
fn load_or_measure_walk_costs() -> Result<CurrentWalkCosts> {
    Ok(walk_costs::load_or_measure_costs(&state_dir())?.into())
}

/// Opens the records of learned programs. Managing does not depend on them.
fn open_profile_store() -> Option<ProfileStore> {
    let log = |error: &_| tracing::error!("programs are not learned: {error}");
    ProfileStore::open(profile_dir()).inspect_err(log).ok()
}

pub struct ActiveSession {
    pub manager: Manager<LinuxMachine>,
    pub prefault: PrefaultSession,
    pub recording: Option<ActiveRecording>,
    /// The machine is ours until this is dropped.
    pub lease: MachineLease,
}

/// A session that is over. The machine is still ours until the recording is finished, or this is
/// dropped.
pub struct FinishedSession {
    pub summary: SessionSummary,
    json: Option<JsonFile>,
    // Fields drop in this order: a recording that is not finished may take seconds.
    lease: Option<MachineLease>,
    recording: Option<ActiveRecording>,
}

impl FinishedSession {
    pub fn print_summary_and_save_files(mut self) -> Result<()> {
        print_to_stderr(&self.summary.summary_text());
        let recorded = self.finish_recording();
        if let Some(json) = self.json.take() {
            json.write(&self.summary)?;
        }
        recorded
    }

    /// Restores the machine's settings first: the disk may be slow, or never answer.
    pub fn finish_recording(&mut self) -> Result<()> {
        self.lease = None;
        self.recording.take().map_or(Ok(()), ActiveRecording::finish)
    }
}

pub fn open_target_of_pids(pids: &[u32]) -> Result<(ManagedTarget, Vec<ProcessId>)> {
    raise_descriptor_limit();
    let handles = pids.iter().map(|pid| ProcessHandle::open(*pid));
    let handles: Vec<_> = handles.collect::<Result<_, _>>()?;
    let processes = handles.iter().map(|handle| handle.id).collect();
    Ok((ManagedTarget::Processes(handles), processes))
}

/// The pids of these processes, with this text between them.
pub fn pids_text(processes: &[ProcessId], between: &str) -> String {
    let pids: Vec<String> = processes.iter().map(|process| process.pid.to_string()).collect();
    pids.join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_is_promoted_only_giving_memory_back_is_left() {
        let config = |text: &str| Config::parse("test", text).expect("the configuration is valid");
        assert_eq!(wish_beyond_guard(true, &config("profile = \"guard\"")), None);
        assert!(wish_beyond_guard(false, &config("")).is_some_and(|wish| wish.contains("guard")));
        let recording = config("[recording]\nfolder = \"/tmp/recordings\"");
        assert_eq!(wish_beyond_guard(false, &recording), Some("a recording"), "of `record`, too");
        for (text, wish) in [
            ("[fault_ahead]\nmode = \"auto\"", "prefault"),
            ("[fault_ahead]\nhuge_faults = \"on\"", "huge pages at page faults"),
            ("small_pages = \"all\"", "page sizes at first touches"),
            ("shared_memory = \"on\"", "shared memory"),
            ("align_shared_memory = \"on\"", "shared memory"),
            ("[recording]\nfolder = \"/tmp/recordings\"", "a recording"),
        ] {
            assert_eq!(wish_beyond_guard(true, &config(text)), Some(wish), "{text}");
        }
    }
}
