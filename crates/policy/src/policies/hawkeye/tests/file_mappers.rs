//! Shared memory that several processes map.

use super::*;
use crate::file_region::FileRegion;

/// A region of shared memory: the `part`th of one file.
fn of_file(index: u64, part: u64, walks_per_s: u32) -> RegionSample {
    RegionSample { file: FileRegion::at_offset(1, 7, part << 21), ..walking(index, walks_per_s) }
}

/// All proposals, each promoted unless it is for a process in `refused`.
fn propose_all(policy: &mut Hawkeye, refused: &[u32]) -> Vec<(u32, RegionAddr)> {
    let mut proposed = Vec::new();
    while let Some(next) = next_proposal(policy) {
        let (process, region) = (next.process, next.region);
        let done = cost_with_ready_page(Duration::from_millis(1));
        let result = done.filter(|_| !refused.contains(&process.pid));
        policy.on_promotion_result(process, region, result);
        proposed.push((process.pid, region));
    }
    proposed
}

/// Two processes that map two parts of a file, at addresses of their own, and have private memory.
fn two_mappers() -> Hawkeye {
    let first = vec![of_file(1, 0, 1000), of_file(2, 1, 500), walking(9, 800)];
    let second = vec![of_file(5, 0, 700), of_file(6, 1, 900), walking(9, 800)];
    let mut policy = policy();
    policy.observe(&round(&[(Some(30.0), first), (Some(30.0), second)]));
    policy
}

#[test]
fn shared_memory_is_promoted_once_and_first_where_all_mappers_gain() {
    let proposed = propose_all(&mut two_mappers(), &[]);
    let regions: Vec<RegionAddr> = proposed.iter().map(|(_, region)| *region).collect();
    // The two parts of the file, and the private memory of both.
    assert!([1, 5].map(region).contains(&regions[0]), "{proposed:?}");
    assert!([2, 6].map(region).contains(&regions[1]), "{proposed:?}");
    assert_eq!(regions[2..], [region(9), region(9)], "{proposed:?}");
}

#[test]
fn shared_memory_refused_in_one_process_is_promoted_in_another() {
    for refused in [1, 2] {
        let proposed = propose_all(&mut two_mappers(), &[refused]);
        let other: Vec<_> = proposed.iter().filter(|(pid, _)| *pid != refused).collect();
        assert_eq!(other.len(), 3, "{proposed:?}");
    }
}

/// What a promotion saves in all processes counts as much as the one that it is made in uses.
#[test]
fn shared_memory_is_promoted_in_the_process_that_gains_most() {
    let parts = || (1..=8).map(|part| of_file(part, part, 100)).collect::<Vec<_>>();
    let mut observed =
        round(&[(Some(30.0), parts()), (Some(30.0), parts()), (Some(30.0), parts())]);
    for (sample, cores) in observed.processes.iter_mut().zip([0.01, 0.9, 0.01]) {
        sample.cpu_cores = cores;
    }
    let mut policy = policy();
    policy.observe(&observed);
    let proposed = propose_all(&mut policy, &[]);
    assert!(proposed.len() > 5 && proposed.iter().all(|(pid, _)| *pid == 2), "{proposed:?}");
}

#[test]
fn the_savings_of_all_mappers_pay_for_one_promotion() {
    // Each of 100 regions saves 0.003 cores, so 0.9 s in five minutes, and costs 2 s.
    let regions = |part: u64| {
        let private = (2..=100).map(|index| walking(index, 10));
        std::iter::once(of_file(1, part, 10)).chain(private).collect::<Vec<_>>()
    };
    let proposed = |parts: &[u64]| {
        let mut policy = policy();
        cost(&mut policy, Duration::from_secs(2));
        let processes: Vec<_> = parts.iter().map(|part| (Some(30.0), regions(*part))).collect();
        policy.observe(&round(&processes));
        let next = next_proposal(&mut policy);
        let why = policy.why_process_not_promoted(process(1));
        assert!(next.is_some() || why.is_none(), "{why:?}");
        let saved = next.as_ref().and_then(|next| next.saved_us_per_s);
        (next.map(|next| (next.process.pid, next.region)), saved.map(f64::round))
    };
    assert_eq!(proposed(&[0]), (None, None));
    assert_eq!(proposed(&[0, 1, 2]), (None, None), "three parts of the file");
    assert_eq!(proposed(&[0, 0, 0]), (Some((1, region(1))), Some(9000.0)));
}
