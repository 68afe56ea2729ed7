//! Measures the facts about a process.

use super::super::forecast::{self, RecoverySettings};
use super::super::unmanaged_kernel::UnmanagedKernel;
use super::facts::{
    AdviceFacts, BaseRegionFacts, CgroupFacts, ProcessForecast, RunningHawkeye, TranslationCost,
    TranslationNotMeasured, ZeroPageFacts,
};
use super::unmeasured::UnmeasuredFacts;
use crate::allocator_env_plan::{self, HugePageSources};
use crate::daemon::protocol::{DaemonReply, DaemonRequest};
use crate::daemon::{client, socket_path_in_state_dir};
use anyhow::{Context, Result, bail};
use hawkeye_linux::ChosenKernelMethods;
use hawkeye_linux::machine_lease::manager_lock::{ManagerLock, state_dir};
use hawkeye_linux::machine_lease::own_files::create_trusted_folder;
use hawkeye_linux::memory::cgroup_limits::CgroupLimits;
use hawkeye_linux::memory::system_memory;
use hawkeye_linux::processes::huge_page_context::{HugePageAdvice, HugePageContext, MappingGroup};
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::sample::counters::EventCodeOverrides;
use hawkeye_linux::sample::pagemap;
use hawkeye_linux::sample::process_meter::{MeasuredWindowOverhead, ProcessMeter};
use hawkeye_linux::sample::sampler::SamplerBackend;
use hawkeye_linux::sample::walk_costs;
use hawkeye_policy::{
    BloatThreshold, CgroupMemory, PageOrder, RegionAddr, RegionSample, TranslationOverhead,
};
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time from the start of one window to the next. For half of it the process is left alone.
const EVERY: Duration = Duration::from_secs(2);
/// Huge pages searched for zeros at most, spread evenly; each takes 4 us to 250 us.
const SEARCHED: usize = 512;

/// Measures a process for this many seconds.
pub fn measure_process(pid: u32, seconds: f64, mut tell: impl FnMut(&str)) -> Result<AdviceFacts> {
    let process = ProcessHandle::open(pid)?;
    let mut means = forecast::set_up_methods_for_measuring()?;
    // What walks cost is measured once after each start of the machine, and kept there.
    let state = state_dir();
    let _ = create_trusted_folder(&state, 0o755);
    let manager = find_running_hawkeye(&state, pid);
    let costs = walk_costs::load_or_measure_costs(&state)?;
    means.enable_overhead_estimate(costs.into(), EventCodeOverrides::default());
    let fullest = fullest_limited_cgroup(&process);
    let forecast = measure_forecast(&mut means, pid, fullest.as_ref(), seconds)?;
    let (cost, ranked, huge, zeros) = match means.sampler {
        SamplerBackend::AccessBits(bits) => {
            let mut measuring = ProcessMeter::open(bits, pid)?;
            let windows = measure_windows(&mut measuring, seconds, &mut tell)?;
            let regions = measuring.read_candidate_regions()?;
            let (huge, base): (Vec<_>, Vec<_>) = regions.into_iter().partition(|r| r.is_huge());
            let zeros = count_zero_pages_in_sample(&mut measuring, &huge)?;
            let cost = match huge.is_empty() && base.is_empty() {
                true => Err(TranslationNotMeasured::TooSmall),
                false => median_cost(&windows),
            };
            (cost, rank_regions(&base, &windows), huge, zeros)
        }
        SamplerBackend::Damon | SamplerBackend::Population => {
            let regions = pagemap::read_eligible_present_pages(pid)?.regions;
            let (huge, base): (Vec<_>, Vec<_>) = regions.into_iter().partition(|r| r.is_huge());
            let (unseen, unranked) = (TranslationNotMeasured::Unseen, rank_regions(&base, &[]));
            (Err(unseen), unranked, huge, ZeroPageFacts::default())
        }
    };
    if !process.is_alive() {
        bail!("process {pid} ended while it was measured");
    }
    let surroundings = HugePageContext::of_process(pid)?;
    let sources = HugePageSources::of_machine(surroundings.settings.enabled.as_deref());
    Ok(AdviceFacts {
        pid,
        seconds,
        cost,
        regions: ranked,
        huge_regions: huge.iter().filter(|r| r.present > 0).count() as u64,
        zeros,
        manager,
        recovery_possible: means.recovery.is_possible_for_pid(pid),
        first_touch: allocator_env_plan::env_plan_for_process(pid, sources),
        surroundings,
        memory: system_memory::machine_memory_use()
            .context("can't read the memory use of the machine")?,
        cgroup: fullest.map(|group| CgroupFacts { name: group.name, usage: group.usage }),
        forecast,
    })
}

/// The fullest of a process's cgroups that have a limit.
fn fullest_limited_cgroup(process: &ProcessHandle) -> Option<CgroupMemory> {
    let groups =
        CgroupLimits::of_this_machine().read_limited_cgroups(Duration::ZERO, &[process.id]);
    groups.into_iter().max_by(|a, b| a.usage.used_percent().total_cmp(&b.usage.used_percent()))
}

/// What is known of a process without a measurement.
///
/// # Errors
/// The process has ended, or it belongs to another user.
pub fn read_unmeasured_process(pid: u32, kernel: UnmanagedKernel) -> Result<UnmeasuredFacts> {
    let process = ProcessHandle::open(pid)?;
    // The rest of it counts regions of 2 MiB.
    let HugePageContext { identity, thp_disabled, places, .. } = HugePageContext::of_process(pid)?;
    let fullest = fullest_limited_cgroup(&process);
    if !process.is_alive() {
        bail!("process {pid} ended while it was read");
    }
    let sum = |bytes: fn(&MappingGroup) -> u64| places.iter().map(bytes).sum::<u64>();
    let advised = |advice: HugePageAdvice| -> u64 {
        let alike = places.iter().filter(|place| place.advice == advice);
        alike.map(|place| place.resident_bytes).sum()
    };
    Ok(UnmeasuredFacts {
        pid,
        identity,
        thp_disabled,
        resident_bytes: sum(|place| place.resident_bytes),
        huge_bytes: sum(|place| place.huge_bytes),
        requested_bytes: advised(HugePageAdvice::Huge),
        excluded_bytes: advised(HugePageAdvice::NoHuge),
        first_touch: allocator_env_plan::env_plan_for_process(
            pid,
            HugePageSources::of_machine(kernel.first_touch_mode()),
        ),
        cgroup: fullest.map(|group| CgroupFacts { name: group.name, usage: group.usage }),
        kernel,
    })
}

/// The forecast for a process and for its fullest cgroup with a limit.
fn measure_forecast(
    means: &mut ChosenKernelMethods,
    pid: u32,
    fullest: Option<&CgroupMemory>,
    seconds: f64,
) -> Result<Option<ProcessForecast>> {
    let top = fullest.map(|group| Path::new(&group.name));
    let settings = RecoverySettings::of_config_file(None);
    let wanted =
        |other: u32, cgroup: &Path| other == pid || top.is_some_and(|top| cgroup.starts_with(top));
    let measured = forecast::measure_growth(means, &settings, wanted, seconds)?;
    let Some(own) = measured.processes.iter().find(|process| process.pid == pid) else {
        return Ok(None);
    };
    let below = |top| forecast::forecast_below(top, &measured.processes, &settings.watermarks);
    let groups = top.map_or(Ok(Vec::new()), below)?;
    let added_bytes = own.growth.added_bytes;
    Ok(Some(ProcessForecast { added_bytes, cgroup: groups.into_iter().next() }))
}

/// The machine's manager. One that this user can't see counts as none.
fn find_running_hawkeye(state: &Path, pid: u32) -> Option<RunningHawkeye> {
    let holder = ManagerLock::describe_holder(state).ok().flatten()?;
    let why = DaemonRequest::Why { pid, address: None };
    let manages = match client::send_request(&socket_path_in_state_dir(state), why) {
        Ok(DaemonReply::Explanation(why)) => Some(why.is_managed()),
        // A manager that is not a daemon answers no requests.
        _ => None,
    };
    Some(RunningHawkeye { holder, manages })
}

fn measure_windows(
    measuring: &mut ProcessMeter,
    seconds: f64,
    tell: &mut impl FnMut(&str),
) -> Result<Vec<MeasuredWindowOverhead>> {
    let begun = Instant::now();
    let until = begun + Duration::from_secs_f64(seconds);
    let mut windows = Vec::new();
    loop {
        let next = Instant::now() + EVERY;
        windows.push(measuring.measure_window_overhead()?);
        let now = Instant::now();
        let lasted_s = (now - begun).as_secs_f64();
        tell(&format!("{lasted_s:.0} of {seconds:.0} s"));
        if now >= until {
            return Ok(windows);
        }
        std::thread::sleep(next.min(until).saturating_duration_since(now));
        if Instant::now() >= until && windows.len() > 1 {
            return Ok(windows);
        }
    }
}

fn median_cost(
    windows: &[MeasuredWindowOverhead],
) -> Result<TranslationCost, TranslationNotMeasured> {
    let overhead = |window: &MeasuredWindowOverhead| window.counted.or(window.estimate.overhead);
    let ran = windows.iter().filter_map(|window| Some((overhead(window)?, window)));
    let mut ran: Vec<(TranslationOverhead, &MeasuredWindowOverhead)> = ran.collect();
    ran.sort_by(|a, b| a.0.percent.total_cmp(&b.0.percent));
    let (Some(lowest), Some(highest), Some(middle)) =
        (ran.first(), ran.last(), ran.get(ran.len() / 2))
    else {
        return Err(TranslationNotMeasured::Idle);
    };
    let cores = ran.iter().map(|(_, window)| window.estimate.cpu_cores);
    Ok(TranslationCost {
        overhead: middle.0,
        huge_percent: middle.1.estimate.huge_percent.min(middle.0.percent),
        windows_percent: [lowest.0.percent, highest.0.percent],
        windows: ran.len(),
        cpu_cores: cores.sum::<f64>() / ran.len() as f64,
    })
}

/// The regions, most page walks first.
///
/// A window samples each region for some milliseconds, so the region that seems hottest is so
/// partly by chance. Every second window therefore gives the order, and the others give the shares:
/// the two are independent.
fn rank_regions(base: &[RegionSample], windows: &[MeasuredWindowOverhead]) -> Vec<BaseRegionFacts> {
    let turns = |odd: usize| mean_walks_per_region(windows.iter().skip(odd).step_by(2));
    let several = windows.len() > 1;
    let (by, of) = (turns(0), turns(usize::from(several)));
    let walks = |known: &HashMap<RegionAddr, f64>, r: &RegionSample| {
        known.get(&r.region).copied().unwrap_or(0.0)
    };
    let all: f64 = base.iter().map(|r| walks(&of, r)).sum();
    let mut order: Vec<&RegionSample> = base.iter().filter(|r| r.present > 0).collect();
    order.sort_by(|a, b| {
        let most_first = walks(&by, b).total_cmp(&walks(&by, a));
        most_first.then(a.region.cmp(&b.region))
    });
    let known = |r: &RegionSample| BaseRegionFacts {
        start: r.region.start(),
        present: r.present,
        swapped: r.swapped,
        contiguous: r.order == PageOrder::CONTIGUOUS,
        share: if all > 0.0 { walks(&of, r) / all } else { 0.0 },
        ranked: several && by.contains_key(&r.region) && of.contains_key(&r.region),
    };
    order.into_iter().map(known).collect()
}

/// Page walks of each region: the mean over the windows that sampled it. Takes the raw counts,
/// because a window's estimate is drawn towards the other windows.
fn mean_walks_per_region<'a>(
    windows: impl Iterator<Item = &'a MeasuredWindowOverhead>,
) -> HashMap<RegionAddr, f64> {
    let mut sums: HashMap<RegionAddr, (f64, f64)> = HashMap::new();
    for walks in windows.flat_map(|window| &window.estimate.walks) {
        let (sum, count) = sums.entry(walks.region).or_default();
        *sum += f64::from(walks.counted_per_s);
        *count += 1.0;
    }
    sums.into_iter().map(|(region, (sum, count))| (region, sum / count)).collect()
}

fn count_zero_pages_in_sample(
    measuring: &mut ProcessMeter,
    huge: &[RegionSample],
) -> Result<ZeroPageFacts> {
    let threshold = BloatThreshold::default().zero_pages();
    let mut zeros = ZeroPageFacts::default();
    for region in huge.iter().step_by(huge.len().div_ceil(SEARCHED).max(1)) {
        if let Some(pages) = measuring.count_zero_pages(region.region)? {
            zeros.searched += 1;
            zeros.zero_pages += u64::from(pages);
            zeros.bloated += u64::from(pages >= threshold);
        }
    }
    Ok(zeros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::TranslationOverheadSource;
    use hawkeye_policy::walk_rate::{OverheadEstimate, RegionWalksPerSecond};

    fn window(percent: Option<f64>, walks: &[u32]) -> MeasuredWindowOverhead {
        let region = |(n, walks): (usize, &u32)| RegionWalksPerSecond {
            region: RegionAddr::containing((n as u64) << 21),
            expected_per_s: 0,
            counted_per_s: *walks,
        };
        MeasuredWindowOverhead {
            estimate: OverheadEstimate {
                overhead: percent.map(|it| {
                    TranslationOverhead::new_without_error(it, TranslationOverheadSource::WalkRate)
                }),
                huge_percent: 1.0,
                cpu_cores: 0.5,
                walks: walks.iter().enumerate().map(region).collect(),
            },
            counted: None,
        }
    }

    #[test]
    fn the_cost_is_the_median_of_windows_that_are_not_idle() {
        let windows = [Some(30.0), None, Some(10.0), Some(20.0)].map(|p| window(p, &[]));
        let cost = median_cost(&windows).expect("the process ran in some window");
        assert_eq!((cost.overhead.percent, cost.windows), (20.0, 3));
        assert_eq!(cost.windows_percent, [10.0, 30.0]);
        assert_eq!(super::median_cost(&[window(None, &[])]), Err(TranslationNotMeasured::Idle));
    }

    #[test]
    fn rank_and_share_of_a_region_come_from_different_windows() {
        let base: Vec<RegionSample> = (0..3)
            .map(|n| RegionSample::new_full_and_untouched(RegionAddr::containing(n << 21)))
            .collect();
        let windows = [window(None, &[100, 900, 0]), window(None, &[300, 100, 0])];
        let ranked = rank_regions(&base, &windows);
        let found: Vec<(u64, f64)> = ranked.iter().map(|r| (r.start >> 21, r.share)).collect();
        assert_eq!(found, [(1, 0.25), (0, 0.75), (2, 0.0)]);
        assert!(ranked.iter().all(|r| r.ranked));
        // A region that one of the two windows did not sample has no rank. After one window none
        // has a rank.
        let windows = [window(None, &[100, 900]), window(None, &[300, 100, 7])];
        let unseen = super::rank_regions(&base, &windows);
        let ranks: Vec<(u64, bool)> = unseen.iter().map(|r| (r.start >> 21, r.ranked)).collect();
        assert_eq!(ranks, [(1, true), (0, true), (2, false)]);
        let once = super::rank_regions(&base, &windows[..1]);
        assert!(once.iter().all(|r| !r.ranked));
    }
}
