//! The paper's Table 1 on the simulated kernel: 10 GB are allocated, touched one byte per base page, and freed, ten times.
//! `cargo run --release -p hawkeye-sim --example table_1`.
//!
//! Costs are calibrated on the first two columns ([`Calibration::TABLE_1`] says what else they rest on). So is what the
//! program itself takes for a touch: total time less system time, over base pages.
//!
//! [`Calibration::TABLE_1`]: hawkeye_sim::kernel::Calibration::TABLE_1

use hawkeye_policy::policies::ingens::{Ingens, IngensSettings};
use hawkeye_policy::{HUGE_PAGE_BYTES, Observation, Policy, ProcessId, ProcessSample};
use hawkeye_sim::kernel::fault_policies::{
    FaultPolicy, IngensFaults, LinuxBase, LinuxThp, Unzeroed,
};
use hawkeye_sim::kernel::{
    Access, HugeAdvice, Kernel, KernelCosts, KernelError, KernelSpec, KernelThread, Payer, SpaceId,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

const GIB: u64 = 1 << 30;
const RUNS: u32 = 10;
const BUFFER: u64 = 10 * GIB;
const START: u64 = 1 << 40;
/// The program's own time for a touch: from the columns with synchronous zeroing.
const TOUCH_NS: [u64; 2] = [
    ((106.0 - 102.0) * 1e9 / 26.2e6) as u64,
    ((24.9 - 24.0) * 1e9 / 26.2e6) as u64,
];
/// How often Ingens looks for regions that are 90 % populated. It is told by the fault handler at once; its thread then needs
/// longer than the program for the rest of the region (section 2.2), as here.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

struct Column {
    name: &'static str,
    faults: Arc<dyn FaultPolicy>,
    ingens: bool,
    /// Million faults, s in faults, us a fault, s of system time, s in all.
    paper: [f64; 5],
    calibrated: bool,
}

fn columns() -> [Column; 5] {
    let column = |name, faults, paper| Column {
        name,
        faults,
        ingens: false,
        paper,
        calibrated: false,
    };
    [
        Column {
            calibrated: true,
            ..column(
                "Linux 4 KiB",
                Arc::new(LinuxBase),
                [26.2, 92.6, 3.5, 102.0, 106.0],
            )
        },
        Column {
            calibrated: true,
            ..column(
                "Linux 2 MiB",
                Arc::new(LinuxThp::default()),
                [0.0515, 23.9, 465.0, 24.0, 24.9],
            )
        },
        Column {
            ingens: true,
            ..column(
                "Ingens 90 %",
                Arc::new(IngensFaults),
                [26.2, 92.8, 3.5, 104.0, 116.0],
            )
        },
        column(
            "4 KiB unzeroed",
            Arc::new(Unzeroed::Base),
            [26.2, 69.5, 2.65, 79.0, 83.0],
        ),
        column(
            "2 MiB unzeroed",
            Arc::new(Unzeroed::Huge),
            [0.0515, 0.7, 13.0, 1.3, 4.4],
        ),
    ]
}

/// A program, and Ingens' thread beside it.
struct Run {
    kernel: Kernel,
    space: SpaceId,
    ingens: Option<Ingens>,
    now: Duration,
    looked_at: Duration,
    faults: u64,
    in_faults: Duration,
    system: Duration,
}

impl Run {
    fn touch_all(&mut self, touch_ns: u64) -> Result<(), KernelError> {
        let cold_ns = self.kernel.costs().cold_touch_ns;
        for start in (START..START + BUFFER).step_by(HUGE_PAGE_BYTES as usize) {
            let touched =
                self.kernel
                    .touch(self.space, start..start + HUGE_PAGE_BYTES, Access::Write)?;
            let own = Duration::from_nanos(512 * touch_ns + touched.cold * cold_ns);
            self.faults += touched.faults.total();
            self.in_faults += touched.paid.time;
            self.system += touched.paid.time;
            self.now += touched.paid.time + own;
            if self.now - self.looked_at >= LOOKS_EVERY {
                self.promote()?;
            }
        }
        Ok(())
    }

    /// Lets Ingens' thread do what it can in the time that has passed. The program waits while a region is copied.
    fn promote(&mut self) -> Result<(), KernelError> {
        let Some(ingens) = &mut self.ingens else {
            return Ok(());
        };
        let process = ProcessId {
            pid: 1,
            start_ticks: 0,
        };
        ingens.observe(&Observation {
            at: self.now,
            processes: vec![ProcessSample::population(
                process,
                self.kernel.samples(self.space)?,
            )],
            unread: Vec::new(),
            fmfi: Some(self.kernel.figures().fmfi),
        });
        let mut left = self.now - self.looked_at;
        self.looked_at = self.now;
        while !left.is_zero() {
            let Some(next) = ingens.next_promotion(self.now) else {
                break;
            };
            let thread = Payer::Kernel(KernelThread::Khugepaged);
            let done = self.kernel.promote(self.space, next.region, thread)?;
            ingens.settle(process, next.region, Some(done.paid.time));
            left = left.saturating_sub(done.paid.time);
            self.now += done.locked;
        }
        Ok(())
    }
}

fn simulate(column: &Column) -> Result<([f64; 5], u64), Box<dyn std::error::Error>> {
    let mut kernel = Kernel::new(KernelSpec {
        memory_bytes: 96 * GIB,
        faults: column.faults.clone(),
        costs: KernelCosts::paper(),
        swap: None,
    })?;
    let space = kernel.create_space();
    // 90 % at any fragmentation.
    let settings = IngensSettings::new(90.0, 0.0)?;
    let mut run = Run {
        kernel,
        space,
        ingens: column.ingens.then(|| Ingens::new(settings)),
        now: Duration::ZERO,
        looked_at: Duration::ZERO,
        faults: 0,
        in_faults: Duration::ZERO,
        system: Duration::ZERO,
    };
    let huge = column.paper[0] < 1.0;
    for _ in 0..RUNS {
        let buffer = START..START + BUFFER;
        run.kernel.map(space, buffer.clone(), HugeAdvice::None)?;
        run.touch_all(TOUCH_NS[usize::from(huge)])?;
        let freed = run.kernel.unmap(space, buffer)?;
        run.system += freed.time;
        run.now += freed.time;
    }
    run.kernel.check()?;
    let seconds = run.in_faults.as_secs_f64();
    let row = [
        run.faults as f64 / 1e6,
        seconds,
        seconds * 1e6 / run.faults as f64,
        run.system.as_secs_f64(),
        run.now.as_secs_f64(),
    ];
    let promoted = run.kernel.thread_time(KernelThread::Khugepaged).as_secs();
    Ok((row, promoted))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const ROWS: [&str; 5] = [
        "million faults",
        "s in faults",
        "us a fault",
        "s system time",
        "s in all",
    ];
    for column in columns() {
        let clock = Instant::now();
        let (row, thread_s) = simulate(&column)?;
        let took = clock.elapsed().as_secs_f64();
        let kind = if column.calibrated {
            " (calibrated on it)"
        } else {
            ""
        };
        println!("{}{kind}, simulated in {took:.2} s", column.name);
        for ((name, simulated), paper) in ROWS.iter().zip(row).zip(column.paper) {
            let error = (simulated / paper - 1.0) * 100.0;
            println!("  {name:16} {simulated:10.4}   paper {paper:10.4}   {error:+6.1} %");
        }
        if thread_s > 0 {
            println!("  khugepaged ran for {thread_s} s beside it");
        }
    }
    println!(
        "Under Ingens nearly all memory is huge here when it is freed, which takes no time; by its system time, the paper's was \
         not."
    );
    println!(
        "System time of the second column is known to half a second, of which 23.9 s are faults: what freeing huge pages \
         takes (0.1 s) may be 0 to 0.6 s, and the last column's system time with it."
    );
    Ok(())
}
