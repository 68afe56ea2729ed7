//! The memory part of the paper's Table 7 and Figure 1 on the simulated kernel: a Redis server is filled, most of its keys are
//! deleted, and (Figure 1) it is filled again until memory runs out.
//! `cargo run --release -p hawkeye-sim --example redis_memory`.
//!
//! The server is no more than its heap: a value of 4 KiB is a page, what belongs to a key 64 bytes in memory that stays. Its
//! allocator keeps an eighth of what is in use when values are freed (jemalloc's `lg_dirty_mult`) and gives the oldest
//! of the rest back, page by page. Managers work at fixed points between deletions, as fast as they like; there is no clock.

use hawkeye_policy::policies::ingens::{Ingens, IngensSettings};
use hawkeye_policy::policies::linux::{LinuxOrder, LinuxSettings, Pace};
use hawkeye_policy::{
    BASE_PAGE_BYTES, HUGE_PAGE_BYTES, MachineShape, Observation, Policy, ProcessId, ProcessSample,
    RegionSample,
};
use hawkeye_sim::kernel::fault_policies::{
    FaultPolicy, HawkEyeHuge, IngensFaults, LinuxBase, LinuxThp,
};
use hawkeye_sim::kernel::{
    Access, HugeAdvice, Kernel, KernelCosts, KernelError, KernelSpec, Payer, SpaceId,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const GB: f64 = 1e9;
const VALUES: u64 = 1 << 40;
const KEYS: u64 = 1 << 42;
const LATER: u64 = 1 << 43;
const KEY_BYTES: u64 = 64;
/// How often managers get to work while keys are deleted.
const ROUNDS: u64 = 50;
/// Zero base pages that make a huge page worth splitting, of 512.
const WORTH_A_SPLIT: u16 = 64;

struct System {
    name: &'static str,
    faults: Arc<dyn FaultPolicy>,
    policy: Option<Box<dyn Policy>>,
    /// Memory in use above which zeros are recovered, in per cent.
    recovers_above: Option<f64>,
    /// Whether regions are judged by what their program populated, as Ingens' bitmap does, not by what is present.
    by_population: bool,
}

fn systems(memory_full: f64) -> Outcome<Vec<System>> {
    let system = |name, faults: Arc<dyn FaultPolicy>, policy| System {
        name,
        faults,
        policy,
        recovers_above: None,
        by_population: false,
    };
    let everything = || -> Option<Box<dyn Policy>> {
        Some(Box::new(LinuxOrder::new(LinuxSettings {
            pace: Pace::Unlimited,
            ..LinuxSettings::default()
        })))
    };
    // With a switch at 0 the threshold holds at any fragmentation.
    let ingens = |name, percent, switch| -> Outcome<System> {
        let policy = Ingens::new(IngensSettings::new(percent, switch)?);
        Ok(System {
            by_population: true,
            ..system(name, Arc::new(IngensFaults), Some(Box::new(policy)))
        })
    };
    Ok(vec![
        system("Linux-4KB", Arc::new(LinuxBase), None),
        system("Linux-2MB", Arc::new(LinuxThp::default()), everything()),
        ingens("Ingens-90%", 90.0, 0.0)?,
        ingens("Ingens-50%", 50.0, 0.0)?,
        ingens("Ingens (adaptive)", 90.0, 0.5)?,
        system("HawkEye", Arc::new(HawkEyeHuge), everything()),
        System {
            recovers_above: Some(memory_full),
            ..system("HawkEye (pressure)", Arc::new(HawkEyeHuge), everything())
        },
    ])
}

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

struct Server {
    kernel: Kernel,
    space: SpaceId,
    system: System,
    round: u64,
}

impl Server {
    fn start(system: System, memory_bytes: u64) -> Result<Self, KernelError> {
        let mut kernel = Kernel::new(KernelSpec {
            memory_bytes,
            faults: system.faults.clone(),
            costs: KernelCosts::paper(),
            swap: None,
        })?;
        let space = kernel.create_space();
        Ok(Self {
            kernel,
            space,
            system,
            round: 0,
        })
    }

    fn fill(&mut self, at: u64, bytes: u64) -> Result<(), KernelError> {
        let end = (at + bytes).next_multiple_of(HUGE_PAGE_BYTES);
        self.kernel.map(self.space, at..end, HugeAdvice::None)?;
        let end = (at + bytes).next_multiple_of(BASE_PAGE_BYTES);
        self.kernel.touch(self.space, at..end, Access::Write)?;
        Ok(())
    }

    /// Deletes a random share of the keys.
    fn delete(&mut self, keys: u64, share: f64) -> Outcome<()> {
        let mut order: Vec<u32> = (0..keys as u32).collect();
        let mut state = 1;
        for last in (1..order.len()).rev() {
            let other = (u128::from(random(&mut state)) * (last as u128 + 1)) >> 64;
            order.swap(last, other as usize);
        }
        order.truncate((keys as f64 * share) as usize);
        let mut kept = VecDeque::new();
        let mut live = keys;
        let every = (order.len() as u64 / ROUNDS).max(1);
        for (deleted, key) in order.iter().enumerate() {
            live -= 1;
            kept.push_back(*key);
            while kept.len() as u64 > live / 8 {
                let Some(page) = kept.pop_front() else { break };
                let start = VALUES + u64::from(page) * BASE_PAGE_BYTES;
                self.kernel
                    .free(self.space, start..start + BASE_PAGE_BYTES)?;
            }
            if deleted as u64 % every == 0 {
                self.manage()?;
            }
        }
        self.manage()
    }

    /// Inserts values of 2 MB until there is no memory left, or so many.
    fn fill_again(&mut self, most: u64) -> Outcome<()> {
        self.kernel.map(
            self.space,
            LATER..LATER + most * HUGE_PAGE_BYTES,
            HugeAdvice::None,
        )?;
        for value in 0..most {
            let start = LATER + value * HUGE_PAGE_BYTES;
            match self
                .kernel
                .touch(self.space, start..start + HUGE_PAGE_BYTES, Access::Write)
            {
                Ok(_) => {}
                Err(KernelError::OutOfMemory(_)) => break,
                Err(other) => return Err(other.into()),
            }
            if value % 64 == 0 {
                self.manage()?;
            }
        }
        Ok(())
    }

    fn samples(&self) -> Result<Vec<RegionSample>, KernelError> {
        let mut samples = self.kernel.samples(self.space)?;
        if self.system.by_population {
            for sample in samples.iter_mut().filter(|sample| !sample.is_huge()) {
                sample.present = self.kernel.nonzero(self.space, sample.region).count();
            }
        }
        Ok(samples)
    }

    /// The manager: recovers above its watermark (down to 15 points under it), promotes under it.
    fn manage(&mut self) -> Outcome<()> {
        let percent = self.kernel.memory_use().percent();
        if let Some(full) = self.system.recovers_above.filter(|full| percent > *full) {
            self.recover(full - 15.0)?;
            return Ok(());
        }
        let regions = self.samples()?;
        let Some(policy) = &mut self.system.policy else {
            return Ok(());
        };
        self.round += 1;
        let now = Duration::from_secs(self.round);
        let process = ProcessId {
            pid: 1,
            start_ticks: 0,
        };
        policy.observe(&Observation {
            machine: MachineShape::default(),
            at: now,
            processes: vec![ProcessSample::population(process, regions)],
            unread: Vec::new(),
            fmfi: Some(self.kernel.figures().fmfi),
        });
        let full = self.system.recovers_above;
        while full.is_none_or(|full| self.kernel.memory_use().percent() < full) {
            let Some(next) = policy.next_promotion(now) else {
                break;
            };
            let done = self
                .kernel
                .promote(self.space, next.region, next.order, Payer::Manager);
            policy.settle(
                process,
                next.region,
                done.as_ref().ok().map(|d| d.paid.time),
            );
            if matches!(done, Err(KernelError::NoFrames(..))) {
                break;
            }
        }
        Ok(())
    }

    fn recover(&mut self, until_percent: f64) -> Result<(), KernelError> {
        let huge = self.kernel.samples(self.space)?;
        for sample in huge.iter().filter(|sample| sample.is_huge()) {
            if self.kernel.memory_use().percent() < until_percent {
                break;
            }
            let found =
                self.kernel
                    .scan_zeros(self.space, sample.region, WORTH_A_SPLIT, Payer::Manager)?;
            if found.zero_pages >= WORTH_A_SPLIT {
                self.kernel
                    .recover(self.space, sample.region, Payer::Manager)?;
            }
        }
        Ok(())
    }

    fn rss_gb(&self) -> Result<f64, KernelError> {
        Ok(self.kernel.space_figures(self.space)?.rss_bytes as f64 / GB)
    }
}

fn main() -> Outcome<()> {
    println!("Table 7: 8 million values of 4 KiB, 60 % deleted; resident memory in GB");
    let paper = ["16.2", "33.2", "16.3", "33.1", "-", "33.2", "16.2"];
    // Pressure: whatever can be recovered is wanted.
    for (system, paper) in systems(1.0)?.into_iter().zip(paper) {
        let name = system.name;
        let mut server = Server::start(system, 96 << 30)?;
        let keys = 8_000_000;
        server.fill(VALUES, keys * BASE_PAGE_BYTES)?;
        server.fill(KEYS, keys * KEY_BYTES)?;
        let full = server.rss_gb()?;
        server.delete(keys, 0.6)?;
        let rss = server.rss_gb()?;
        println!("  {name:20} full {full:5.1}, then {rss:5.1}   paper {paper}");
    }
    println!(
        "Figure 1: 48 GB of memory, 11 million values of 4 KiB, 80 % deleted, then values of 2 MB; GB"
    );
    let paper = ["-", "20 useful", "-", "-", "28 useful", "-", "all of 45"];
    for (system, paper) in systems(85.0)?.into_iter().zip(paper) {
        let name = system.name;
        let mut server = Server::start(system, 48 << 30)?;
        let keys = 11_000_000;
        server.fill(VALUES, keys * BASE_PAGE_BYTES)?;
        server.fill(KEYS, keys * KEY_BYTES)?;
        server.delete(keys, 0.8)?;
        let sparse = server.rss_gb()?;
        server.fill_again(17_000)?;
        let held = server.rss_gb()?;
        let useful = server.kernel.useful_bytes(server.space)? as f64 / GB;
        println!(
            "  {name:20} deleted {sparse:5.1}, filled again {held:5.1} of which {useful:5.1} useful   paper {paper}"
        );
    }
    Ok(())
}
