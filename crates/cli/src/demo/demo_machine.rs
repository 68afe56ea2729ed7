//! Takes the machine over for the demo and manages the demo's programs.

use super::reader_size::ReaderSize;
use crate::session_summary::{budget_wait_notes, notes_from_journal};
use anyhow::{Context, Result, bail};
use hawkeye_linux::machine_lease::restore_settings_on_stop_signals;
use hawkeye_linux::machine_lease::thp_settings::{pause_khugepaged, start_programs_on_base_pages};
use hawkeye_linux::memory::system_memory;
use hawkeye_linux::probe;
use hawkeye_linux::processes::process::{self, ProcessHandle, own_cpu_time};
use hawkeye_linux::sample::pagemap;
use hawkeye_linux::stop_signals::{StopSignals, unblock_signals_in_child};
use hawkeye_linux::{LinuxError, LinuxMachine, MachineLease, ManagedTarget};
use hawkeye_manager::{Event, Journal, JournalTotals, LoopWakeReason, Machine, Manager, Settings};
use hawkeye_policy::policies;
use hawkeye_policy::saturating_cast::usize_from_u64;
use hawkeye_policy::statistics::median;
use hawkeye_policy::{
    BASE_PAGE_BYTES, CpuBudget, HUGE_PAGE_BYTES, RatePerSecond, SamplingCostLimits, Watermarks,
};
use nix::errno::Errno;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Management of a program ends when its work is done, after this time, or when this long nothing
/// more was done. The latter is longer than the longest pause after calls that took long.
const AT_MOST: Duration = Duration::from_secs(60);
const QUIET: Duration = Duration::from_secs(30);
/// On a busy machine a window shows only part of the hot memory, so there are many.
const PERIOD: Duration = Duration::from_secs(2);
/// Short enough that a window does not touch the whole cold part.
const WINDOW: Duration = Duration::from_millis(100);
/// Number of measurements per program, which take turns, and the length of each.
const TURNS: usize = 3;
const TURN: Duration = Duration::from_millis(600);

/// A turn while the size of the reader is chosen.
const TRIAL: Duration = Duration::from_millis(300);

#[derive(Clone, Debug)]
pub struct ReaderProgramFigures {
    /// Million reads per second, as a share of the next field.
    pub relative: f64,
    /// Million reads per second of a program with all of its memory huge, measured in turn.
    pub million_reads_per_s_all_huge: f64,
    pub promoted: u64,
    /// Of these, regions in the hot part.
    pub promoted_hot: u64,
    /// Its huge memory before and after the system managed it.
    pub huge_before: HugeMemoryMap,
    pub huge_after: HugeMemoryMap,
    /// What held promotions back, a clause each.
    pub held_back: Vec<String>,
}

/// Where a program has huge pages, as the kernel's page tables say.
#[derive(Clone, Debug)]
pub struct HugeMemoryMap {
    pub huge_regions: usize,
    /// Shares (0-1) of huge memory in equal parts of the address space, in address order.
    pub shares: Vec<f64>,
}

/// What management of a program did.
struct ManagementOutcome {
    journal: Journal,
    cpu: Duration,
    held_back: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct RecoveryEffect {
    /// Resident memory before, in bytes.
    pub before_bytes: u64,
    pub after_bytes: u64,
    /// Memory that the program has written to, and the program's own code and data, in bytes.
    pub used_bytes: u64,
    pub split: u64,
    /// Memory given back, as counted by the manager.
    pub recovered_bytes: u64,
    /// Bytes of the program's memory that differ from what it wrote.
    pub wrong_bytes: u64,
    pub cpu_s: f64,
}

fn lacks_permission(error: &LinuxError) -> bool {
    matches!(error.errno(), Some(Errno::EACCES | Errno::EPERM | Errno::EROFS))
}

/// The machine; its settings are restored when this is dropped.
pub struct DemoMachine(MachineLease);

impl DemoMachine {
    /// Takes the machine over. The inner `Err` says why nothing can be managed here.
    pub fn take_over() -> Result<Result<Self, String>> {
        let signals = StopSignals::take_over()?;
        let mut lease = match MachineLease::acquire_and_probe("demo") {
            Ok(lease) => lease,
            // Without root, or where /run is read-only.
            Err(error) if lacks_permission(&error) => {
                return Ok(Err(format!("Processes can't be managed by this user: {error}.")));
            }
            Err(error) => return Err(error.into()),
        };
        let decision = lease.decision();
        if !decision.can_manage {
            return Ok(Err(decision.verdict.clone()));
        }
        if let Some(why) = &decision.cannot_promote {
            return Ok(Err(why.clone()));
        }
        start_programs_on_base_pages(lease.settings())?;
        // It would fill again what the demo recovers: its programs ask for huge pages.
        pause_khugepaged(lease.settings())?;
        // After the last change, so that none can follow the restore.
        restore_settings_on_stop_signals(signals, || {})?;
        Ok(Ok(Self(lease)))
    }

    /// Touches memory once. A hypervisor may back it only then, and that must not be measured.
    pub fn touch_memory_once(&self, mib: u64) -> Result<()> {
        let free_mib = free_memory_mib()?;
        let needed_mib = mib + mib / 8;
        if free_mib < needed_mib {
            let only = format!("only {free_mib} MiB are free");
            bail!("the demo needs {needed_mib} MiB of free memory, but {only}");
        }
        RunningDemoProgram::start(&format!("bloated --mib {mib} --used-pages 1"))?;
        Ok(())
    }

    /// A size of the reader with which huge pages matter here, and how much faster they make it.
    pub fn choose_reader_size(&self) -> Result<(ReaderSize, f64)> {
        ReaderSize::choose_by_speed_up(free_memory_mib()?, |size| {
            let hot_mib = size.hot_mib;
            self.touch_memory_once(2 * hot_mib)?;
            let words = format!("reader --mib {hot_mib} --hot-mib {hot_mib} --hot-percent 100");
            let mut huge = RunningDemoProgram::start(&format!("{words} --huge"))?;
            let mut base = RunningDemoProgram::start(&words)?;
            let ratios = (0..TURNS).map(|_| {
                let base = base.measure_reads_per_s(TRIAL)?;
                Ok(huge.measure_reads_per_s(TRIAL)? / base)
            });
            Ok(median(&ratios.collect::<Result<Vec<_>>>()?))
        })
    }

    /// The next larger size, if it fits.
    pub fn next_larger_reader_size(&self, size: ReaderSize) -> Result<Option<ReaderSize>> {
        Ok(size.next_larger(free_memory_mib()?))
    }

    /// Measures the reader under a policy or none, in turn with a reader that has only huge pages.
    pub fn measure_reader_speed(
        &self,
        policy: Option<&str>,
        size: ReaderSize,
    ) -> Result<ReaderProgramFigures> {
        let (mib, hot_mib, budget) = (size.total_mib(), size.hot_mib, size.hot_regions());
        let hot_percent = ReaderSize::HOT_PERCENT;
        let words = format!("reader --mib {mib} --hot-mib {hot_mib} --hot-percent {hot_percent}");
        let mut huge = RunningDemoProgram::start(&format!("{words} --huge"))?;
        let mut program = RunningDemoProgram::start(&words)?;
        let end = program.start + (mib << 20);
        let hot = end - (hot_mib << 20)..end;
        let (mut promoted, mut promoted_hot) = (0, 0);
        let mut held_back = Vec::new();
        let huge_before = program.read_huge_memory(mib)?;
        if let Some(policy) = policy {
            let settings = Settings {
                max_promotions: Some(budget),
                // No limit; at khugepaged's own rate the same regions would take minutes.
                rate: Some(RatePerSecond::new(1e6)?),
                cpu: CpuBudget::new(100.0)?,
                period: PERIOD,
                window: WINDOW,
                // The speed is measured afterwards.
                pace: SamplingCostLimits::new(10.0, 100.0)?,
                ..Settings::default()
            };
            program.send_command("go")?;
            let done = |totals: &JournalTotals| totals.promoted;
            let outcome = self.manage_program_until(&program, policy, settings, budget, done)?;
            held_back = outcome.held_back;
            program.send_and_read_reply("stop")?;
            for entry in outcome.journal.entries() {
                if let Event::Promoted { region, .. } = &entry.event {
                    promoted += 1;
                    promoted_hot += u64::from(hot.contains(&region.start()));
                }
            }
        }
        let huge_after = program.read_huge_memory(mib)?;
        let (mut rates, mut huge_rates) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            rates.push(program.measure_reads_per_s(TURN)?);
            huge_rates.push(huge.measure_reads_per_s(TURN)?);
        }
        let all_huge = median(&huge_rates);
        Ok(ReaderProgramFigures {
            relative: median(&rates) / all_huge,
            million_reads_per_s_all_huge: all_huge / 1e6,
            promoted,
            promoted_hot,
            huge_before,
            huge_after,
            held_back,
        })
    }

    pub fn measure_bloat_recovery(&self, mib: u64, used_pages: u64) -> Result<RecoveryEffect> {
        let mut program =
            RunningDemoProgram::start(&format!("bloated --mib {mib} --used-pages {used_pages}"))?;
        let before_bytes = program.rss_bytes()?;
        // Watermarks below the memory in use, as if memory were short.
        let used = system_memory::machine_memory_use()?.used_percent();
        let settings = Settings {
            cpu: CpuBudget::new(100.0)?,
            watermarks: Watermarks::new(used / 2.0, used / 4.0)?,
            ..Settings::default()
        };
        let regions = (mib << 20).div_ceil(HUGE_PAGE_BYTES);
        let done = |totals: &JournalTotals| totals.scanned;
        let outcome = self.manage_program_until(&program, "none", settings, regions, done)?;
        let totals = outcome.journal.totals();
        // Measured before the program reads every page, which maps zero pages.
        let after_bytes = program.rss_bytes()?;
        let wrong_bytes = program.send_and_read_reply("verify")?.parse();
        let wrong_bytes =
            wrong_bytes.context("the demo program did not report a number of bytes")?;
        let own_bytes = before_bytes.saturating_sub(mib << 20);
        Ok(RecoveryEffect {
            before_bytes,
            after_bytes,
            used_bytes: regions * used_pages * BASE_PAGE_BYTES + own_bytes,
            split: totals.split,
            recovered_bytes: totals.recovered_bytes,
            wrong_bytes,
            cpu_s: outcome.cpu.as_secs_f64(),
        })
    }

    /// Manages until `done` returns `goal`, or nothing more comes.
    fn manage_program_until(
        &self,
        program: &RunningDemoProgram,
        policy: &str,
        settings: Settings,
        goal: u64,
        done: impl Fn(&JournalTotals) -> u64,
    ) -> Result<ManagementOutcome> {
        let policy = policies::make_policy_by_name(policy, &settings.policy_settings())?;
        // No policy of the demo needs overhead, so nothing is prepared for it.
        let means = probe::set_up_chosen_methods(self.0.decision(), None)?;
        let scope = ManagedTarget::Processes(vec![ProcessHandle::open_child(program.child.id())?]);
        let before = own_cpu_time();
        let machine = LinuxMachine::new(means, scope, StopSignals::disabled());
        let mut manager = Manager::new(machine, policy, settings)?;
        let (mut most, mut most_at) = (0, Duration::ZERO);
        while manager.run_due_work_and_wait() != LoopWakeReason::Stop {
            let (now, count) = (manager.machine().now(), done(manager.journal().totals()));
            if count > most {
                (most, most_at) = (count, now);
            }
            if count >= goal || now >= AT_MOST.min(most_at + QUIET) {
                break;
            }
        }
        let mut held_back = budget_wait_notes(&manager);
        let (machine, journal) = manager.into_machine_and_journal();
        held_back.extend(notes_from_journal(&journal));
        let cpu = machine.management_costs().cpu.saturating_sub(before);
        Ok(ManagementOutcome { journal, cpu, held_back })
    }
}

fn free_memory_mib() -> Result<u64> {
    Ok(system_memory::available_memory_bytes()? >> 20)
}

/// Columns of a drawn address space.
const COLUMNS: usize = 48;

/// The share of huge regions in each column.
fn huge_share_per_column(huge_regions: &[bool]) -> Vec<f64> {
    let columns = huge_regions.chunks(huge_regions.len().div_ceil(COLUMNS).max(1));
    let huge = |column: &[bool]| column.iter().filter(|huge| **huge).count() as f64;
    columns.map(|column| huge(column) / column.len() as f64).collect()
}

/// A running program; killed when dropped.
struct RunningDemoProgram {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    start: u64,
}

impl RunningDemoProgram {
    /// Starts a program and waits until its memory is populated.
    fn start(words: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("demo-program").args(words.split_whitespace());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        unblock_signals_in_child(&mut command);
        let mut child = command.spawn().context("can't start a demo program")?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the demo program has no pipe for input or output");
        };
        let mut running = Self { child, input, output: BufReader::new(output), start: 0 };
        let start = running.read_line()?;
        let address = u64::from_str_radix(start.trim_start_matches("0x"), 16);
        let wrong = || format!("the demo program reported {start:?} instead of an address");
        running.start = address.with_context(wrong)?;
        Ok(running)
    }

    fn send_command(&mut self, word: &str) -> Result<()> {
        writeln!(self.input, "{word}").context("can't write to the demo program: it has ended")
    }

    fn read_line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => bail!("the demo program has ended"),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(error).context("can't read from the demo program"),
        }
    }

    fn send_and_read_reply(&mut self, word: &str) -> Result<String> {
        self.send_command(word)?;
        self.read_line()
    }

    /// Reads per second of the reader, measured over one turn.
    fn measure_reads_per_s(&mut self, turn: Duration) -> Result<f64> {
        self.send_command("go")?;
        std::thread::sleep(turn);
        let said = self.send_and_read_reply("stop")?;
        let number = |text: &str| text.parse::<f64>().ok();
        let rate = |(reads, seconds)| Some(number(reads)? / number(seconds)?);
        let wrong = || format!("the demo program reported {said:?} instead of reads and seconds");
        said.split_once(' ').and_then(rate).with_context(wrong)
    }

    /// Reads where its first `mib` MiB are huge.
    fn read_huge_memory(&self, mib: u64) -> Result<HugeMemoryMap> {
        let range = self.start..self.start + (mib << 20);
        let mut huge = vec![false; usize_from_u64(mib / 2)];
        for sample in pagemap::read_population(self.child.id(), &[range])? {
            let index = sample.region.start().saturating_sub(self.start) / HUGE_PAGE_BYTES;
            if let Some(huge) = huge.get_mut(usize_from_u64(index)) {
                *huge = sample.is_huge();
            }
        }
        let huge_regions = huge.iter().filter(|huge| **huge).count();
        Ok(HugeMemoryMap { huge_regions, shares: huge_share_per_column(&huge) })
    }

    fn rss_bytes(&self) -> Result<u64> {
        Ok(process::rss_bytes(self.child.id())?)
    }
}

impl Drop for RunningDemoProgram {
    fn drop(&mut self) {
        // Fails if it has already ended, which does no harm.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
