//! Two ready scenarios, for where the kernel does not allow managing.

use crate::error::SimError;
use crate::machine::SimMachine;
use crate::spec::{Backing, MachineSpec, Part, ProcessSpec};
use hawkeye_manager::{Machine, Manager, Settings, Wake};
use hawkeye_policy::policies::{self, PolicySettings};
use hawkeye_policy::{HUGE_PAGE_BYTES, ProcessId, Rate, RegionAddr, Watermarks};
use serde::Serialize;
use std::time::Duration;

/// The policies that the first scenario compares.
pub const POLICIES: [&str; 3] = ["none", "linux", "hawkeye-g"];
/// Promotions that each of them may do: 512 MiB.
pub const BUDGET: u64 = 256;
/// Promotions per second that each of them may do.
const RATE_PER_S: f64 = 20.0;
/// How long each of them has.
const HOT_FIRST_TIME: Duration = Duration::from_secs(60);
/// How long recovery has.
const BLOATED_TIME: Duration = Duration::from_secs(30);
/// Regions of the program in the first scenario: 4 GiB.
const REGIONS: u32 = 2048;
/// Of these, the hot ones, at the highest addresses: 512 MiB.
const HOT_REGIONS: u32 = 256;
/// Share of accesses that go to the hot regions, in per cent.
const HOT_PERCENT: f64 = 90.0;
/// Where the programs' memory starts.
const BASE: u64 = 1 << 30;

/// What one policy made of the first scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyResult {
    /// Its name.
    pub policy: &'static str,
    /// Regions that it promoted.
    pub promoted: u64,
    /// Of these, hot ones.
    pub promoted_hot: u64,
    /// Accesses per second at the end, as its mapping then allows.
    pub accesses_per_s: f64,
    /// Accesses per second over the whole run, with everything that managing cost the program.
    pub mean_accesses_per_s: f64,
    /// How much of what huge pages everywhere would bring (in accesses per second) it got, in per
    /// cent.
    pub gain_percent: f64,
    /// CPU time of the manager, in seconds.
    pub manager_cpu_s: f64,
    /// Its longest call into the program, in milliseconds.
    pub longest_call_ms: f64,
}

/// The first scenario: 4 GiB under base pages, 90 % of accesses to the top 512 MiB, and a budget
/// that suffices for just these.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HotFirst {
    /// How long each run was, in seconds of simulated time.
    pub simulated_s: f64,
    /// Promotions that each policy could do.
    pub max_promotions: u64,
    /// Accesses per second with base pages only.
    pub base_accesses_per_s: f64,
    /// Accesses per second with huge pages only.
    pub huge_accesses_per_s: f64,
    /// One for each of [`POLICIES`], in that order.
    pub policies: Vec<PolicyResult>,
}

/// The second scenario: 1 GiB under huge pages of which 100 of 512 base pages are used, on a machine
/// that is nearly full.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bloated {
    /// How long the run was, in seconds of simulated time.
    pub simulated_s: f64,
    /// The machine's memory, in bytes.
    pub total_bytes: u64,
    /// Resident memory before, in bytes.
    pub rss_before_bytes: u64,
    /// Resident memory after recovery, in bytes.
    pub rss_after_bytes: u64,
    /// What the program uses, before and after, in bytes.
    pub used_bytes: u64,
    /// Memory recovered, in bytes.
    pub recovered_bytes: u64,
    /// Huge pages split.
    pub split: u64,
    /// CPU time of the manager, in seconds.
    pub manager_cpu_s: f64,
    /// Its longest call into the program, in milliseconds.
    pub longest_call_ms: f64,
}

/// The first scenario under each of [`POLICIES`]. `seed` chooses the pages that happen to be accessed
/// in a window.
///
/// # Errors
/// None with this crate's own costs and policies.
pub fn hot_first(seed: u64) -> Result<HotFirst, SimError> {
    let (machine, program) = hot_at_the_top(seed, Backing::Base)?;
    let base = rate(&machine, program);
    let (machine, program) = hot_at_the_top(seed, Backing::Huge)?;
    let huge = rate(&machine, program);
    let mut results = Vec::new();
    for policy in POLICIES {
        results.push(hot_first_by(policy, seed, base, huge)?);
    }
    Ok(HotFirst {
        simulated_s: HOT_FIRST_TIME.as_secs_f64(),
        max_promotions: BUDGET,
        base_accesses_per_s: base,
        huge_accesses_per_s: huge,
        policies: results,
    })
}

fn hot_first_by(
    policy: &'static str,
    seed: u64,
    base: f64,
    huge: f64,
) -> Result<PolicyResult, SimError> {
    let settings = Settings {
        max_promotions: Some(BUDGET),
        rate: Some(Rate::per_second(RATE_PER_S)?),
        ..Settings::default()
    };
    let (machine, program) = hot_at_the_top(seed, Backing::Base)?;
    let (machine, promoted) = manage(machine, policy, settings, HOT_FIRST_TIME, |totals| {
        totals.promoted
    })?;
    let hot = region(REGIONS - HOT_REGIONS);
    let regions = machine.process(program).map(|p| p.regions());
    let promoted_hot = regions
        .iter()
        .flatten()
        .filter(|r| r.is_huge() && r.region >= hot)
        .count() as u64;
    let accesses_per_s = rate(&machine, program);
    Ok(PolicyResult {
        policy,
        promoted,
        promoted_hot,
        accesses_per_s,
        mean_accesses_per_s: machine.accesses_done(program) as f64 / machine.now().as_secs_f64(),
        gain_percent: (accesses_per_s - base) / (huge - base) * 100.0,
        manager_cpu_s: machine.own_costs().cpu.as_secs_f64(),
        longest_call_ms: machine.own_costs().longest_call.as_secs_f64() * 1e3,
    })
}

fn hot_at_the_top(seed: u64, backing: Backing) -> Result<(SimMachine, ProcessId), SimError> {
    let mut machine = SimMachine::new(MachineSpec {
        seed,
        ..MachineSpec::default()
    })?;
    let cold = REGIONS - HOT_REGIONS;
    let part = |first: u32, regions: u32, weight: f64| Part {
        start: region(first),
        regions,
        weight,
        backing,
        ..Part::default()
    };
    let program = machine.start(ProcessSpec {
        parts: vec![
            part(0, cold, 100.0 - HOT_PERCENT),
            part(cold, HOT_REGIONS, HOT_PERCENT),
        ],
        ..ProcessSpec::default()
    })?;
    Ok((machine, program))
}

/// The second scenario. `seed` chooses the pages that happen to be accessed in a window.
///
/// # Errors
/// None with this crate's own costs and policies.
pub fn bloated(seed: u64) -> Result<Bloated, SimError> {
    // A ninth is free: 89 % are in use. The low watermark is under what the program needs, so
    // that all that can be recovered is.
    let total_bytes = 9 << 27;
    let settings = Settings {
        watermarks: Watermarks::new(85.0, 10.0)?,
        ..Settings::default()
    };
    let mut machine = SimMachine::new(MachineSpec {
        total_bytes,
        seed,
        ..MachineSpec::default()
    })?;
    let program = machine.start(ProcessSpec {
        parts: vec![Part {
            start: region(0),
            regions: 512,
            used_pages: 100,
            backing: Backing::Huge,
            ..Part::default()
        }],
        ..ProcessSpec::default()
    })?;
    let rss = |machine: &SimMachine| machine.process(program).map_or(0, |p| p.rss_bytes());
    let rss_before_bytes = rss(&machine);
    let (machine, (split, recovered_bytes)) =
        manage(machine, "hawkeye-g", settings, BLOATED_TIME, |totals| {
            (totals.split, totals.recovered_bytes)
        })?;
    Ok(Bloated {
        simulated_s: BLOATED_TIME.as_secs_f64(),
        total_bytes,
        rss_before_bytes,
        rss_after_bytes: rss(&machine),
        used_bytes: machine.process(program).map_or(0, |p| p.used_bytes()),
        recovered_bytes,
        split,
        manager_cpu_s: machine.own_costs().cpu.as_secs_f64(),
        longest_call_ms: machine.own_costs().longest_call.as_secs_f64() * 1e3,
    })
}

fn manage<T>(
    machine: SimMachine,
    policy: &str,
    settings: Settings,
    time: Duration,
    result: impl FnOnce(&hawkeye_manager::Totals) -> T,
) -> Result<(SimMachine, T), SimError> {
    let told = PolicySettings {
        average: settings.average,
        linux: settings.linux(),
        ..PolicySettings::default()
    };
    let policy = policies::by_name(policy, &told)?;
    let mut manager = Manager::new(machine, policy, settings)?;
    while manager.machine().now() < time && manager.step() == Wake::Deadline {}
    let (machine, journal) = manager.finish();
    Ok((machine, result(journal.totals())))
}

fn rate(machine: &SimMachine, program: ProcessId) -> f64 {
    let program = machine.process(program);
    program.map_or(0.0, |p| p.access_rate(machine.costs()))
}

fn region(index: u32) -> RegionAddr {
    RegionAddr::containing(BASE + u64::from(index) * HUGE_PAGE_BYTES)
}
