//! What the sampler sees, against what the program did.

use crate::common::{HAWKEYE, machine, workload};
use hawkeye_bench::workload::Request;
use hawkeye_linux::mappings;
use hawkeye_linux::page_tables::{Detail, PageTables};
use hawkeye_linux::process::ProcessHandle;
use hawkeye_linux::{access_bits, pagemap, remote_advice};
use hawkeye_policy::RegionSample;
use std::time::{Duration, Instant};

fn read(tables: &mut PageTables, pid: u32) -> Vec<RegionSample> {
    let target = tables.bind(pid).expect("binds");
    let ranges = mappings::eligible(&tables.mappings(&target).expect("lists")).ranges;
    let mut found = Vec::new();
    tables
        .walk(&target, &ranges, Detail::Regions, &mut found, |_| {})
        .expect("walks");
    found
}

/// Regions of the workload's memory, without those of its heap.
fn of_memory(found: &[RegionSample], start: u64, bytes: u64) -> Vec<RegionSample> {
    let inside = |r: &&RegionSample| (start..start + bytes).contains(&r.region.start());
    found.iter().filter(inside).copied().collect()
}

fn started(
    words: &str,
) -> (
    hawkeye_bench::workload::Workload,
    hawkeye_bench::workload::Ready,
) {
    let words = std::iter::once("workload").chain(words.split_whitespace());
    let mut program = hawkeye_bench::workload::Workload::spawn(HAWKEYE, words).expect("starts");
    let ready = program.wait_ready().expect("gets ready");
    (program, ready)
}

#[test]
fn population_is_counted_exactly() {
    let Some(_machine) = machine("population_is_counted_exactly") else {
        return;
    };
    let mut tables = PageTables::load().expect("loads");
    let (_program, ready) = started("bloat --mib 64 --used 100 --pages base");
    let found = of_memory(&read(&mut tables, ready.pid), ready.start, ready.bytes);
    assert_eq!(found.len(), 32);
    for r in &found {
        assert_eq!(
            (r.present, r.written, r.is_huge(), r.swapped),
            (100, 100, false, 0),
            "{r:?}"
        );
    }
    let eligible = ready.start..ready.start + ready.bytes;
    let by_pagemap = pagemap::population(ready.pid, &[eligible]).expect("reads");
    assert_eq!(
        by_pagemap.iter().map(|r| r.present).collect::<Vec<_>>(),
        vec![100; 32]
    );
}

#[test]
fn cleared_bits_stay_clear_until_memory_is_used() {
    let Some(_machine) = machine("cleared_bits_stay_clear_until_used") else {
        return;
    };
    let mut tables = PageTables::load().expect("loads");
    let (mut program, ready) = started("sequential --mib 64 --quiet --wait");
    access_bits::clear(ready.pid).expect("clears");
    let idle = of_memory(&read(&mut tables, ready.pid), ready.start, ready.bytes);
    assert_eq!(idle.iter().map(|r| u64::from(r.accessed)).sum::<u64>(), 0);
    program.command(Request::Go).expect("goes");
    std::thread::sleep(Duration::from_millis(700));
    let busy = of_memory(&read(&mut tables, ready.pid), ready.start, ready.bytes);
    // In order, so in long runs; a few translations may have stayed in the TLB.
    assert!(
        busy.iter().all(|r| r.accessed > 400 && r.runs < 60),
        "{busy:?}"
    );
}

#[test]
fn hot_regions_stand_out() {
    let Some(_machine) = machine("hot_regions_stand_out") else {
        return;
    };
    let mut tables = PageTables::load().expect("loads");
    let (_program, ready) = started("hot-spot --mib 512 --hot-mib 64 --quiet --seconds 30");
    access_bits::clear(ready.pid).expect("clears");
    std::thread::sleep(Duration::from_millis(30));
    let found = of_memory(&read(&mut tables, ready.pid), ready.start, ready.bytes);
    let mean = |hot: bool| {
        let side: Vec<u64> = found
            .iter()
            .filter(|r| (r.region.start() >= ready.hot_start) == hot)
            .map(|r| u64::from(r.accessed))
            .collect();
        side.iter().sum::<u64>() / side.len() as u64
    };
    assert!(
        mean(true) > 2 * mean(false),
        "{} and {}",
        mean(true),
        mean(false)
    );
}

#[test]
fn huge_split_and_vanished_regions_are_seen_as_they_are() {
    let Some(_machine) = machine("huge_split_and_vanished_regions") else {
        return;
    };
    let mut tables = PageTables::load().expect("loads");
    let (mut program, ready) = started("burner --mib 64 --pages base");
    let process = ProcessHandle::open(ready.pid).expect("opens");
    let regions = of_memory(&read(&mut tables, ready.pid), ready.start, ready.bytes);
    assert!(
        regions.iter().all(|r| !r.is_huge() && r.present == 512),
        "{regions:?}"
    );
    for r in &regions {
        while remote_advice::collapse(&process, r.region).is_err() {}
    }
    let huge = of_memory(&read(&mut tables, ready.pid), ready.start, ready.bytes);
    assert!(
        huge.iter().all(|r| r.is_huge() && r.present == 512),
        "{huge:?}"
    );
    remote_advice::split(&process, regions[3].region).expect("splits");
    program
        .request(Request::Unmap(4), Duration::from_secs(10))
        .expect("unmaps");
    let found = of_memory(&read(&mut tables, ready.pid), ready.start, ready.bytes);
    assert_eq!(found.len(), 28);
    assert_eq!(found.iter().filter(|r| !r.is_huge()).count(), 1);
    assert!(
        !found[3].is_huge() && found[3].present == 512,
        "split, nothing lost: {:?}",
        found[3]
    );
}

#[test]
fn sampling_stays_right_while_regions_change_under_it() {
    let Some(_machine) = machine("sampling_stays_right_under_change") else {
        return;
    };
    let mut tables = PageTables::load().expect("loads");
    let (_program, pid) = workload("torture --mib 256 --threads 2 --seconds 4");
    let begun = Instant::now();
    let mut walks = 0;
    while begun.elapsed() < Duration::from_secs(3) {
        let _ = access_bits::clear(pid);
        for r in read(&mut tables, pid) {
            assert!(
                r.present <= 512 && r.accessed <= 512 && r.runs <= 256,
                "{r:?}"
            );
            assert!(r.present + r.zero_mapped + r.swapped <= 512, "{r:?}");
        }
        walks += 1;
    }
    assert!(walks > 10);
}

#[test]
fn a_process_that_is_gone_is_an_error_and_not_a_guess() {
    let Some(_machine) = machine("a_process_that_is_gone_is_an_error") else {
        return;
    };
    let mut tables = PageTables::load().expect("loads");
    let (program, pid) = workload("burner --mib 4");
    let target = tables.bind(pid).expect("binds");
    let ranges = mappings::eligible(&tables.mappings(&target).expect("lists")).ranges;
    drop(program);
    let mut found = Vec::new();
    let gone = tables.walk(&target, &ranges, Detail::Regions, &mut found, |_| {});
    assert!(gone.is_err() && found.is_empty(), "{gone:?} {found:?}");
}
