//! The managed session of `run`, `attach` and `daemon`, and its summary.

use super::choosing::{self, Offered};
use super::filling::Filling;
use crate::config::Config;
use crate::options::{self, ManagingOptions};
use crate::program::ProgramUse;
use crate::progress::Progress;
use crate::recording::{Place, Recording};
use crate::summary::{self, Summary};
use anyhow::{Context, Result, bail};
use hawkeye_linux::prefault::learned::{Learned, learned_dir};
use hawkeye_linux::probe::decide::SamplerKind;
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::stop::StopSignals;
use hawkeye_linux::takeover::instance::state_dir;
use hawkeye_linux::takeover::thp_settings::{KernelRules, Khugepaged};
use hawkeye_linux::{LinuxMachine, Scope, Takeover};
use hawkeye_manager::{Machine, Manager, Settings, Wake};
use hawkeye_policy::policies::NoPromotion;
use hawkeye_policy::{HUGE_PAGE_BYTES, Policy, policies};
use std::time::Duration;

/// Everything that must be ready before the program is touched: a failure leaves the program as it
/// was.
pub struct Session {
    takeover: Takeover,
    signals: StopSignals,
    policy: Box<dyn Policy>,
    settings: Settings,
    means: hawkeye_linux::Means,
    filling: Filling,
    sizes: Option<Offered>,
    learned: Option<Learned>,
    recording: Option<Recording>,
}

impl Session {
    /// Takes the machine over for a program or for several processes.
    ///
    /// `warm_bytes` are prefaulted when each process starts.
    pub fn begin(options: &ManagingOptions, warm_bytes: u64, purpose: &str) -> Result<Self> {
        let settings = options.settings()?;
        let policy = options::policy(&options.policy, &settings)?;
        // First: a signal before this line would leave settings changed until the next start.
        let signals = StopSignals::take_over()?;
        let (fill, fill_required) = options.fill_settings(warm_bytes);
        let config = Config {
            settings,
            khugepaged: Khugepaged::Off,
            kernel_split: options.kernel_split,
            fill,
            small_pages: options.small_pages,
            learn: options.learn,
            recording: options.record.clone().map(Place::File),
            ..Config::default()
        };
        let warm = (fill_required, warm_bytes);
        Self::take_over(signals, policy, &config, warm, purpose)
    }

    /// Takes the machine over for the daemon.
    pub fn of_daemon(config: &Config) -> Result<Self> {
        let policy = policies::by_name(&config.policy, &config.policy_settings)?;
        let signals = StopSignals::take_over_with_reload()?;
        Self::take_over(signals, policy, config, (false, 0), "daemon")
    }

    /// Takes the machine over to measure some processes. No process is changed.
    pub fn to_measure(settings: Settings, place: Place, purpose: &str) -> Result<Self> {
        let settings = Settings {
            measure_only: true,
            ..settings
        };
        let signals = StopSignals::take_over()?;
        let config = Config {
            settings,
            khugepaged: Khugepaged::Leave,
            recording: Some(place),
            ..Config::default()
        };
        let policy = Box::new(NoPromotion::WATCHING);
        Self::take_over(signals, policy, &config, (false, 0), purpose)
    }

    /// `fill_required`: it is an error if memory can't be prefaulted. The policy is given, not that
    /// of `config`.
    fn take_over(
        signals: StopSignals,
        policy: Box<dyn Policy>,
        config: &Config,
        (fill_required, warm_bytes): (bool, u64),
        purpose: &str,
    ) -> Result<Self> {
        let Config { settings, fill, .. } = *config;
        let prepared = Filling::prepare(&fill);
        let mut takeover = Takeover::begin(purpose)?;
        let decision = takeover.decision();
        if !decision.can_manage {
            bail!("{} Run `hawkeye doctor` for details.", decision.verdict);
        }
        if policy.needs().accesses() && decision.sampler == SamplerKind::Population {
            eprintln!(
                "hawkeye: this kernel shows no accesses: regions are ranked by their number of present pages alone (see `hawkeye doctor`)"
            );
        }
        if !settings.measure_only {
            let rules = KernelRules {
                khugepaged: config.khugepaged,
                kernel_split: config.kernel_split,
                zero_pages: settings.bloat.zero_pages(),
            };
            // In a container this may fail. khugepaged may then slowly refill what is recovered.
            if let Err(error) = rules.apply(takeover.settings()) {
                tracing::warn!(
                    "khugepaged keeps its settings and may refill recovered memory: {error}"
                );
            }
        }
        let mut means = takeover.means()?;
        if policy.needs().overhead() {
            means
                .prepare_overhead(&state_dir(), config.counters)
                .context("can't measure overhead here; --policy hawkeye-g does not need it")?;
        }
        // Before the filler starts: it changes settings that this check depends on.
        let sizes = choosing::offer(config.small_pages, takeover.settings())?;
        let filling = Filling::begin(
            &fill,
            prepared,
            fill_required,
            warm_bytes,
            takeover.settings(),
        )?;
        let recording = match config.recording.clone() {
            None => None,
            Some(place) => match (Recording::begin(place.clone(), policy.name()), place) {
                (Ok(recording), _) => Some(recording),
                // Managing the machine does not depend on the recording.
                (Err(error), Place::Folder { folder, .. }) => {
                    tracing::error!(
                        "recording into {} does not start: {error:#}",
                        folder.display()
                    );
                    None
                }
                (Err(error), Place::File(_)) => return Err(error),
            },
        };
        Ok(Self {
            recording,
            signals,
            takeover,
            policy,
            settings,
            means,
            filling,
            sizes,
            learned: config.learn.then(open_learned).flatten(),
        })
    }

    /// The manager, for callers with a loop of their own. The machine is ours until the lease is
    /// dropped.
    pub fn into_manager(mut self, scope: Scope) -> Result<Working> {
        let mut machine = LinuxMachine::new(self.means, scope, self.signals);
        self.filling.attach(&mut machine);
        if let Some((switches, costs)) = self.sizes {
            machine.choose_sizes_with(switches, costs);
        }
        if let Some(learned) = self.learned {
            machine.learn(learned);
        }
        let manager = Manager::new(machine, self.policy, self.settings)?;
        Ok(Working {
            manager,
            filling: self.filling,
            recording: self.recording,
            takeover: self.takeover,
        })
    }

    /// Manages until the end, or until `step` returns false. `step` receives the time
    /// since the start. It may read what will be gone afterwards.
    pub fn manage(self, scope: Scope, mut step: impl FnMut(Duration) -> bool) -> Result<Managed> {
        let sampler = match self.takeover.decision().sampler {
            SamplerKind::AccessBits => "access bits",
            SamplerKind::Damon => "DAMON's estimate",
            SamplerKind::Population => "population",
        };
        let cpu_before = hawkeye_linux::processes::process::own_cpu();
        let Working {
            mut manager,
            mut filling,
            mut recording,
            mut takeover,
        } = self.into_manager(scope)?;
        let mut progress = Progress::new();
        while manager.step() != Wake::Stop && step(manager.machine().now()) {
            filling.update(&manager, takeover.settings());
            if let Some(recording) = &mut recording {
                recording.take(&mut manager);
            }
            progress.draw(&manager);
        }
        progress.line.clear();
        if let Some(recording) = &mut recording {
            recording.take(&mut manager);
        }
        let policy = manager.policy().name();
        let (mut machine, journal) = manager.finish();
        machine.look_at_sizes();
        machine.finish_learning();
        let mut notes = summary::notes(&journal);
        let refused = machine.refused_bytes();
        if refused > 0 {
            notes.push(format!(
                "{} were left alone: the program excludes them (MADV_NOHUGEPAGE)",
                crate::words::bytes(refused)
            ));
        }
        if machine.saw_thp_disabled() {
            notes.push(
                "a process was left alone: huge pages are disabled for it (PR_SET_THP_DISABLE)"
                    .into(),
            );
        }
        let filled = machine.filled_ahead().unwrap_or_default();
        let latest = journal.latest();
        let totals = journal.totals().clone();
        let summary = Summary {
            subject: String::new(),
            policy,
            sampler,
            wall_s: machine.now().as_secs_f64(),
            exit_status: None,
            promoted: totals.promoted,
            split: totals.split,
            recovered_bytes: totals.recovered_bytes,
            filled_ahead_bytes: filled.filled * HUGE_PAGE_BYTES,
            fill_cpu_s: filled.cpu.as_secs_f64(),
            freed_candidates: totals.freed,
            shared_candidates: totals.shared,
            scanned: totals.scanned,
            samples: totals.samples,
            errors: totals.errors,
            page_sizes: machine.sizes_seen(),
            manager_cpu_s: machine
                .own_costs()
                .cpu
                .saturating_sub(cpu_before)
                .as_secs_f64(),
            longest_call_ms: machine.own_costs().longest_call.as_secs_f64() * 1e3,
            program: ProgramUse {
                rss_peak_bytes: journal.peak_rss_bytes(),
                rss_end_bytes: latest.rss_bytes,
                huge_end_bytes: latest.huge_bytes,
                ..ProgramUse::default()
            },
            footprints: journal.footprints().to_vec(),
            notes,
        };
        Ok(Managed {
            summary,
            recording,
            _takeover: takeover,
        })
    }
}

/// Opens the records of learned programs. Managing does not depend on them.
fn open_learned() -> Option<Learned> {
    let learned = Learned::open(learned_dir());
    learned
        .inspect_err(|error| tracing::error!("programs are not learned: {error}"))
        .ok()
}

/// A running session.
pub struct Working {
    /// The manager.
    pub manager: Manager<LinuxMachine>,
    /// What is prefaulted.
    pub filling: Filling,
    /// The recording, if there is one.
    pub recording: Option<Recording>,
    /// The machine is ours until this is dropped.
    pub takeover: Takeover,
}

/// A session that is over. The machine is still ours until this is dropped.
pub struct Managed {
    /// Its summary.
    pub summary: Summary,
    recording: Option<Recording>,
    _takeover: Takeover,
}

impl Managed {
    /// Prints the summary, writes it to the file in the options, and ends the recording.
    pub fn report(mut self, options: &ManagingOptions) -> Result<()> {
        eprint!("{}", self.summary);
        let recorded = self.end_recording();
        if let Some(path) = &options.json {
            self.summary.write_json(path)?;
        }
        recorded
    }

    /// Ends the recording, where there is one.
    pub fn end_recording(&mut self) -> Result<()> {
        self.recording.take().map_or(Ok(()), Recording::finish)
    }
}

/// Checks that the processes run. Returns their scope, and their ids as text.
pub fn running(pids: &[u32]) -> Result<(Scope, Vec<String>)> {
    let handles = pids.iter().map(|pid| ProcessHandle::open(*pid));
    let scope = Scope::Processes(handles.collect::<Result<_, _>>()?);
    Ok((scope, pids.iter().map(u32::to_string).collect()))
}
