use super::*;
use hawkeye_policy::{CoverageSource, OutsideRegions, PageOrder};

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
                region: RegionAddr::containing(0),
                present: 1,
                accessed: 1,
                runs: 1,
                written: 0,
                zero_mapped: 0,
                swapped: 0,
                order: PageOrder::BASE,
                walks_per_s: 0,
            };
            regions
        ],
        first_touches: 0,
        overhead: None,
        cpu_cores: 1.0,
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
