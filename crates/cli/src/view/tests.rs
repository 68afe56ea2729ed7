use super::*;
use crate::session_summary::budget_wait_notes;
use hawkeye_manager::{Event, Manager, Settings};
use hawkeye_policy::{CpuBudget, FileRegion, HUGE_PAGE_BYTES, Watermarks};
use hawkeye_test_support::builders::{
    GIB, MIB, ScriptedMachine, base_page_part, bloated_part, frequent_sampling_settings,
    manager_of, program_in_group, program_of_parts, run_manager_until, seconds,
    settings_with_max_promotions, settings_with_promotion_rate,
};

fn status(manager: &Manager<ScriptedMachine>) -> ManagerStatus {
    ManagerView::default().manager_status(manager)
}

fn process(manager: &mut Manager<ScriptedMachine>, pid: u32) -> ProcessExplanation {
    match ManagerView::default().explain_process_or_region(manager, pid, None) {
        Explanation::Process(why) => *why,
        other => panic!("about a process, not {other:?}"),
    }
}

fn region_at_index(
    manager: &mut Manager<ScriptedMachine>,
    pid: u32,
    address: u64,
) -> RegionExplanation {
    match ManagerView::default().explain_process_or_region(manager, pid, Some(address)) {
        Explanation::Region(why) => *why,
        other => panic!("about a region, not {other:?}"),
    }
}

fn start(index: u32) -> u64 {
    hawkeye_test_support::builders::region_at_index(index).start()
}

#[test]
fn a_status_adds_up() {
    let mut machine = ScriptedMachine::new(4 * GIB);
    let large = machine.add_program(program_of_parts(&[base_page_part(0, 40, 1.0)]));
    let small = machine.add_program(program_of_parts(&[base_page_part(0, 10, 0.0)]));
    let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling_settings());
    let before = status(&manager);
    assert_eq!((before.managed, before.memory), (0, None));
    run_manager_until(&mut manager, seconds(20.0));
    let status = status(&manager);
    assert_eq!(status.policy, "hawkeye-g");
    assert!(!status.paused && status.held.is_none());
    let pids: Vec<u32> = status.processes.iter().map(|p| p.pid).collect();
    assert_eq!(pids, [large.pid, small.pid], "the largest first");
    assert_eq!(status.processes[0].promoted, status.totals.promoted);
    assert_eq!(status.processes[0].huge_bytes, 80 * MIB);
    assert!(status.processes[0].last_reason.is_some());
    assert_eq!(status.processes[1].promoted, 0);
    let memory = status.memory.unwrap_or_default();
    let in_use = (memory.used_bytes, memory.total_bytes);
    assert_eq!(in_use, (100 * MIB, 4 * GIB));
    assert!(status.manager_cpu_percent > 0.0);
}

#[test]
fn the_fullest_cgroups_come_first_and_equal_ones_by_name() {
    let mut machine = ScriptedMachine::new(64 * GIB);
    let limits = [("/a", 8 * GIB), ("/b", 400 * MIB), ("/c", 4 * GIB), ("/d", 400 * MIB)];
    machine.groups = limits.into();
    for (name, _) in limits {
        machine.add_program(program_in_group(name, &[base_page_part(0, 40, 0.0)]));
    }
    let mut manager = manager_of(machine, "none", frequent_sampling_settings());
    run_manager_until(&mut manager, seconds(2.0));
    let memory = status(&manager).memory.expect("memory was read");
    let names: Vec<&str> = memory.groups.iter().map(|group| &*group.name).collect();
    assert_eq!(names, ["/b", "/d", "/c", "/a"]);
}

#[test]
fn rates_decisions_and_columns_come_from_the_last_sample_and_the_journal() {
    let mut machine = ScriptedMachine::new(4 * GIB);
    let it = machine
        .add_program(program_of_parts(&[base_page_part(0, 40, 1.0), base_page_part(100, 10, 0.0)]));
    let mut manager = manager_of(machine, "hawkeye-g", settings_with_promotion_rate(2.0));
    let early = address_strip_of_process(&manager, it.pid, 80);
    assert_eq!(early, None, "no process has been looked for yet");
    run_manager_until(&mut manager, seconds(15.0));
    let status = status(&manager);
    let promoted = status.totals.promoted;
    assert!(promoted > 2 && promoted < 40, "{promoted}");
    assert!(status.pace.promoted_per_s > 0.0 && status.pace.promoted_per_s <= 2.5);
    assert_eq!(status.processes[0].pace, status.pace);
    let latest = status.latest.last().map(|decision| decision.text.as_str());
    assert!(latest.is_some_and(|text| text.starts_with("promoted in")));
    assert!(status.latest.len() <= ManagerStatus::MOST_DECISIONS);

    let fine = address_strip_of_process(&manager, it.pid, 80).unwrap_or_default();
    assert_eq!(fine.columns.len(), 50, "one region a column");
    let sum = |part: fn(&AddressStripColumn) -> u64| fine.columns.iter().map(part).sum::<u64>();
    assert_eq!(sum(|c| c.huge), promoted, "those since the sample included");
    assert_eq!(sum(|c| c.candidates), 40 - promoted);
    assert!(fine.columns[40].after_gap && !fine.columns[39].after_gap);
    let coarse = address_strip_of_process(&manager, it.pid, 7).unwrap_or_default();
    assert_eq!(coarse.columns.len(), 7);
}

#[test]
fn the_state_of_a_region_follows_from_its_sample_and_history() {
    let mut machine = ScriptedMachine::new(4 * GIB);
    let it = machine
        .add_program(program_of_parts(&[base_page_part(0, 4, 1.0), base_page_part(8, 4, 0.0)]));
    let mut manager = manager_of(machine, "hawkeye-g", settings_with_max_promotions(2));
    run_manager_until(&mut manager, seconds(2.0));
    let young = process(&mut manager, it.pid);
    assert_eq!(young.sample, None);
    assert!(young.kept_by.iter().any(|why| why.contains("not been sampled")));

    run_manager_until(&mut manager, seconds(20.0));
    let why = process(&mut manager, it.pid);
    let sample = why.sample.expect("it was sampled");
    assert_eq!((sample.regions, sample.huge), (8, 2));
    assert_eq!((sample.candidates, sample.not_accessed), (2, 4));
    let spent = "the limit of 2 promotions in all is reached; promotion does not continue";
    assert!(why.kept_by.iter().any(|why| why == spent), "{:?}", why.kept_by);
    assert_eq!(status(&manager).budget_waits[0].to_string(), spent);
    let notes = budget_wait_notes(&manager);
    assert!(notes.iter().any(|note| note.contains("2 promotions in all")), "{notes:?}");
    assert_eq!(why.latest.len(), 2, "samples are not among the latest actions");

    let huge = region_at_index(&mut manager, it.pid, start(0) + 12_345);
    assert_eq!((huge.start, huge.state), (start(0), RegionPromotionState::Huge));
    assert_eq!(huge.latest.len(), 1);
    let waiting = region_at_index(&mut manager, it.pid, start(3));
    assert_eq!(waiting.state, RegionPromotionState::Candidate);
    assert!(waiting.waiting.is_some_and(|why| why.contains("bucket")));
    let idle = region_at_index(&mut manager, it.pid, start(9));
    assert_eq!((idle.state, idle.waiting), (RegionPromotionState::NotAccessed, None));
    let nothing = region_at_index(&mut manager, it.pid, 0);
    let not_sampled = (RegionPromotionState::NotSampled, None);
    assert_eq!((nothing.state, nothing.sample), not_sampled);
    let stranger =
        ManagerView::default().explain_process_or_region(&mut manager, it.pid + 77, None);
    assert!(matches!(stranger, Explanation::NotManaged { .. }));
}

#[test]
fn recovery_and_the_reason_for_held_promotion_are_shown() {
    let mut machine = ScriptedMachine::new(100 * MIB);
    let it = machine
        .add_program(program_of_parts(&[bloated_part(0, 20, 1.0), base_page_part(30, 2, 1.0)]));
    let mut settings = frequent_sampling_settings();
    settings.watermarks = Watermarks::new(30.0, 11.0).expect("the watermarks are in order");
    let mut manager = manager_of(machine, "none", settings);
    run_manager_until(&mut manager, seconds(0.005));
    let held = status(&manager).held.unwrap_or_default();
    assert!(held.contains("recovery goes on until"), "{held}");
    run_manager_until(&mut manager, seconds(20.0));
    let status = status(&manager);
    assert!(status.totals.split > 0);
    let (process_s, totals) = (&status.processes[0], &status.totals);
    assert_eq!(process_s.split, totals.split);
    assert_eq!(process_s.recovered_bytes, totals.recovered_bytes);
    let why = process(&mut manager, it.pid);
    let mut latest = why.latest.iter();
    assert!(latest.all(|entry| entry.text.starts_with("split")));
    let split = why.latest.last().and_then(|entry| entry.region);
    let split = region_at_index(&mut manager, it.pid, split.unwrap_or_default());
    assert_eq!(split.latest.len(), 1);
}

#[test]
fn watermarks_that_a_reload_has_changed_are_shown() {
    let mut machine = ScriptedMachine::new(4 * GIB);
    machine.add_program(program_of_parts(&[base_page_part(0, 10, 0.0)]));
    let mut manager = manager_of(machine, "none", frequent_sampling_settings());
    run_manager_until(&mut manager, seconds(2.0));
    let marks = Watermarks::new(60.0, 50.0).expect("the watermarks are in order");
    manager.set_watermarks(marks.into());
    let memory = status(&manager).memory.unwrap_or_default();
    assert_eq!((memory.high_percent, memory.low_percent), (60.0, 50.0));
}

/// Promotions stop at two thirds of the budget; the last third is kept for recovery.
#[test]
fn a_cpu_budget_that_holds_promotions_back_is_named_with_its_end() {
    let mut machine = ScriptedMachine::new(8 * GIB);
    let it = machine.add_program(program_of_parts(&[base_page_part(0, 2000, 1.0)]));
    let settings = Settings {
        cpu: CpuBudget::new(1.0).expect("the percentage is in its range"),
        ..frequent_sampling_settings()
    };
    let mut manager = manager_of(machine, "hawkeye-g", settings);
    run_manager_until(&mut manager, seconds(55.0));
    let why = process(&mut manager, it.pid);
    let used = status(&manager).manager_cpu_percent;
    assert!((0.6..1.0).contains(&used), "{used}");
    let [reason] = &why.kept_by[..] else {
        panic!("one reason, not {:?}", why.kept_by);
    };
    assert!(reason.contains("two thirds of 1 % of one core"), "{reason}");
    assert!(reason.contains("promotion continues in "), "{reason}");
    let status = status(&manager);
    assert_eq!(status.promotion_pace_text(), "waits for a budget");
    let wait = &status.budget_waits[0];
    let left_s = wait.continues_in_s.expect("it continues");
    assert!((1.0..60.0).contains(&left_s), "{wait:?}");
    assert_eq!(&wait.to_string(), reason);
    let notes = budget_wait_notes(&manager);
    let named = |note: &String| note.contains("two thirds of 1 %") && note.contains("continued in");
    assert!(notes.iter().any(named), "{notes:?}");
}

#[test]
fn while_paused_processes_are_observed_and_not_changed() {
    let mut machine = ScriptedMachine::new(4 * GIB);
    let it = machine.add_program(program_of_parts(&[base_page_part(0, 400, 1.0)]));
    let mut manager = manager_of(machine, "hawkeye-g", settings_with_promotion_rate(10.0));
    run_manager_until(&mut manager, seconds(8.0));
    assert!(manager.pause() && !manager.pause());
    let before = status(&manager);
    assert!(before.paused && before.totals.promoted > 0);
    run_manager_until(&mut manager, seconds(60.0));
    let after = status(&manager);
    assert_eq!(after.totals, before.totals);
    assert!(after.uptime_s >= 60.0 && after.managed == 1, "processes are still observed");
    let why = process(&mut manager, it.pid);
    assert!(why.kept_by.iter().any(|why| why.contains("paused")));

    assert!(manager.resume() && !manager.resume());
    run_manager_until(&mut manager, seconds(70.0));
    assert!(status(&manager).totals.promoted > before.totals.promoted);
    let events = manager.journal().entries().map(|entry| &entry.event);
    let pauses = events.filter(|event| matches!(event, Event::Paused | Event::Resumed));
    assert!(pauses.eq([&Event::Paused, &Event::Resumed]));
}

#[test]
fn a_window_that_is_open_at_the_pause_is_read_and_no_other_opens() {
    let mut machine = ScriptedMachine::new(4 * GIB);
    machine.add_program(program_of_parts(&[base_page_part(0, 4, 1.0)]));
    let settings = Settings { period: seconds(5.0), window: seconds(3.0), ..Settings::default() };
    let mut manager = manager_of(machine, "hawkeye-g", settings);
    run_manager_until(&mut manager, seconds(6.0));
    manager.pause();
    run_manager_until(&mut manager, seconds(60.0));
    assert_eq!(status(&manager).totals.samples, 1);
    assert_eq!(status(&manager).totals.promoted, 0);
}

#[test]
fn a_region_shared_with_other_processes_is_explained() {
    let mut machine = ScriptedMachine::new(16 * GIB);
    let it = machine.add_program(program_of_parts(&[base_page_part(0, 8, 1.0)]));
    let shared = (it, hawkeye_test_support::builders::region_at_index(3));
    machine.shared.insert(shared, (512, 300));
    let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling_settings());
    run_manager_until(&mut manager, seconds(8.0));
    let why = region_at_index(&mut manager, it.pid, start(3));
    let state = &why.state;
    assert!(
        matches!(state, RegionPromotionState::Shared { pages: 300, remaining_s } if *remaining_s <= 10.0),
        "{state:?}"
    );
    assert!(state.to_string().contains("share 300 of its base pages"));
    assert!(why.latest.iter().any(|it| it.text.contains("not promoted: other processes share")));
    assert_eq!(why.sample.map(|sample| sample.maybe_shared), Some(512));
    let process = process(&mut manager, it.pid);
    assert_eq!(process.sample.map(|sample| sample.shared), Some(1));
    assert_eq!(status(&manager).totals.shared, 1);
}

#[test]
fn shared_memory_is_counted_once_in_sums_and_explained_with_its_mappers() {
    let mut machine = ScriptedMachine::new(4 * GIB);
    let programs =
        [(); 3].map(|()| machine.add_program(program_of_parts(&[base_page_part(0, 20, 1.0)])));
    // Two of them map one file, at the same addresses.
    for index in 0..5 {
        for process in &programs[..2] {
            let region = hawkeye_test_support::builders::region_at_index(index);
            machine.files.insert((*process, region), FileRegion { inode: 7, device: 1, index });
        }
    }
    let mut manager = manager_of(machine, "hawkeye-g", settings_with_max_promotions(1));
    run_manager_until(&mut manager, seconds(20.0));
    let shown = status(&manager);
    let shared = shown.shared_memory;
    assert_eq!((shared.files, shared.processes), (1, 2));
    assert_eq!(shared.memory.resident_bytes, 5 * HUGE_PAGE_BYTES);
    let each = programs.map(|program| {
        let process = shown.processes.iter().find(|shown| shown.pid == program.pid);
        process.expect("it is managed").shared_bytes
    });
    assert_eq!(each, [5 * HUGE_PAGE_BYTES, 5 * HUGE_PAGE_BYTES, 0]);
    let latest = manager.journal().latest_footprint;
    assert_eq!(latest.rss_bytes, (3 * 20 - 5) * HUGE_PAGE_BYTES);
    let pid = programs[1].pid;
    let why = region_at_index(&mut manager, pid, start(3));
    let shared = why.shared_memory.expect("it is shared memory");
    assert_eq!((shared.file.index, shared.mapper_count), (3, 2));
    let mappers: Vec<u32> = shared.mappers.iter().map(|mapper| mapper.pid).collect();
    assert_eq!(mappers, [pid, programs[0].pid]);
    assert_eq!(region_at_index(&mut manager, pid, start(9)).shared_memory, None);
    let strip = address_strip_of_process(&manager, pid, 20).expect("it is managed");
    let columns = strip.columns.iter();
    assert_eq!(columns.map(|column| column.shared_memory).sum::<u64>(), 5);
}
