//! Takes the machine over for the demo and manages the demo's programs.

use super::reader_size::ReaderSize;
use anyhow::{Context, Result, bail};
use hawkeye_linux::machine_lease::restore_settings_on_stop_signals;
use hawkeye_linux::machine_lease::thp_settings::{pause_khugepaged, start_programs_on_base_pages};
use hawkeye_linux::memory::system_memory;
use hawkeye_linux::probe;
use hawkeye_linux::processes::process::{self, ProcessHandle, own_cpu_time};
use hawkeye_linux::stop_signals::{StopSignals, unblock_signals_in_child};
use hawkeye_linux::{LinuxError, LinuxMachine, MachineLease, ManagedTarget};
use hawkeye_manager::{Event, Journal, LoopWakeReason, Machine, Manager, Settings};
use hawkeye_policy::policies;
use hawkeye_policy::saturating_cast::usize_from_u64;
use hawkeye_policy::statistics::median;
use hawkeye_policy::{BASE_PAGE_BYTES, CpuBudget, HUGE_PAGE_BYTES, RatePerSecond, Watermarks};
use nix::errno::Errno;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

const AT_MOST: Duration = Duration::from_secs(30);
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
    /// Shares (0-1) of huge memory in equal parts of the address space, in address order.
    pub huge_shares: Vec<f64>,
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
        if !lease.decision().can_manage {
            return Ok(Err(lease.decision().verdict.clone()));
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
        let mut huge_regions = vec![false; usize_from_u64(mib / 2)];
        if let Some(policy) = policy {
            let settings = Settings {
                max_promotions: Some(budget),
                // No limit; at khugepaged's own rate the same regions would take minutes.
                rate: Some(RatePerSecond::new(1e6)?),
                cpu: CpuBudget::new(100.0)?,
                window: WINDOW,
                ..Settings::default()
            };
            program.send_command("go")?;
            let enough = |journal: &Journal| journal.totals().promoted >= budget;
            let (journal, _) = self.manage_program_until(&program, policy, settings, enough)?;
            program.send_and_read_reply("stop")?;
            for entry in journal.entries() {
                if let Event::Promoted { region, .. } = &entry.event {
                    promoted += 1;
                    promoted_hot += u64::from(hot.contains(&region.start()));
                    let index = region.start().saturating_sub(program.start) / HUGE_PAGE_BYTES;
                    if let Some(huge) = huge_regions.get_mut(usize_from_u64(index)) {
                        *huge = true;
                    }
                }
            }
        }
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
            huge_shares: huge_share_per_column(&huge_regions),
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
        let enough = |journal: &Journal| journal.totals().scanned >= regions;
        let (journal, cpu) = self.manage_program_until(&program, "none", settings, enough)?;
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
            split: journal.totals().split,
            recovered_bytes: journal.totals().recovered_bytes,
            wrong_bytes,
            cpu_s: cpu.as_secs_f64(),
        })
    }

    /// Manages until `enough` returns true. Returns what happened and the manager's CPU time.
    fn manage_program_until(
        &self,
        program: &RunningDemoProgram,
        policy: &str,
        settings: Settings,
        enough: impl Fn(&Journal) -> bool,
    ) -> Result<(Journal, Duration)> {
        let policy = policies::make_policy_by_name(policy, &settings.policy_settings())?;
        // No policy of the demo needs overhead, so nothing is prepared for it.
        let means = probe::set_up_chosen_methods(self.0.decision(), None)?;
        let scope = ManagedTarget::Processes(vec![ProcessHandle::open_child(program.child.id())?]);
        let before = own_cpu_time();
        let machine = LinuxMachine::new(means, scope, StopSignals::disabled());
        let mut manager = Manager::new(machine, policy, settings)?;
        while manager.run_due_work_and_wait() != LoopWakeReason::Stop {
            if enough(manager.journal()) || manager.machine().now() >= AT_MOST {
                break;
            }
        }
        let (machine, journal) = manager.into_machine_and_journal();
        Ok((journal, machine.management_costs().cpu.saturating_sub(before)))
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
