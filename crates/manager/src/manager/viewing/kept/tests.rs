use super::*;
use hawkeye_policy::{CoverageSource, OutsideRegions};

fn sampled(at_s: u64, sizes: &[(u32, usize)]) -> Observation {
    let sample = |pid, regions| ProcessSample {
        outside: OutsideRegions::default(),
        faults: None,
        process: ProcessId {
            pid,
            start_ticks: 1,
        },
        source: CoverageSource::AccessBits,
        regions: vec![
            RegionSample {
                present: 1,
                accessed: 1,
                runs: 1,
                ..RegionSample::untouched(RegionAddr::containing(0))
            };
            regions
        ],
        first_touches: 0,
        overhead: None,
        walks_seen: 1.0,
        cpu_cores: 1.0,
        age: Duration::MAX,
        terms: Terms::default(),
    };
    Observation {
        at: Duration::from_secs(at_s),
        processes: sizes.iter().map(|(pid, n)| sample(*pid, *n)).collect(),
        ..Observation::default()
    }
}

fn kept(viewing: &Viewing) -> Vec<u32> {
    let mut pids: Vec<u32> = viewing.samples.keys().map(|p| p.pid).collect();
    pids.sort_unstable();
    pids
}

#[test]
fn samples_stay_bounded_the_oldest_go_then_the_largest() {
    let mut viewing = Viewing::holding(100);
    viewing.keep(sampled(1, &[(1, 40), (2, 30)]));
    viewing.keep(sampled(2, &[(3, 40)]));
    assert_eq!(kept(&viewing), [2, 3]);
    viewing.keep(sampled(3, &[(2, 101)]));
    assert!(
        kept(&viewing).is_empty(),
        "what can't be kept takes no room"
    );
    viewing.keep(sampled(4, &[(4, 80), (5, 30)]));
    assert_eq!(kept(&viewing), [5]);
    viewing.retain_processes(|_| false);
    assert!(kept(&viewing).is_empty());
}

#[test]
fn what_was_empty_counts_until_it_is_split_by_whomever() {
    let mut viewing = Viewing::holding(2);
    let process = |pid| ProcessId {
        pid,
        start_ticks: 1,
    };
    let region = |index: u64| RegionAddr::containing(index << 21);
    viewing.keep(sampled(1, &[(1, 1)]));
    viewing.note_promoted(process(1), region(0), 12);
    assert_eq!(viewing.empty_bytes(process(1)), 12 * BASE_PAGE_BYTES);
    assert!(viewing.samples[&process(1)].is_huge(&viewing.samples[&process(1)].sample.regions[0]));
    // Searched since: as many are empty now.
    viewing.note_empty(process(1), region(0), 5);
    assert_eq!(viewing.empty_bytes(process(1)), 5 * BASE_PAGE_BYTES);
    viewing.note_split(process(1), region(0));
    assert_eq!(viewing.empty_bytes(process(1)), 0);
    // What the kernel has split by itself shows in the next sample.
    viewing.note_promoted(process(1), region(0), 12);
    viewing.keep(sampled(2, &[(1, 1)]));
    assert_eq!(viewing.empty_bytes(process(1)), 0);
    // It stays bounded.
    for index in 0..5 {
        viewing.note_empty(process(2), region(index), 1);
    }
    assert_eq!(viewing.empty_bytes(process(2)), 2 * BASE_PAGE_BYTES);
    viewing.retain_processes(|_| false);
    viewing.note_empty(process(3), region(0), 1);
    assert_eq!(viewing.empty_bytes(process(3)), BASE_PAGE_BYTES);
}

#[test]
fn what_is_gained_is_reckoned_up_every_few_seconds_and_anew_for_a_new_sample() {
    let mut viewing = Viewing::default();
    let process = ProcessId {
        pid: 1,
        start_ticks: 1,
    };
    let gain = |viewing: &Viewing, at_s, reckoned| {
        let kept = viewing.samples.get(&process)?;
        kept.gain_percent(Duration::from_secs(at_s), || Some(reckoned))
    };
    viewing.keep(sampled(1, &[(1, 4)]));
    assert_eq!(gain(&viewing, 1, 10.0), Some(10.0));
    assert_eq!(gain(&viewing, 10, 20.0), Some(10.0));
    assert_eq!(gain(&viewing, 11, 30.0), Some(30.0));
    viewing.keep(sampled(12, &[(1, 4)]));
    assert_eq!(gain(&viewing, 12, 40.0), Some(40.0));
}
