//! What `run`, `attach` and `daemon` have in common: the managed session; and its summary.

use super::choosing::Choosing;
use super::filling::Filling;
use crate::config::{Config, FillSettings, Switch};
use crate::options::ManagingOptions;
use crate::program::ProgramUse;
use crate::progress::Progress;
use crate::recording::{Place, Recording};
use crate::summary::{self, Summary};
use anyhow::{Context, Result, bail};
use hawkeye_linux::page_sizes::GivenTo;
use hawkeye_linux::prefault::learned::{Learned, learned_dir};
use hawkeye_linux::probe::decide::SamplerKind;
use hawkeye_linux::sample::counters::CounterEvents;
use hawkeye_linux::stop::StopSignals;
use hawkeye_linux::takeover::instance::state_dir;
use hawkeye_linux::takeover::thp_settings::{KernelRules, Khugepaged};
use hawkeye_linux::{LinuxMachine, Scope, Takeover};
use hawkeye_manager::{Machine, Manager, Settings, Wake};
use hawkeye_policy::policies::NoPromotion;
use hawkeye_policy::{HUGE_PAGE_BYTES, Policy, policies};

/// Everything needed before the program is touched, so that what fails leaves it untouched.
pub struct Session {
    takeover: Takeover,
    signals: StopSignals,
    policy: Box<dyn Policy>,
    settings: Settings,
    means: hawkeye_linux::Means,
    filling: Filling,
    choosing: Choosing,
    learned: Option<Learned>,
    recording: Option<Recording>,
}

/// What is to be done, beside what the policy does.
struct Wanted {
    settings: Settings,
    khugepaged: Khugepaged,
    kernel_split: bool,
    counters: CounterEvents,
    fill: FillSettings,
    /// It is an error where memory can't be filled ahead.
    fill_required: bool,
    /// To be filled at the start of each process.
    warm_bytes: u64,
    small_pages: GivenTo,
    learn: bool,
    /// Where it is recorded.
    record: Option<Place>,
}

impl Session {
    /// Takes the machine over for a program or a few.
    ///
    /// `warm_bytes` are filled at the start of each process at once.
    pub fn begin(options: &ManagingOptions, warm_bytes: u64, purpose: &str) -> Result<Self> {
        let settings = options.settings()?;
        let policy = options.make_policy(&settings)?;
        // First: a signal that came in between would leave settings changed until the next start.
        let signals = StopSignals::take_over()?;
        let (fill, fill_required) = options.fill.settings(warm_bytes);
        let wanted = Wanted {
            settings,
            khugepaged: Khugepaged::Off,
            kernel_split: options.kernel_split,
            counters: CounterEvents::default(),
            fill,
            fill_required,
            warm_bytes,
            small_pages: options.small_pages.into(),
            learn: options.learn,
            record: options.record.clone().map(Place::File),
        };
        Self::take_over(signals, policy, wanted, purpose)
    }

    /// Takes the machine over for the daemon.
    pub fn of_daemon(config: &Config) -> Result<Self> {
        let policy = policies::by_name(&config.policy, &config.policy_settings)?;
        let signals = StopSignals::take_over_with_reload()?;
        let wanted = Wanted {
            settings: config.settings,
            khugepaged: config.khugepaged,
            kernel_split: config.kernel_split == Switch::On,
            counters: config.counters,
            fill: config.fill,
            fill_required: false,
            warm_bytes: 0,
            small_pages: config.small_pages,
            learn: config.learn == Switch::On,
            record: config.recording.as_ref().map(|recording| Place::Folder {
                folder: recording.folder.clone(),
                most_bytes: recording.max_bytes,
            }),
        };
        Self::take_over(signals, policy, wanted, "daemon")
    }

    /// Takes the machine over to look at some processes, and to do nothing to them.
    pub fn to_measure(settings: Settings, place: Place, purpose: &str) -> Result<Self> {
        let settings = Settings {
            measure_only: true,
            ..settings
        };
        let signals = StopSignals::take_over()?;
        let wanted = Wanted {
            settings,
            khugepaged: Khugepaged::Leave,
            kernel_split: false,
            counters: CounterEvents::default(),
            fill: FillSettings::default(),
            fill_required: false,
            warm_bytes: 0,
            small_pages: GivenTo::Nobody,
            learn: false,
            record: Some(place),
        };
        Self::take_over(signals, Box::new(NoPromotion::WATCHING), wanted, purpose)
    }

    fn take_over(
        signals: StopSignals,
        policy: Box<dyn Policy>,
        wanted: Wanted,
        purpose: &str,
    ) -> Result<Self> {
        let Wanted { settings, fill, .. } = wanted;
        let prepared = Filling::prepare(&fill);
        let mut takeover = Takeover::begin(purpose)?;
        let decision = takeover.decision();
        if !decision.can_manage {
            bail!("{} `hawkeye doctor` shows more.", decision.verdict);
        }
        if policy.needs().accesses() && decision.sampler == SamplerKind::Population {
            eprintln!(
                "hawkeye: accesses can't be seen on this kernel: regions are ranked by population alone (see `hawkeye doctor`)"
            );
        }
        let rules = KernelRules {
            khugepaged: wanted.khugepaged,
            kernel_split: wanted.kernel_split,
            zero_pages: settings.bloat.zero_pages(),
        };
        if settings.measure_only {
            // Nothing is changed.
        } else if let Err(error) = rules.apply(takeover.settings()) {
            // In a container, say: khugepaged may then refill what is recovered, slowly.
            tracing::warn!("khugepaged keeps its setting: {error}");
        }
        let mut means = takeover.means()?;
        if policy.needs().overhead() {
            means
                .prepare_overhead(&state_dir(), wanted.counters)
                .context("overhead can't be told here; --policy hawkeye-g does without")?;
        }
        // Before filling starts, which changes settings that it goes by.
        let choosing = Choosing::prepare(wanted.small_pages, takeover.settings())?;
        let filling = Filling::begin(
            &fill,
            prepared,
            wanted.fill_required,
            wanted.warm_bytes,
            takeover.settings(),
        )?;
        let recording = match wanted.record {
            None => None,
            Some(place) => match (Recording::begin(place.clone(), policy.name()), place) {
                (Ok(recording), _) => Some(recording),
                // Managing the machine does not depend on it.
                (Err(error), Place::Folder { folder, .. }) => {
                    tracing::error!("nothing is recorded in {}: {error:#}", folder.display());
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
            choosing,
            learned: wanted.learn.then(open_learned).flatten(),
        })
    }

    /// The manager, for a loop of one's own. The machine is ours until the takeover is dropped.
    pub fn into_manager(mut self, scope: Scope) -> Result<Working> {
        let mut machine = LinuxMachine::new(self.means, scope, self.signals);
        self.filling.attach(&mut machine);
        self.choosing.attach(&mut machine);
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

    /// Manages until the end. `each_step` is for looking at what will be gone afterwards.
    pub fn manage(self, scope: Scope, mut each_step: impl FnMut()) -> Result<Managed> {
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
        while manager.step() != Wake::Stop {
            each_step();
            filling.update(&manager, takeover.settings());
            if let Some(recording) = &mut recording {
                recording.take(&mut manager);
            }
            progress.draw(&manager);
        }
        progress.finish();
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
                "{} were left alone: their owner said MADV_NOHUGEPAGE",
                crate::words::bytes(refused)
            ));
        }
        if machine.saw_thp_disabled() {
            notes.push(
                "a process was left alone: it was told PR_SET_THP_DISABLE and can't have huge pages"
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

/// Managing does not depend on it.
fn open_learned() -> Option<Learned> {
    let learned = Learned::open(learned_dir());
    learned
        .inspect_err(|error| tracing::error!("what is learned is not kept: {error}"))
        .ok()
}

/// A manager at work.
pub struct Working {
    /// Itself.
    pub manager: Manager<LinuxMachine>,
    /// What is filled ahead.
    pub filling: Filling,
    /// What is recorded of it.
    pub recording: Option<Recording>,
    /// The machine is ours until this is dropped.
    pub takeover: Takeover,
}

/// A session that is over. The machine is still ours until this is dropped.
pub struct Managed {
    /// What came of it.
    pub summary: Summary,
    recording: Option<Recording>,
    _takeover: Takeover,
}

impl Managed {
    /// Shows the summary, and writes it where the options say; ends the recording.
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
