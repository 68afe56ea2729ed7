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

fn searched(process: ProcessId, region: RegionAddr, zero_pages: u16) -> Event {
    Event::Searched { process, region, zero_pages }
}

/// Base pages of huge pages of a process that are known to be empty.
fn zero_pages(last_seen: &LastSamples, pid: u32) -> u64 {
    last_seen.zero_bytes_in_huge_pages(process_with_pid(pid)) / BASE_PAGE_BYTES
}

fn kept(last_seen: &LastSamples) -> Vec<u32> {
    let mut pids: Vec<u32> = last_seen.samples.keys().map(|p| p.pid).collect();
    pids.sort_unstable();
    pids
}

#[test]
fn samples_stay_bounded_by_dropping_the_oldest_then_the_largest() {
    let mut last_seen = LastSamples::with_max_regions(100);
    last_seen.store_observation(sampled(1, &[(1, 40), (2, 30)]));
    last_seen.store_observation(sampled(2, &[(3, 40)]));
    assert_eq!(kept(&last_seen), [2, 3]);
    last_seen.store_observation(sampled(3, &[(2, 101)]));
    let none = kept(&last_seen);
    assert!(none.is_empty(), "a sample that is too large takes no room");
    last_seen.store_observation(sampled(4, &[(4, 80), (5, 30)]));
    assert_eq!(kept(&last_seen), [5]);
    last_seen.retain_processes(|_| false);
    assert!(kept(&last_seen).is_empty());
}

#[test]
fn empty_pages_count_until_the_huge_page_is_split() {
    let mut last_seen = LastSamples::with_max_regions(2);
    last_seen.store_observation(sampled(1, &[(1, 1)]));
    last_seen.apply_event(&promoted_event(process_with_pid(1), region_at_index(0), 12));
    assert_eq!(zero_pages(&last_seen, 1), 12);
    let seen = &last_seen.samples[&process_with_pid(1)];
    assert!(seen.is_huge_now(&seen.sample.regions[0]));
    // Searched since then: the same number is empty now.
    last_seen.apply_event(&searched(process_with_pid(1), region_at_index(0), 5));
    assert_eq!(zero_pages(&last_seen, 1), 5);
    last_seen.apply_event(&recovered_event(process_with_pid(1), region_at_index(0), 0));
    assert_eq!(zero_pages(&last_seen, 1), 0);
    // Splits by the kernel itself show in the next sample.
    last_seen.apply_event(&promoted_event(process_with_pid(1), region_at_index(0), 12));
    last_seen.store_observation(sampled(2, &[(1, 1)]));
    assert_eq!(zero_pages(&last_seen, 1), 0);
    // The size stays bounded.
    for index in 0..5 {
        last_seen.apply_event(&searched(process_with_pid(2), region_at_index(index), 1));
    }
    assert_eq!(zero_pages(&last_seen, 2), 2);
    last_seen.retain_processes(|_| false);
    last_seen.apply_event(&searched(process_with_pid(3), region_at_index(0), 1));
    assert_eq!(zero_pages(&last_seen, 3), 1);
}
