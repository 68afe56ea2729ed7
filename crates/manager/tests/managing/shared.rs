//! Memory that other processes share.

use hawkeye_manager::{Event, Machine as _};
use hawkeye_policy::{
    BASE_PAGE_BYTES, FileRegion, MAX_SHARED_PAGES, ProcessId, RegionAddr, Watermarks, policies,
};
use hawkeye_test_support::builders::*;
use std::collections::{HashMap, HashSet};

fn passed_over(manager: &ScriptedManager) -> HashMap<RegionAddr, usize> {
    let mut times = HashMap::new();
    for entry in manager.journal().entries() {
        if let Event::Shared { region, .. } = entry.event {
            *times.entry(region).or_default() += 1;
        }
    }
    times
}

#[test]
fn no_policy_promotes_what_others_share_and_each_promotes_it_when_they_end() {
    for policy in policies::policy_names().filter(|policy| !["guard", "none"].contains(policy)) {
        let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 100, 1.0)]);
        // One page too many; the most allowed; all write-protected, but none shared.
        let others = [(20, MAX_SHARED_PAGES + 1), (21, MAX_SHARED_PAGES), (22, 0)];
        for (index, shared) in (10..20).map(|index| (index, 512)).chain(others) {
            machine.shared.insert((FIRST_PROCESS, region_at_index(index)), (512, shared));
        }
        let mut manager = manager_of(machine, policy, frequent_sampling_settings());
        run_manager_until(&mut manager, seconds(150.0));
        let private: HashSet<RegionAddr> = regions_at((0..10).chain(21..100)).into_iter().collect();
        let promoted: HashSet<RegionAddr> = promoted_regions(&manager).into_iter().collect();
        assert_eq!(promoted, private, "{policy}");
        let times = passed_over(&manager);
        assert_eq!(times.len(), 11, "{policy}: {times:?}");
        // After 10, 20, 40 and 80 s.
        let few = times.values().all(|times| (2..=5).contains(times));
        assert!(few, "{policy}: {times:?}");
        let total: usize = times.values().sum();
        assert_eq!(manager.journal().totals().shared, total as u64);
        for region in regions_at(10..20) {
            manager.machine_mut().shared.insert((FIRST_PROCESS, region), (512, 0));
        }
        run_manager_until(&mut manager, seconds(400.0));
        let promoted = promoted_regions(&manager);
        assert!(!promoted.contains(&region_at_index(20)), "{policy}");
        // By its saving, the last region may not be worth a promotion.
        let least = if ["emd", "hawkeye"].contains(&policy) { 98 } else { 99 };
        assert!(promoted.len() >= least, "{policy}: {}", promoted.len());
    }
}

#[test]
fn copies_of_shared_pages_are_memory() {
    // Two full regions, one with a few shared pages: only that one takes memory.
    let few = (MAX_SHARED_PAGES, MAX_SHARED_PAGES);
    let mut settings = frequent_sampling_settings();
    settings.hold_full = false;
    let setup = |total: u64| {
        let mut machine = machine_running_parts(total, &[base_page_part(0, 2, 1.0)]);
        machine.shared.insert((FIRST_PROCESS, region_at_index(1)), few);
        machine
    };
    let mut above = settings;
    above.watermarks = Watermarks::new(30.0, 20.0).expect("the watermarks are in order");
    let mut manager = manager_of(setup(10 * MIB), "hawkeye-g", above);
    run_manager_until(&mut manager, seconds(30.0));
    assert_eq!(promoted_regions(&manager), [region_at_index(0)]);
    // Where there is room, the memory it takes counts until memory is read again.
    let mut manager = manager_of(setup(16 * GIB), "hawkeye-g", settings);
    let mut most = 0;
    run_manager_watching(&mut manager, seconds(30.0), |manager| {
        let memory = manager.memory().state.as_ref();
        let reckoned = memory.map_or(0, |memory| memory.machine.used_bytes);
        most = most.max(reckoned.saturating_sub(used_bytes(manager)));
    });
    assert_eq!(promoted_regions(&manager).len(), 2);
    assert_eq!(most, u64::from(MAX_SHARED_PAGES) * BASE_PAGE_BYTES);
}

/// Makes the 80 regions of a process parts of a file.
fn make_shared(machine: &mut ScriptedMachine, process: ProcessId) {
    for index in 0..80 {
        let file = FileRegion { device: 1, inode: 7, index };
        machine.files.insert((process, region_at_index(index)), file);
    }
}

/// Rule 3. A huge page of shared memory is charged to the cgroup through which it is promoted, also
/// where its base pages were all present.
#[test]
fn full_regions_of_shared_memory_take_memory_from_the_cgroup_that_promotes_them() {
    for policy in ["hawkeye", "hawkeye-g"] {
        let mut machine = ScriptedMachine::new(16 * GIB);
        // 160 MiB are in use, and the high watermark is at 187.
        machine.groups.insert("/near", 220 * MIB);
        let process = machine.add_program(program_in_group("/near", &[base_page_part(0, 80, 1.0)]));
        make_shared(&mut machine, process);
        let mut manager = manager_of(machine, policy, frequent_sampling_settings());
        let mut most = 0;
        run_manager_watching(&mut manager, seconds(60.0), |manager| {
            most = most.max(manager.machine().memory_use(Some("/near")).used_bytes);
        });
        assert!((8..=14).contains(&promotions(&manager).len()), "{policy}");
        assert!(most <= 187 * MIB, "{policy}: {most} bytes in use");
    }
}

/// Regions of 586 GiB, so that the sample is not kept.
#[test]
fn shared_memory_is_promoted_in_a_process_whose_sample_is_too_large_to_keep() {
    let mut machine = machine_running_parts(2048 * GIB, &[base_page_part(0, 300_000, 1.0)]);
    make_shared(&mut machine, FIRST_PROCESS);
    let manager = run_manager_of(machine, "linux", frequent_sampling_settings(), seconds(3.0));
    assert!(manager.last_samples().sample(FIRST_PROCESS).is_none());
    assert!(manager.last_samples().figures(FIRST_PROCESS).is_some());
    let promoted = promoted_regions(&manager);
    assert!(promoted.starts_with(&regions_at(0..8)), "{promoted:?}");
}

/// Full regions of private memory take no memory, so they are promoted over the watermark. The same
/// addresses may be shared memory a moment later.
#[test]
fn memory_that_is_shared_since_its_sample_takes_none_over_the_watermark() {
    let mut settings = frequent_sampling_settings();
    settings.hold_full = false;
    for becomes_shared in [false, true] {
        let mut machine = ScriptedMachine::new(16 * GIB);
        machine.groups.insert("/full", 170 * MIB);
        // A batch ends with a slow promotion.
        machine.promotion_answers.push_back((seconds(0.05), None));
        let process = machine.add_program(program_in_group("/full", &[base_page_part(0, 80, 1.0)]));
        let mut manager = manager_of(machine, "hawkeye-g", settings);
        let before = manager.machine().memory_use(Some("/full")).used_bytes;
        while manager.machine().now() < seconds(60.0) {
            manager.run_due_work_and_wait();
            if becomes_shared && !promotions(&manager).is_empty() {
                make_shared(manager.machine_mut(), process);
            }
        }
        let promoted = promotions(&manager).len();
        assert_eq!(promoted == 80, !becomes_shared, "{promoted}");
        assert_eq!(manager.machine().memory_use(Some("/full")).used_bytes, before);
    }
}
