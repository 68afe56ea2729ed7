//! How long a promotion of shared memory keeps the processes that map it waiting, beside a
//! promotion of private memory.

use super::manager_runs::{
    DENSE_SAMPLING_PERIOD, ManagedMemoryKind, dense_sampling_settings,
    manage_memory_of_processes_until,
};
use super::page_fault_stalls::take_fault_times;
use super::prelude::*;
use super::shared_memory_arm::create_shared_file;
use hawkeye_linux::machine_lease::thp_settings::SHMEM_ENABLED;
use hawkeye_workload::{PageFaultTimes, path_for_other_processes};

/// Processes that map the same file, or have as much private memory each.
const PROCESSES: usize = 2;
/// It promotes all that is accessed, so each side promotes as much.
const POLICY: &str = "hawkeye-g";
/// From one read of all regions to the next, in microseconds. The reads take a part of it.
const EVERY_US: u64 = 100;

const SIDES: [StallSide; 4] = [
    StallSide { memory: ManagedMemoryKind::Shared, managed: false },
    StallSide { memory: ManagedMemoryKind::Private, managed: false },
    StallSide { memory: ManagedMemoryKind::Shared, managed: true },
    StallSide { memory: ManagedMemoryKind::Private, managed: true },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StallSide {
    memory: ManagedMemoryKind,
    managed: bool,
}

impl StallSide {
    /// How much memory the processes have, in units of that of one process.
    fn memories(self) -> u64 {
        match self.memory {
            ManagedMemoryKind::Shared => 1,
            ManagedMemoryKind::Private => PROCESSES as u64,
        }
    }

    fn name(self) -> String {
        let memory = match self.memory {
            ManagedMemoryKind::Shared => "shared",
            ManagedMemoryKind::Private => "private",
        };
        format!("{memory}, {}", if self.managed { "promoted" } else { "unmanaged" })
    }
}

#[derive(Clone, Debug, Default)]
struct StallTurn {
    /// Of all processes.
    times: PageFaultTimes,
    promoted: u64,
    longest_call: Duration,
}

/// The turns of each side, in the order of [`SIDES`].
type SideTurns = [Vec<StallTurn>; SIDES.len()];

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let sizes = scale.choose_turn_settings([128, 3, 2000, 2000], [128, 30, 2000, 2000]);
    let bytes = sizes.mib << 20;
    require_available_memory(2 * PROCESSES as u64 * bytes)?;
    if Path::new(THP_DIR).join(SHMEM_ENABLED).exists() {
        host.set_thp_setting(SHMEM_ENABLED, "advise")?;
    }
    let mut turns = SideTurns::default();
    for n in 0..sizes.turns * SIDES.len() {
        // Another order each round, so that no side always follows the same one.
        let side = (n / SIDES.len() + n) % SIDES.len();
        host.touch_memory_once(PROCESSES as u64 * bytes)?;
        turns[side].push(measure_turn_of_side(host, SIDES[side], sizes)?);
    }
    add_rows_to_report(&turns, report);
    report.add_note(format!(
        "{PROCESSES} processes map one memfd of {} MiB, aligned, or have as much private memory each. In each, a real-time thread reads a word of each region every {EVERY_US} us. A figure is the time of the longest of these reads, of both processes. One that lasts longer than {EVERY_US} us also stands for the reads that were due meanwhile. Waits for a processor of this machine are not in the figures; those for one of its host are.",
        sizes.mib,
    ));
    report.add_note(format!(
        "Promoted: by {POLICY}, which samples every {} s, regardless of the cost, and may use a whole core. Each side has turns of {} s, in turn, with new processes in base pages. At least half of the regions are promoted in a turn.",
        DENSE_SAMPLING_PERIOD.as_secs_f64(),
        sizes.turn.as_secs_f64(),
    ));
    Ok(())
}

fn measure_turn_of_side(
    host: &BenchHost,
    side: StallSide,
    sizes: TurnSettings,
) -> BenchResult<StallTurn> {
    let file = create_shared_file(sizes.mib << 20)?;
    let mut words = format!("read-stalls --mib {} --every-us {EVERY_US}", sizes.mib);
    if side.memory == ManagedMemoryKind::Shared {
        words += &format!(" --file {}", path_for_other_processes(&file));
    }
    let start = |_| host.start_workload(&words);
    let mut programs: Vec<_> = (0..PROCESSES).map(start).collect::<BenchResult<_>>()?;
    let ready = programs.iter_mut().map(|program| Ok(program.wait_ready()?.pid));
    let pids: Vec<u32> = ready.collect::<BenchResult<_>>()?;
    let backend = if side.managed { Some(host.new_kernel_backend()?) } else { None };
    programs.iter_mut().try_for_each(|program| take_fault_times(program).map(drop))?;
    let mut turn = StallTurn::default();
    match backend {
        Some(backend) => {
            let done = manage_memory_of_processes_until(
                backend,
                &pids,
                side.memory,
                POLICY,
                dense_sampling_settings()?,
                sizes.turn,
                |_| false,
            )?;
            turn.promoted = done.journal.totals().promoted;
            turn.longest_call = done.longest_call;
        }
        None => std::thread::sleep(sizes.turn),
    }
    for program in &mut programs {
        turn.times.merge(&take_fault_times(program)?);
    }
    let regions = (sizes.mib << 20) / HUGE_PAGE_BYTES * side.memories();
    if side.managed && turn.promoted < regions / 2 {
        bail!(
            "{}: {} of {regions} regions were promoted in {} s, so stalls were not measured",
            side.name(),
            turn.promoted,
            sizes.turn.as_secs_f64()
        );
    }
    Ok(turn)
}

fn add_rows_to_report(turns: &SideTurns, report: &mut LiveReport) {
    let all = |side: usize| {
        let mut all = PageFaultTimes::default();
        turns[side].iter().for_each(|turn| all.merge(&turn.times));
        all
    };
    for (n, side) in SIDES.iter().enumerate() {
        let times = all(n);
        let unmanaged = SIDES.iter().position(|it| it.memory == side.memory && !it.managed);
        let unmanaged = unmanaged.map_or_else(PageFaultTimes::default, all);
        let us = |share| times.quantile_ns(share) as f64 / 1e3;
        let ratio = |own: u64, other: u64| own as f64 / other.max(1) as f64;
        let mut rows = report.prefixed_row_writer(side.name());
        let mut beside = format!(
            "{:.2} times unmanaged; {} page faults",
            ratio(times.longest_ns, unmanaged.longest_ns),
            times.faults
        );
        if side.managed {
            let promoted: u64 = turns[n].iter().map(|turn| turn.promoted).sum();
            let longest = turns[n].iter().map(|turn| turn.longest_call).max().unwrap_or_default();
            let longest_ms = longest.as_secs_f64() * 1e3;
            beside += &format!(", {promoted} promotions, longest call {longest_ms:.1} ms");
        }
        rows.add_row("worst read", times.longest_ns as f64 / 1e6, "ms", beside);
        for (what, share) in [("p99.9", 0.999), ("p99", 0.99)] {
            let times = ratio(times.quantile_ns(share), unmanaged.quantile_ns(share));
            let beside = format!("{times:.2} times unmanaged; p50 {:.1} us", us(0.5));
            rows.add_row(what, us(share), "us", beside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_memory_is_compared_with_itself_unmanaged() {
        let turn = |slow_us: u64, promoted: u64| StallTurn {
            times: PageFaultTimes {
                counts: vec![(1000, 990), (slow_us * 1000, 10)],
                longest_ns: slow_us * 1000,
                faults: 4,
                present: 996,
            },
            promoted,
            longest_call: Duration::from_millis(promoted),
        };
        let turns =
            [(10, 0), (20, 0), (300, 2), (100, 3)].map(|(us, n)| vec![turn(us, n), turn(us, n)]);
        let mut report = LiveReport::new("shared-stalls");
        add_rows_to_report(&turns, &mut report);
        let row = |what: &str| report.row(what);
        assert_eq!(row("shared, promoted: p99.9").value, 300.0);
        let beside = &row("shared, promoted: p99.9").beside;
        assert_eq!(beside, "30.00 times unmanaged; p50 1.0 us");
        assert_eq!(row("shared, promoted: p99").value, 1.0);
        let beside = &row("private, promoted: worst read").beside;
        let expected = "5.00 times unmanaged; 8 page faults, 6 promotions, longest call 3.0 ms";
        assert_eq!(beside, expected);
        assert_eq!(
            row("shared, unmanaged: worst read").beside,
            "1.00 times unmanaged; 8 page faults"
        );
    }
}
