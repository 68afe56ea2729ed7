//! This machine, taken over for the demo, and its programs managed on it.

use anyhow::{Context, Result, bail};
use hawkeye_linux::memory::system_memory;
use hawkeye_linux::processes::process::{self, ProcessHandle, own_cpu};
use hawkeye_linux::sample::counters::CounterEvents;
use hawkeye_linux::stop::{StopSignals, let_signals_through};
use hawkeye_linux::takeover::instance::state_dir;
use hawkeye_linux::takeover::thp_settings::{enabled_file, read_setting, restrain_khugepaged};
use hawkeye_linux::{LinuxMachine, Scope, Takeover};
use hawkeye_manager::{Event, Journal, Machine, Manager, Settings, Wake};
use hawkeye_policy::policies::{self, PolicySettings};
use hawkeye_policy::{
    BASE_PAGE_BYTES, BloatThreshold, CpuBudget, HUGE_PAGE_BYTES, Rate, Watermarks,
};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// How long one program is managed at most.
const AT_MOST: Duration = Duration::from_secs(30);
/// Short enough that the cold part is not all touched within it.
const WINDOW: Duration = Duration::from_millis(100);
/// Turns of measuring, one program after the other, and the length of one.
const TURNS: usize = 3;
const TURN: Duration = Duration::from_millis(600);

/// How the reader's memory is made huge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Not at all.
    Base,
    /// By khugepaged's order, as fast as the budget lets it.
    Linux,
    /// By access coverage.
    HawkeyeG,
}

impl System {
    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Base => "base pages",
            Self::Linux => "linux order",
            Self::HawkeyeG => "hawkeye-g",
        }
    }

    fn policy(self) -> Option<&'static str> {
        match self {
            Self::Base => None,
            Self::Linux => Some("linux"),
            Self::HawkeyeG => Some("hawkeye-g"),
        }
    }
}

/// The reader's sizes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// All of its memory, in MiB.
    pub mib: u64,
    /// At the highest addresses, in MiB.
    pub hot_mib: u64,
    /// Share of the reads that goes there.
    pub hot_percent: u64,
}

/// What one system made of the reader.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Million reads a second, as a share of the next.
    pub relative: f64,
    /// Million reads a second of a program all under huge pages, measured in turn.
    pub million_reads_per_s_all_huge: f64,
    /// Regions promoted.
    pub promoted: u64,
    /// Of these, in the hot part.
    pub promoted_hot: u64,
}

/// What recovery made of the bloated program.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// Resident memory before, in bytes.
    pub before_bytes: u64,
    /// And after.
    pub after_bytes: u64,
    /// What the program has written to, and the rest of the program itself, in bytes.
    pub used_bytes: u64,
    /// Huge pages split.
    pub split: u64,
    /// Memory given back, by the manager's own count.
    pub recovered_bytes: u64,
    /// Bytes of the program's memory that were not as it wrote them.
    pub wrong_bytes: u64,
    /// The manager's CPU time, in seconds.
    pub cpu_s: f64,
}

/// This machine, until it is dropped: then its settings are put back.
pub struct DemoMachine(Takeover);

impl DemoMachine {
    /// Takes it over; `Err` of the inner result says why nothing can be managed here.
    ///
    /// # Errors
    /// Another manager runs, or settings can't be changed.
    pub fn take_over() -> Result<Result<Self, String>> {
        let mut takeover = Takeover::begin("demo")?;
        if !takeover.decision().can_manage {
            return Ok(Err(takeover.decision().verdict.clone()));
        }
        // With `always` everything would be huge from the start.
        let enabled = enabled_file();
        if read_setting(&enabled)? != "madvise" {
            takeover.settings().set(&enabled, "madvise")?;
        }
        restrain_khugepaged(takeover.settings(), BloatThreshold::default().zero_pages())?;
        Ok(Ok(Self(takeover)))
    }

    /// Uses memory once: a hypervisor may back it only then, and what is measured is not to be that.
    ///
    /// # Errors
    /// There is not so much.
    pub fn warm_up(&self, mib: u64) -> Result<()> {
        let memory = system_memory::machine()?;
        let free_mib = memory.total_bytes.saturating_sub(memory.used_bytes) >> 20;
        if free_mib < mib + mib / 8 {
            bail!(
                "it takes {} MiB of free memory, and {free_mib} MiB are free",
                mib + mib / 8
            );
        }
        Running::start(&format!("bloated --mib {mib} --used-pages 1"))?;
        Ok(())
    }

    /// Measures the reader under one system, in turn with one that is all under huge pages.
    ///
    /// # Errors
    /// A program or its management failed.
    pub fn speed(&self, system: System, sizes: Sizes, budget: u64) -> Result<Speed> {
        let Sizes {
            mib,
            hot_mib,
            hot_percent,
        } = sizes;
        let words = format!("reader --mib {mib} --hot-mib {hot_mib} --hot-percent {hot_percent}");
        let mut huge = Running::start(&format!("{words} --huge"))?;
        let mut program = Running::start(&words)?;
        let hot = program.start + ((mib - hot_mib) << 20)..program.start + (mib << 20);
        let (mut promoted, mut promoted_hot) = (0, 0);
        if let Some(policy) = system.policy() {
            let settings = Settings {
                max_promotions: Some(budget),
                // khugepaged's pace would take minutes for the same regions.
                rate: (system == System::Linux)
                    .then(|| Rate::per_second(1e6))
                    .transpose()?,
                cpu: CpuBudget::new(100.0)?,
                window: WINDOW,
                ..Settings::default()
            };
            program.tell("go")?;
            let enough = |journal: &Journal| journal.totals().promoted >= budget;
            let (journal, _) = self.manage(&program, policy, settings, enough)?;
            program.ask("stop")?;
            for entry in journal.entries() {
                if let Event::Promoted { region, .. } = &entry.event {
                    promoted += 1;
                    promoted_hot += u64::from(hot.contains(&region.start()));
                }
            }
        }
        let (mut rates, mut huge_rates) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            rates.push(program.reads_per_s()?);
            huge_rates.push(huge.reads_per_s()?);
        }
        let all_huge = median(huge_rates);
        Ok(Speed {
            relative: median(rates) / all_huge,
            million_reads_per_s_all_huge: all_huge / 1e6,
            promoted,
            promoted_hot,
        })
    }

    /// Has a program bloat its memory and takes it back.
    ///
    /// # Errors
    /// The program or its management failed.
    pub fn recover(&self, mib: u64, used_pages: u64) -> Result<Recovery> {
        let mut program =
            Running::start(&format!("bloated --mib {mib} --used-pages {used_pages}"))?;
        let before_bytes = program.rss_bytes()?;
        // Watermarks under what is in use, as if memory were short.
        let used = system_memory::machine()?.percent();
        let settings = Settings {
            cpu: CpuBudget::new(100.0)?,
            watermarks: Watermarks::new(used / 2.0, used / 4.0)?,
            ..Settings::default()
        };
        let regions = (mib << 20).div_ceil(HUGE_PAGE_BYTES);
        let enough = |journal: &Journal| journal.totals().scanned >= regions;
        let (journal, cpu) = self.manage(&program, "none", settings, enough)?;
        // Before it reads every page, which maps zero pages.
        let after_bytes = program.rss_bytes()?;
        let wrong_bytes = program.ask("verify")?;
        Ok(Recovery {
            before_bytes,
            after_bytes,
            used_bytes: regions * used_pages * BASE_PAGE_BYTES
                + before_bytes.saturating_sub(mib << 20),
            split: journal.totals().split,
            recovered_bytes: journal.totals().recovered_bytes,
            wrong_bytes: wrong_bytes
                .parse()
                .context("the program answers a number")?,
            cpu_s: cpu.as_secs_f64(),
        })
    }

    /// Manages a program until `enough` says so; what happened, and the manager's CPU time.
    fn manage(
        &self,
        program: &Running,
        policy: &str,
        settings: Settings,
        enough: impl Fn(&Journal) -> bool,
    ) -> Result<(Journal, Duration)> {
        let policy_settings = PolicySettings {
            average: settings.average,
            linux: settings.linux(),
            ..PolicySettings::default()
        };
        let policy = policies::by_name(policy, &policy_settings)?;
        let mut means = self.0.means()?;
        if policy.needs().overhead() {
            means.prepare_overhead(&state_dir(), CounterEvents::default())?;
        }
        let scope = Scope::Processes(vec![ProcessHandle::of_child(program.child.id())?]);
        let before = own_cpu();
        let machine = LinuxMachine::new(means, scope, StopSignals::left_alone());
        let mut manager = Manager::new(machine, policy, settings)?;
        while manager.step() != Wake::Stop {
            if enough(manager.journal()) || manager.machine().now() >= AT_MOST {
                break;
            }
        }
        let (machine, journal) = manager.finish();
        Ok((journal, machine.own_costs().cpu.saturating_sub(before)))
    }
}

/// The middle one of an odd number of values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// One of the programs at work; ended when dropped.
struct Running {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// First byte of its memory.
    start: u64,
}

impl Running {
    /// Starts one, and waits until its memory is there.
    fn start(words: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("demo-program")
            .args(words.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let_signals_through(&mut command);
        let mut child = command
            .spawn()
            .context("a program of the demo does not start")?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("a program of the demo can't be talked to");
        };
        let mut running = Self {
            child,
            input,
            output: BufReader::new(output),
            start: 0,
        };
        let start = running.answer()?;
        running.start = u64::from_str_radix(start.trim_start_matches("0x"), 16)
            .with_context(|| format!("{start:?} is no address"))?;
        Ok(running)
    }

    fn tell(&mut self, word: &str) -> Result<()> {
        writeln!(self.input, "{word}").context("a program of the demo has ended")
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => bail!("a program of the demo has ended"),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(error).context("a program of the demo can't be heard"),
        }
    }

    fn ask(&mut self, word: &str) -> Result<String> {
        self.tell(word)?;
        self.answer()
    }

    /// How fast the reader reads, over one turn.
    fn reads_per_s(&mut self) -> Result<f64> {
        self.tell("go")?;
        std::thread::sleep(TURN);
        let said = self.ask("stop")?;
        let rate = said.split_once(' ').and_then(|(reads, seconds)| {
            Some(reads.parse::<f64>().ok()? / seconds.parse::<f64>().ok()?)
        });
        rate.with_context(|| format!("{said:?} are no reads and seconds"))
    }

    fn rss_bytes(&self) -> Result<u64> {
        Ok(process::rss_bytes(self.child.id())?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
