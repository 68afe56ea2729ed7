//! Workloads as processes of their own, driven over the line protocol.

mod client;

use hawkeye_workload::{
    PageFaultTimes, WorkloadEvent, WorkloadProcess, WorkloadProcessError, WorkloadRequest,
    create_memory_file, page_of_shared_file, path_for_other_processes,
};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);

#[ctor::ctor]
fn run_workload_if_asked() {
    hawkeye_workload::test_program::run_workload_if_asked();
}

fn start(line: &str) -> WorkloadProcess {
    let words = std::iter::once("workload").chain(line.split_whitespace());
    WorkloadProcess::spawn(std::env::current_exe().unwrap(), words).unwrap()
}

fn wait_for_event(
    workload: &mut WorkloadProcess,
    last: impl Fn(&WorkloadEvent) -> bool,
) -> WorkloadEvent {
    loop {
        let event = workload.next_event(SOON).unwrap();
        if last(&event) {
            return event;
        }
    }
}

fn refuses_to_time_faults_and_ends(mut workload: WorkloadProcess) {
    let refused = workload.request_and_wait(WorkloadRequest::Faults, SOON);
    assert!(matches!(refused, Err(WorkloadProcessError::Failed(_))), "{refused:?}");
    assert!(workload.close_input_and_wait().unwrap().success());
}

/// Times of at least this many accesses.
fn times_of_accesses(workload: &mut WorkloadProcess, at_least: u64) -> PageFaultTimes {
    let mut all = PageFaultTimes::default();
    while all.faults + all.present < at_least {
        match workload.request_and_wait(WorkloadRequest::Faults, SOON).unwrap() {
            WorkloadEvent::Faults(times) => all.merge(&times),
            other => panic!("{other:?}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    all
}

/// The final event of `torture` and storms; passes over events of progress.
fn final_event(workload: &mut WorkloadProcess) -> WorkloadEvent {
    wait_for_event(workload, |event| !matches!(event, WorkloadEvent::Progress { .. }))
}

#[test]
fn readers_report_a_rate_pause_and_end() {
    for name in [
        "hot-spot --hot-mib 4",
        "random",
        "zipf --theta 0.8",
        "sequential",
        "stride",
        "chase --hot-mib 8",
    ] {
        let mut workload = start(&format!("{name} --mib 16 --report-ms 20 --wait"));
        let ready = workload.wait_ready().unwrap();
        assert_eq!((ready.pid, ready.bytes), (workload.pid(), 16 << 20), "{name}");
        let silent = workload.next_event(Duration::from_millis(100));
        assert!(matches!(silent, Err(WorkloadProcessError::Timeout(_))), "{name}: {silent:?}");
        workload.send_request(WorkloadRequest::Go).unwrap();
        assert!(workload.measure_rate(Duration::from_millis(60)).unwrap() > 0.0, "{name}");
        workload.send_request(WorkloadRequest::Stop).unwrap();
        workload.send_request(WorkloadRequest::Quit).unwrap();
        wait_for_event(&mut workload, |event| {
            matches!(event, WorkloadEvent::Finished { accesses: 1.., .. })
        });
        assert!(workload.close_input_and_wait().unwrap().success(), "{name}");
    }
}

#[test]
fn a_reader_ends_after_its_reads_or_with_its_input() {
    let mut fixed = start("random --mib 4 --accesses 100001 --quiet");
    fixed.wait_ready().unwrap();
    let finished = fixed.next_event(SOON).unwrap();
    let WorkloadEvent::Finished { accesses, .. } = finished else { panic!("{finished:?}") };
    assert_eq!(accesses, 100_001);
    assert!(fixed.close_input_and_wait().unwrap().success());

    let mut endless = start("random --mib 4");
    endless.wait_ready().unwrap();
    assert!(endless.close_input_and_wait().unwrap().success());
}

#[test]
fn a_reader_maps_a_file_that_is_large_enough() {
    let file = create_memory_file(4 << 20).unwrap();
    let path = path_for_other_processes(&file);
    let mut reader = start(&format!("random --mib 4 --file {path}"));
    let ready = reader.wait_ready().unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", ready.pid)).unwrap();
    let mapping = format!("{:x}-{:x} rw-s", ready.start, ready.start + ready.bytes);
    assert!(
        maps.lines().any(|it| it.starts_with(&mapping) && it.contains("memfd:workload")),
        "{maps}"
    );
    let mut too_small = start(&format!("random --mib 5 --file {path}"));
    let error = too_small.wait_ready().unwrap_err().to_string();
    assert!(error.contains("--file is smaller than --mib"), "{error}");
}

#[test]
fn the_contents_of_a_shared_file_are_known() {
    let file = create_memory_file(4 << 20).unwrap();
    let path = path_for_other_processes(&file);
    let mut workload = start(&format!("shared-file --mib 4 --workers 1 --file {path}"));
    workload.wait_ready().unwrap();
    let mut page = [0; 4096];
    file.read_exact_at(&mut page, 700 * 4096).unwrap();
    assert_eq!(page[..], page_of_shared_file(700));
    file.write_all_at(&[!page[5]], 700 * 4096 + 5).unwrap();
    match workload.request_and_wait(WorkloadRequest::Verify, SOON).unwrap() {
        WorkloadEvent::Verified { checked_bytes, bad_bytes, first_bad } => {
            assert_eq!((checked_bytes, bad_bytes), (4 << 20, 8));
            assert!(first_bad.is_some());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn bloat_frees_refills_and_verifies() {
    for pages in ["base", "huge"] {
        let mut workload = start(&format!("bloat --mib 8 --used 100 --tail-byte --pages {pages}"));
        let ready = workload.wait_ready().unwrap();
        assert_eq!((ready.bytes, ready.start % (2 << 20)), (8 << 20, 0));
        let right =
            WorkloadEvent::Verified { checked_bytes: 8 << 20, bad_bytes: 0, first_bad: None };
        let mut asked = |request| workload.request_and_wait(request, SOON).unwrap();
        assert_eq!(asked(WorkloadRequest::Verify), right);
        let freed_bytes = 4 * 410 * 4096;
        assert_eq!(asked(WorkloadRequest::DontNeed(80)), WorkloadEvent::Freed { freed_bytes });
        assert_eq!(asked(WorkloadRequest::Verify), right);
        let pages_per_region = 300;
        let refilled = WorkloadEvent::Refilled { pages_per_region };
        assert_eq!(asked(WorkloadRequest::Refill(pages_per_region)), refilled);
        let rss = asked(WorkloadRequest::Rss);
        assert!(
            matches!(rss, WorkloadEvent::Rss { rss_bytes, .. } if rss_bytes >= 4 * 300 * 4096),
            "{rss:?}"
        );
        assert_eq!(asked(WorkloadRequest::Verify), right);
        refuses_to_time_faults_and_ends(workload);
    }
}

#[test]
fn a_burner_gives_whole_regions_back() {
    let mut workload = start("burner --mib 8");
    workload.wait_ready().unwrap();
    let two = WorkloadEvent::Freed { freed_bytes: 4 << 20 };
    let mut asked = |request| workload.request_and_wait(request, SOON).unwrap();
    assert_eq!(asked(WorkloadRequest::Free(2)), two);
    assert_eq!(asked(WorkloadRequest::Unmap(2)), two);
    let right = WorkloadEvent::Verified { checked_bytes: 4 << 20, bad_bytes: 0, first_bad: None };
    assert_eq!(asked(WorkloadRequest::Verify), right);
}

#[test]
fn a_huge_address_space_times_its_calls() {
    let mut workload = start("one-tib --mapped-gib 1024 --populated-gib 1 --mib 8");
    let ready = workload.wait_ready().unwrap();
    assert_eq!((ready.bytes, ready.pid), (8 << 20, workload.pid()));
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", ready.pid)).unwrap();
    let mapped_pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    assert!(mapped_pages >= (1 << 40) / 4096, "{statm}");
    let (mut calls_seen, mut longest_us) = (0, 0.0);
    while calls_seen < 100 || longest_us <= 0.0 {
        let longest = workload.request_and_wait(WorkloadRequest::Longest, SOON).unwrap();
        let WorkloadEvent::Longest { map_us, calls, .. } = longest else { panic!("{longest:?}") };
        longest_us = map_us.max(longest_us);
        calls_seen += calls;
        std::thread::sleep(Duration::from_millis(10));
    }
    refuses_to_time_faults_and_ends(workload);
}

#[test]
fn torture_finds_nothing_wrong_on_a_sound_machine() {
    let mut workload = start("torture --mib 64 --threads 2 --seconds 10 --seed 5");
    workload.wait_ready().unwrap();
    let WorkloadEvent::Done(totals) = final_event(&mut workload) else {
        panic!("it found something")
    };
    let each_kind = [
        totals.operations,
        totals.verified_bytes,
        totals.written_bytes,
        totals.forks,
        totals.maps,
        totals.unmaps,
        totals.remaps,
        totals.discards,
        totals.protections,
    ];
    assert!(each_kind.iter().all(|count| *count > 0), "{totals:?}");
    assert!(workload.close_input_and_wait().unwrap().success());
}

#[test]
fn torture_finds_a_wrong_byte() {
    let mut workload = start("torture --mib 16 --threads 2 --seconds 0.1 --corrupt");
    workload.wait_ready().unwrap();
    let WorkloadEvent::Wrong(wrong) = final_event(&mut workload) else {
        panic!("it found nothing")
    };
    assert_eq!((wrong.expected ^ wrong.found, wrong.found_again), (0x10, wrong.found));
    assert_eq!(workload.close_input_and_wait().unwrap().code(), Some(1));
}

#[test]
fn storms_go_on_until_their_input_ends() {
    for name in ["thread-storm", "fork-storm"] {
        let mut workload = start(&format!("{name} --mib 4 --seconds 0.3"));
        workload.wait_ready().unwrap();
        assert!(matches!(final_event(&mut workload), WorkloadEvent::Done(_)), "{name}");
        let mut endless = start(&format!("{name} --mib 4"));
        endless.wait_ready().unwrap();
        let works = |event: &_| matches!(event, WorkloadEvent::Progress { operations: 1.., .. });
        wait_for_event(&mut endless, works);
        assert!(endless.close_input_and_wait().unwrap().success(), "{name}");
    }
}

#[test]
fn a_process_executes_itself_and_one_exits() {
    let mut workload = start("exec-self --ms 20 --times 2 --mib 4");
    for execs in 0..=2 {
        let ready = workload.wait_ready().unwrap();
        assert_eq!((ready.execs, ready.pid), (execs, workload.pid()));
    }
    assert!(workload.close_input_and_wait().unwrap().success());

    let mut leaving = start("exit-after --ms 20 --status 7 --mib 4");
    leaving.wait_ready().unwrap();
    assert_eq!(leaving.close_input_and_wait().unwrap().code(), Some(7));
}

#[test]
fn a_dropped_handle_ends_its_workload() {
    let mut workload = start("hot-spot --mib 4 --hot-mib 1 --seconds 1000");
    let pid = workload.wait_ready().unwrap().pid;
    drop(workload);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn wrong_options_are_one_sentence() {
    for line in [
        "hot-spot --mib 4",
        "zipf --mib 4 --theta=-1",
        "one-tib --mapped-gib 1 --populated-gib 2",
        "stride --stride-bytes 12",
        "torture --mib 8 --threads 2",
    ] {
        let mut workload = start(line);
        let error = workload.wait_ready().unwrap_err();
        assert!(matches!(error, WorkloadProcessError::Failed(_)), "{line}: {error}");
        let begin = Instant::now();
        assert_eq!(workload.close_input_and_wait().unwrap().code(), Some(1), "{line}");
        assert!(begin.elapsed() < SOON);
    }
}

#[test]
fn options_out_of_range_are_refused() {
    for line in ["crowd --each-kib 0", "blocks --renew-per-s inf", "blocks --renew-per-s NaN"] {
        let mut workload = start(line);
        assert!(workload.wait_ready().is_err(), "{line}");
        assert_eq!(workload.close_input_and_wait().unwrap().code(), Some(2), "{line}");
    }
}

#[test]
fn blocks_end_in_time_at_a_rate_that_no_machine_reaches() {
    let mut workload = start("blocks --mib 4 --renew-per-s 1e9 --seconds 0.3 --quiet");
    workload.wait_ready().unwrap();
    wait_for_event(&mut workload, |event| matches!(event, WorkloadEvent::Finished { .. }));
    assert!(workload.close_input_and_wait().unwrap().success());
}

#[test]
fn page_faults_are_timed_until_asked_for() {
    for options in ["", "--beside-mib 4"] {
        let mut workload =
            start(&format!("stalls --mib 4 --touched-mib 4 --every-us 200 {options}"));
        let ready = workload.wait_ready().unwrap();
        assert_eq!((ready.bytes, ready.pid), (4 << 20, workload.pid()));
        // More touches than pages: the memory was given back, and faults occurred again.
        let all = times_of_accesses(&mut workload, (4 << 20) / 4096 + 11);
        let counted: u64 = all.counts.iter().map(|(_, count)| count).sum();
        assert!(counted >= all.faults && all.faults > 0, "{all:?}");
        let (p50, p999) = (all.quantile_ns(0.5), all.quantile_ns(0.999));
        assert!(0 < p50 && p50 <= p999 && p999 <= all.longest_ns, "{all:?}");
        assert!(workload.close_input_and_wait().unwrap().success());
    }
}

#[test]
fn the_longest_of_the_reads_of_all_regions_is_timed() {
    let file = create_memory_file(8 << 20).unwrap();
    let path = path_for_other_processes(&file);
    for memory in [String::new(), format!("--file {path}")] {
        let mut workload = start(&format!("read-stalls --mib 8 --every-us 200 {memory}"));
        let ready = workload.wait_ready().unwrap();
        assert_eq!((ready.bytes, ready.start % (2 << 20)), (8 << 20, 0));
        let all = times_of_accesses(&mut workload, 4 * 100);
        // One time for the four reads of a round.
        let counted: u64 = all.counts.iter().map(|(_, count)| count).sum();
        assert!(counted * 4 >= all.faults + all.present, "{all:?}");
        assert!(all.quantile_ns(0.5) > 0 && all.longest_ns >= all.quantile_ns(0.999), "{all:?}");
        assert!(workload.close_input_and_wait().unwrap().success());
    }
}
