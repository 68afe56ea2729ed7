//! However large or many the processes are, memory is read in time. The machine is scripted: its
//! time passes only through the work it is asked for.

use hawkeye_manager::{
    Explain, FaultPageSizes, Footprint, Machine, MachineError, Manager, OwnCosts, Prefault,
    Progress, Promoted, Recovered, Sampling, Settings, Wake, ZeroScan,
};
use hawkeye_policy::{
    MemoryState, MemoryUse, Needs, PageOrder, ProcessId, ProcessSample, RegionAddr, RegionSample,
    Scope, policies,
};
use hawkeye_test_support::events::process;
use std::collections::HashMap;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const TOTAL_BYTES: u64 = 16 << 30;
/// Work of one call before it checks the time: one run of a BPF program.
const CALL: Duration = Duration::from_micros(500);

/// A machine on which clearing, reading and listing each process takes a while.
struct Scripted {
    now: Duration,
    processes: Vec<ProcessId>,
    /// Work for each process, of each kind.
    work: Duration,
    left: HashMap<(&'static str, ProcessId), Duration>,
    /// Number of processes admitted, and the time that each admission takes.
    joined: usize,
    joining: Duration,
    /// Start of the growth of memory use.
    filling_from: Duration,
    /// Times at which memory was read.
    looks: Vec<Duration>,
    first_listing: Option<Duration>,
    abandoned: bool,
    cleared: usize,
    sampled: usize,
    /// Number of reads that are not answered in time.
    late: usize,
}

impl Scripted {
    fn new(processes: u32, work: Duration) -> Self {
        Self {
            now: Duration::ZERO,
            processes: (1..=processes).map(process).collect(),
            work,
            left: HashMap::new(),
            joined: 0,
            joining: Duration::ZERO,
            filling_from: Duration::MAX,
            looks: Vec::new(),
            first_listing: None,
            abandoned: false,
            cleared: 0,
            sampled: 0,
            late: 0,
        }
    }

    /// Works until `until`, one call at a time; returns whether all is done.
    fn work(&mut self, kind: &'static str, process: ProcessId, until: Duration) -> bool {
        let work = self.work;
        let left = self.left.entry((kind, process)).or_insert(work);
        while !left.is_zero() {
            let call = CALL.min(*left);
            *left -= call;
            self.now += call;
            if self.now >= until && !left.is_zero() {
                return false;
            }
        }
        self.left.remove(&(kind, process));
        true
    }

    fn progress<T>(&self, done: bool, what: impl FnOnce() -> T) -> Progress<T> {
        if done {
            Progress::Done(what())
        } else {
            Progress::Unfinished { again_at: self.now }
        }
    }

    /// Memory was never unread for long.
    fn assert_looks_in_time(&self) {
        let gaps = self.looks.windows(2).map(|pair| pair[1] - pair[0]);
        let longest = gaps.max().unwrap_or_default();
        println!("longest gap {longest:?}");
        assert!(longest <= 50 * MS, "{longest:?}");
    }
}

impl Machine for Scripted {
    fn now(&self) -> Duration {
        self.now
    }

    fn wait_until(&mut self, deadline: Duration) -> Wake {
        self.now = self.now.max(deadline);
        Wake::Deadline
    }

    fn processes(&mut self, until: Duration) -> Progress<Vec<ProcessId>> {
        while self.joined < self.processes.len() {
            self.now += self.joining;
            self.joined += 1;
            if self.now >= until {
                break;
            }
        }
        let all = self.joined == self.processes.len();
        self.progress(all, || self.processes.clone())
    }

    fn memory(&mut self) -> Result<MemoryState, MachineError> {
        Ok(MemoryState {
            machine: self.memory_use(&Scope::Machine)?,
            groups: Vec::new(),
            pressure_percent: Some(0.0),
            fmfi: None,
        })
    }

    /// Little is free from the start: a program could fill it within a tenth of a second.
    fn memory_use(&mut self, _scope: &Scope) -> Result<MemoryUse, MachineError> {
        self.looks.push(self.now);
        let free = TOTAL_BYTES / 50;
        let filled = self.now.saturating_sub(self.filling_from).as_secs_f64() * 1e9;
        Ok(MemoryUse {
            used_bytes: TOTAL_BYTES - free + (filled as u64).min(free),
            total_bytes: TOTAL_BYTES,
        })
    }

    fn promote(
        &mut self,
        _process: ProcessId,
        _region: RegionAddr,
        _order: PageOrder,
        _expected_present: u16,
    ) -> Result<Promoted, MachineError> {
        Ok(Promoted::NotCandidate)
    }

    fn scan_zeros(
        &mut self,
        _process: ProcessId,
        _region: RegionAddr,
        _enough: u16,
    ) -> Result<ZeroScan, MachineError> {
        Ok(ZeroScan {
            zero_pages: 0,
            took: Duration::ZERO,
        })
    }

    fn recover(
        &mut self,
        process: ProcessId,
        _region: RegionAddr,
    ) -> Result<Recovered, MachineError> {
        Err(MachineError::Gone(process))
    }

    fn footprint(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> Result<Progress<Footprint>, MachineError> {
        // Only huge pages are counted, which is far cheaper than reading all.
        let work = self.work;
        self.work = work / 100;
        let done = self.work("measure", process, until);
        self.work = work;
        Ok(self.progress(done, || Footprint {
            rss_bytes: 1 << 30,
            huge_bytes: 0,
        }))
    }

    fn own_costs(&self) -> OwnCosts {
        OwnCosts {
            cpu: Duration::ZERO,
            longest_call: CALL,
        }
    }
}

impl Sampling for Scripted {
    fn start_window(
        &mut self,
        process: ProcessId,
        _needs: Needs,
        until: Duration,
    ) -> Result<Progress<()>, MachineError> {
        let done = self.work("clear", process, until);
        self.cleared += usize::from(done);
        Ok(self.progress(done, || ()))
    }

    fn sample(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> Result<Progress<ProcessSample>, MachineError> {
        if self.late > 0 {
            self.late -= 1;
            return Err(MachineError::NotAnswering(process));
        }
        let done = self.work("read", process, until);
        self.sampled += usize::from(done);
        Ok(self.progress(done, || ProcessSample::population(process, Vec::new())))
    }

    fn huge_pages(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> Result<Progress<Vec<RegionSample>>, MachineError> {
        if self.now >= self.filling_from {
            self.first_listing.get_or_insert(self.now);
        }
        let done = self.work("list", process, until);
        Ok(self.progress(done, Vec::new))
    }

    fn abandon_window(&mut self) {
        self.abandoned = true;
    }

    fn first_touch_cost(&self) -> Duration {
        Duration::ZERO
    }
}

impl FaultPageSizes for Scripted {}

impl Prefault for Scripted {}

impl Explain for Scripted {}

fn manager(machine: Scripted) -> Manager<Scripted> {
    let settings = Settings {
        period: Duration::from_secs(5),
        window: Duration::from_millis(100),
        ..Settings::default()
    };
    let policy = policies::by_name("hawkeye-g", &policies::PolicySettings::default());
    Manager::new(machine, policy.expect("exists"), settings).expect("valid")
}

/// One process of 1 TiB: 524,288 regions, each read in 1 us and cleared in 15 us.
#[test]
fn memory_in_danger_is_seen_while_a_window_of_a_tebibyte_opens() {
    let mut manager = manager(Scripted::new(1, Duration::from_micros(524_288 * 16)));
    while manager.machine().cleared == 0 && manager.machine().now < Duration::from_secs(60) {
        manager.step();
        // In the middle of the clear.
        if manager.machine().now > Duration::from_secs(4) {
            break;
        }
    }
    assert_eq!(manager.machine().cleared, 0, "the window is still opening");
    let from = manager.machine().now;
    manager.machine_mut().filling_from = from;
    while manager.machine().first_listing.is_none() {
        manager.step();
        assert!(manager.machine().now < from + Duration::from_secs(2));
    }
    let machine = manager.machine();
    let reaction = machine.first_listing.unwrap_or_default() - from;
    assert!(machine.abandoned, "the window is given up");
    assert!(reaction <= 50 * MS, "{reaction:?}");
    machine.assert_looks_in_time();
}

#[test]
fn a_thousand_processes_hold_no_look_up() {
    let mut manager = manager(Scripted::new(1000, 2 * MS));
    // Every step takes time, or waits for some.
    for _ in 0..30_000 {
        manager.step();
    }
    let machine = manager.machine();
    assert!(
        machine.cleared >= 1000,
        "all were cleared: {}",
        machine.cleared
    );
    machine.assert_looks_in_time();
}

#[test]
fn a_thousand_processes_that_join_at_once_hold_no_look_up() {
    let mut manager = manager(Scripted::new(1, 2 * MS));
    while manager.machine().now < Duration::from_secs(2) {
        manager.step();
    }
    // One second of work.
    let machine = manager.machine_mut();
    machine.processes = Scripted::new(1000, 2 * MS).processes;
    machine.joining = MS;
    let begun = machine.now;
    while manager.machine().joined < 1000 {
        manager.step();
        assert!(manager.machine().now < begun + Duration::from_secs(20));
    }
    manager.machine().assert_looks_in_time();
}

#[test]
fn a_window_in_which_nobody_answered_is_made_up_for() {
    let mut manager = manager(Scripted::new(1, 2 * MS));
    manager.machine_mut().late = 1;
    // Long before the period of 5 s is over.
    while manager.machine().now < Duration::from_secs(2) {
        manager.step();
    }
    assert_eq!(manager.machine().late, 0, "it was asked");
    assert!(manager.machine().sampled > 0);
}
