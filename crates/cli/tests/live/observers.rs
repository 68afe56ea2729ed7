//! What other tools observe in a process stays intact: userfaultfd, real-time threads.
//!
//! The managed process is the test itself.

use crate::common::{DEADLINE, machine, or_skip, until, userfaultfd};
use crate::daemon::{CONFIG, RunningDaemon};
use hawkeye_linux::probe::userfaultfd_handle::WatchMode;
use hawkeye_live_test_support::mapped_regions::{
    MappedRegions, assert_all_reported, pages, register, written_under_protection,
};
use hawkeye_live_test_support::settings;
use hawkeye_policy::HUGE_PAGE_BYTES;
use hawkeye_test_support::this_test;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn every_write_to_a_protected_page_is_reported_under_the_manager() {
    let test = this_test!();
    let machine = or_skip!(machine(test));
    let watcher = or_skip!(userfaultfd(test, false));
    let memory = MappedRegions::new(32);
    let (free, watched) = (memory.range(0..16), memory.range(16..32));
    memory.touch_as_base_pages(free.clone());
    let options = "--policy linux --rate 100000 --period 0.2 --window 0.05 --cpu 100";
    let attached = machine.attach(options, std::process::id());
    // That forked this process, and before Linux 6.18 no region without a writable page collapses.
    pages(free.clone()).for_each(|page| memory.write(page, 1));
    let all_huge = || memory.huge_regions(free.clone()) == 16;
    let promotes = until(DEADLINE, all_huge);
    for value in 2..12 {
        // The manager acts both while the range is registered and while it is not.
        memory.advise(watched.clone(), libc::MADV_DONTNEED);
        memory.touch_as_base_pages(watched.clone());
        std::thread::sleep(Duration::from_millis(20 * value));
        register(&watcher, watched.clone(), WatchMode::WriteProtect);
        let heard = written_under_protection(&memory, &watcher, watched.clone(), value as u8);
        assert_all_reported(&heard, watched.clone());
        let right = pages(watched.clone()).all(|page| memory.read(page) == value as u8);
        assert!(right, "round {value}");
        watcher.unregister(watched.clone()).expect("the range can be unregistered");
    }
    // Registered for longer than a period: the range stays as it is.
    memory.advise(watched.clone(), libc::MADV_DONTNEED);
    register(&watcher, watched.clone(), WatchMode::WriteProtect);
    memory.touch_as_base_pages(watched.clone());
    std::thread::sleep(Duration::from_secs(2));
    let huge = memory.huge_regions(watched);
    let summary = attached.interrupt();
    assert!(promotes, "{summary}");
    assert_eq!(huge, 0, "{summary}");
}

#[test]
fn why_names_userfaultfd_and_real_time_threads() {
    let test = this_test!();
    let machine = or_skip!(machine(test));
    let memory = MappedRegions::new(32);
    memory.touch_as_base_pages(memory.range(0..32));
    let watcher = or_skip!(userfaultfd(test, false));
    let watched = memory.range(8..16);
    register(&watcher, watched.clone(), WatchMode::WriteProtect);
    let own = std::process::id();
    let comm = std::fs::read_to_string("/proc/self/comm").expect("the file can be read");
    let by_rule = CONFIG.replace("hawkeye-minded", comm.trim());
    // The policy `none` changes no process, although this configuration includes others.
    let all = CONFIG.replace("unmatched = \"exclude\"", "unmatched = \"include\"");
    let address = format!("{:#x}", watched.start);
    let said = |config: &str, words: &str, wanted: &str| {
        let daemon = RunningDaemon::start_by(&machine, &format!("policy = \"none\"\n{config}"));
        let mut last = String::new();
        let found = until(DEADLINE, || {
            let why = machine.output(&format!("why {own} {words}"));
            last = why.out + &why.err;
            last.contains(wanted)
        });
        assert!(found, "{wanted:?} is not in {last}");
        daemon.end();
    };
    said(&by_rule, &address, "userfaultfd watches it");

    let lowest = libc::sched_param { sched_priority: 1 };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let real_time = scope.spawn(|| {
            // SAFETY: a plain system call on this thread, which only reads `lowest`.
            let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const lowest) };
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
            }
            set
        });
        said(&all, "", "has real-time threads");
        said(&by_rule, &address, "userfaultfd watches it");
        over.store(true, Ordering::Relaxed);
        assert_eq!(real_time.join().expect("the thread ends"), 0, "it was real-time");
    });
}

#[test]
fn a_prefault_blocked_by_userfaultfd_does_not_block_others() {
    let test = this_test!();
    let machine = or_skip!(machine(test));
    let watcher = or_skip!(userfaultfd(test, false));
    if settings::read("enabled") == "always" {
        return test.skip("faults bring huge pages here, filled or not");
    }
    let first = MappedRegions::new(512);
    let options = "--fault-ahead on --policy none --cpu 50";
    let attached = machine.attach(options, std::process::id());
    std::thread::sleep(Duration::from_secs(2));
    let stream = |memory: &MappedRegions, regions: Range<u64>| {
        for index in regions {
            let start = memory.region(index).start();
            pages(start..start + HUGE_PAGE_BYTES).for_each(|page| memory.write(page, 3));
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    stream(&first, 0..4);
    register(&watcher, first.range(21..512), WatchMode::Missing);
    // The monitor never answers for the next region.
    stream(&first, 4..21);
    // The filler leaves a core that other programs need, so a region may be filled only after some
    // streams.
    let filled = until(DEADLINE, || {
        let second = MappedRegions::new(256);
        // Without the filler these touches bring no huge page.
        stream(&second, 0..256);
        second.huge_regions(second.range(0..256)) > 0
    });
    let summary = attached.interrupt();
    assert!(filled, "{summary}");
    let asked = watcher.next_fault_address().expect("the monitor can be read");
    assert_eq!(asked, None, "no fill waits for the monitor");
}
