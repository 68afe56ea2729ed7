use super::*;
use hawkeye_test_support::event_constructors::{
    process_with_pid, promoted_event, recovered_event, region_at_index,
};

fn sampled(at_s: u64, sizes: &[(u32, usize)]) -> Observation {
    let one = RegionSample {
        present: 1,
        accessed: 1,
        runs: 1,
        ..RegionSample::new_full_and_untouched(region_at_index(0))
    };
    let sample =
        |pid, regions| ProcessSample::from_present_pages(process_with_pid(pid), vec![one; regions]);
    Observation {
        at: Duration::from_secs(at_s),
        processes: sizes.iter().map(|(pid, n)| sample(*pid, *n)).collect(),
        ..Observation::default()
    }
}

fn kept(last_seen: &LastSamples) -> Vec<u32> {
    let mut pids: Vec<u32> = last_seen.samples.keys().map(|p| p.pid).collect();
    pids.sort_unstable();
    pids
}

#[test]
fn samples_stay_bounded_by_dropping_the_largest() {
    let mut last_seen = LastSamples::with_max_regions(100);
    last_seen.store_observation(sampled(1, &[(1, 40), (2, 30)]));
    last_seen.store_observation(sampled(2, &[(3, 40)]));
    assert_eq!(kept(&last_seen), [2, 3], "of equal ones the oldest is dropped");
    last_seen.store_observation(sampled(3, &[(4, 101)]));
    assert_eq!(kept(&last_seen), [2, 3], "a sample that is too large takes no room");
    last_seen.store_observation(sampled(4, &[(5, 35)]));
    assert_eq!(kept(&last_seen), [2, 5]);
    last_seen.retain_processes(|_| false);
    assert!(kept(&last_seen).is_empty());
}

#[test]
fn the_figures_of_a_process_stay_where_its_sample_is_too_large() {
    let mut last_seen = LastSamples::with_max_regions(100);
    let mut observation = sampled(3, &[(1, 101)]);
    observation.processes[0].cpu_cores = 0.5;
    last_seen.store_observation(observation);
    let process = process_with_pid(1);
    let figures = last_seen.figures(process).map(|figures| (figures.at, figures.cpu_cores));
    assert_eq!(figures, Some((Duration::from_secs(3), 0.5)));
    assert!(last_seen.sample(process).is_none());
    last_seen.retain_processes(|_| false);
    assert_eq!(last_seen.figures(process), None);
}

#[test]
fn shared_memory_of_the_last_samples_counts_once() {
    let mut last_seen = LastSamples::default();
    let file = FileRegion { inode: 7, device: 1, index: 0 };
    let mapped_at = |at_s, pids: &[u32]| {
        let sizes: Vec<_> = pids.iter().map(|pid| (*pid, 1)).collect();
        let mut observation = sampled(at_s, &sizes);
        let regions = observation.processes.iter_mut().flat_map(|sample| &mut sample.regions);
        regions.for_each(|region| region.file = Some(file));
        observation
    };
    last_seen.store_observation(mapped_at(1, &[1, 2]));
    last_seen.store_observation(mapped_at(2, &[3]));
    // One page in each region.
    let bytes = |last_seen: &LastSamples| {
        let shared = last_seen.shared_memory();
        (shared.memory.resident_bytes, shared.counted_again.resident_bytes, shared.processes)
    };
    assert_eq!(bytes(&last_seen), (4096, 2 * 4096, 3));
    last_seen.retain_processes(|process| process.pid != 1);
    assert_eq!(bytes(&last_seen), (4096, 4096, 2));
    assert_eq!(last_seen.mappers_of_file_region(file), [2, 3].map(process_with_pid));
    // It maps private memory now.
    last_seen.store_observation(sampled(3, &[(2, 1)]));
    assert_eq!(bytes(&last_seen), (4096, 0, 1));
    assert_eq!(last_seen.mappers_of_file_region(file), [process_with_pid(3)]);
}

#[test]
fn the_end_of_a_process_without_shared_memory_causes_no_recount() {
    let mut last_seen = LastSamples::default();
    let mut observation = sampled(1, &[(1, 1), (2, 1)]);
    observation.processes[1].regions[0].file = Some(FileRegion { inode: 7, device: 1, index: 0 });
    last_seen.store_observation(observation);
    assert_eq!(last_seen.shared_memory().files, 1);
    // A recount would overwrite this.
    last_seen.shared.files = 99;
    last_seen.retain_processes(|process| process.pid != 1);
    assert_eq!((kept(&last_seen), last_seen.shared_memory().files), (vec![2], 99));
    last_seen.retain_processes(|_| false);
    assert_eq!(last_seen.shared_memory(), SharedMemoryTotals::default());
}

#[test]
fn promotions_and_splits_since_the_sample_count() {
    let mut last_seen = LastSamples::default();
    last_seen.store_observation(sampled(1, &[(1, 1)]));
    let process = process_with_pid(1);
    let is_huge = |last_seen: &LastSamples| {
        let seen = &last_seen.samples[&process];
        seen.is_huge_now(&seen.sample.regions[0])
    };
    last_seen.apply_event(&promoted_event(process, region_at_index(0), 12));
    assert!(is_huge(&last_seen));
    last_seen.apply_event(&recovered_event(process, region_at_index(0), 0));
    assert!(!is_huge(&last_seen));
}
