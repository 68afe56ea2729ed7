use super::*;
use crate::anonymous_mapping::AnonymousMapping;
use crate::machine_lease::thp_settings::testing::TestFolder;
use crate::probe::probe_child::ProbeChild;
use crate::processes::mapping_records::parse_mapping_records;
use crate::processes::memory_maps;
use crate::processes::process::ProcessHandle;
use crate::promote::process_madvise::SPLIT;
use crate::promote::sched_fifo::run_with_sched_fifo;
use crate::sample::page_table_reader::PageTableReader;
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr};
use hawkeye_test_support::event_constructors::process_with_pid;
use hawkeye_test_support::this_test;
use nix::sys::mman::{ProtFlags, mprotect};
use procfs::process::{MMapPath, MemoryMap};
use std::path::PathBuf;

const LONG: Duration = Duration::from_secs(60);

fn new_helper() -> CallHelper {
    CallHelper::start().expect("a helper starts")
}

fn own() -> ProcessHandle {
    ProcessHandle::open(std::process::id()).expect("this process exists")
}

static WORD: u64 = 0x1234_5678_9abc_def0;

fn word(own: &ProcessHandle) -> TargetRequest<'_> {
    TargetRequest::for_reading_memory(own, &raw const WORD as u64, 8)
}

fn answered(caller: &mut CallHelper, request: &TargetRequest<'_>) -> CallResult {
    caller.send_request(request).expect("the helper runs");
    let answer = caller.wait_for_result(LONG).expect("the helper runs");
    answer.expect("the helper answers")
}

#[test]
fn a_helper_reads_memory_and_files() {
    let mut caller = new_helper();
    let answer = answered(&mut caller, &word(&own()));
    assert_eq!(answer.result, Ok(8));
    assert_eq!(answer.data, WORD.to_ne_bytes());
    let answer = answered(&mut caller, &file("/proc/self/comm", 100));
    assert_eq!(answer.data, b"hawkeye-call\n");
    let answer = answered(&mut caller, &file("/proc/no-such-file", 1));
    assert_eq!(answer.result, Err(Errno::ENOENT));
}

#[test]
fn a_helper_keeps_nothing_open_but_its_socket() {
    let mut caller = new_helper();
    answered(&mut caller, &word(&own()));
    let open = std::fs::read_dir(format!("/proc/{}/fd", caller.helper)).expect("the helper runs");
    assert_eq!(open.count(), 1);
}

#[test]
fn a_file_is_held_open_until_the_next_call() {
    let mut caller = new_helper();
    let hold = TargetRequest::for_holding_file("holding", "/proc/self/pagemap");
    assert_eq!(answered(&mut caller, &hold).result, Ok(0));
    let open = |caller: &CallHelper| {
        let open = std::fs::read_dir(format!("/proc/{}/fd", caller.helper));
        open.expect("the helper runs").count()
    };
    assert_eq!(open(&caller), 2);
    assert_eq!(answered(&mut caller, &hold).result, Ok(0));
    assert_eq!(open(&caller), 2);
    let absent = TargetRequest::for_holding_file("holding", "/proc/no-such-file");
    assert_eq!(answered(&mut caller, &absent).result, Err(Errno::ENOENT));
    assert_eq!(open(&caller), 1);
}

#[test]
fn the_kernels_error_is_returned() {
    let mut caller = new_helper();
    // The first page of an address space is never mapped.
    let own = own();
    let range = std::slice::from_ref(&(0..4096));
    let request = TargetRequest::for_advice(&own, SPLIT, range);
    assert_eq!(answered(&mut caller, &request).result, Err(Errno::ENOMEM));
}

#[test]
fn the_error_of_a_helper_is_no_answer_to_its_call() {
    for failed in [helper_start_error, helper_call_error] {
        assert_eq!(failed(Errno::ENOMEM).errno(), None);
        let error = failed(Errno::ENOMEM).into_machine_error(process_with_pid(7));
        assert!(!error.is_huge_page_shortage(), "{error}");
    }
}

fn file(path: &str, length: usize) -> TargetRequest<'_> {
    TargetRequest::for_reading_file("reading", path, 0, length)
}

fn new_pipe(folder: &TestFolder) -> PathBuf {
    let pipe = folder.0.join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("the pipe can be created");
    pipe
}

#[test]
fn a_stuck_target_is_set_aside_and_others_are_served() {
    let folder = TestFolder::new("stuck");
    let pipe = new_pipe(&folder);
    // The open blocks until this test writes to the pipe, as a stuck target blocks a call.
    let never = file(pipe.to_str().expect("the path is valid UTF-8"), 8);
    let mut calls = CallHelperPool::default();
    let own = own();
    let easy = word(&own);
    let (stuck, other) = (process_with_pid(7), process_with_pid(8));
    let refused = calls.call_target(stuck, &never);
    assert!(matches!(refused, Err(LinuxError::NotAnswering(7))));
    // The stuck target gets no other call; the other targets do.
    let refused = calls.call_target(stuck, &easy);
    assert!(matches!(refused, Err(LinuxError::NotAnswering(7))));
    assert!(calls.call_target(other, &easy).is_ok());
    let unanswered: Vec<_> = calls.unresponsive_processes().map(|u| u.process).collect();
    assert_eq!(unanswered, [stuck]);
    assert_eq!(calls.take_late_calls(), []);
    std::fs::write(&pipe, b"").expect("the helper waits for this");
    let deadline = Instant::now() + LONG;
    let late = loop {
        match calls.take_late_calls().pop() {
            Some(late) => break late,
            None => assert!(Instant::now() < deadline, "the call is not answered"),
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let answer = late.answer.expect("the helper still runs");
    // A pipe has no positions to read from.
    assert_eq!((late.process, answer.result), (stuck, Err(Errno::ESPIPE)));
    assert!(calls.call_target(stuck, &easy).is_ok());
}

#[test]
fn stuck_targets_of_one_user_do_not_stop_calls_for_others() {
    let folder = TestFolder::new("many-stuck");
    let pipe = new_pipe(&folder);
    let never = file(pipe.to_str().expect("the path is valid UTF-8"), 8);
    let mut calls = CallHelperPool::with_time_limit(Duration::from_millis(1));
    // Processes that do not exist count as one user's.
    let absent = |n: u32| process_with_pid(0x7000_0000 + n);
    for n in 0..32 {
        let refused = calls.call_target(absent(n), &never);
        assert!(matches!(refused, Err(LinuxError::NotAnswering(_))));
    }
    assert_eq!(calls.unresponsive_processes().count(), 32);
    calls.wait = LONG;
    let own = own();
    let easy = word(&own);
    let refused = calls.call_target(absent(32), &easy);
    assert!(matches!(refused, Err(LinuxError::NotAnswering(_))));
    assert!(calls.call_target(own.id, &easy).is_ok());
}

#[test]
fn a_helper_started_under_real_time_priority_does_not_keep_it() {
    let mut calls = CallHelperPool::default();
    let own = own();
    run_with_sched_fifo(|| calls.call_target(own.id, &word(&own))).expect("it answers");
    let helper = calls.idle[0].helper;
    // SAFETY: a plain system call without pointers.
    let policy = unsafe { libc::sched_getscheduler(helper.as_raw()) };
    assert_eq!(policy, libc::SCHED_OTHER);
}

#[test]
fn one_helper_is_enough_for_targets_that_answer() {
    let mut calls = CallHelperPool::default();
    let own = own();
    let easy = word(&own);
    for _ in 0..100 {
        assert!(calls.call_target(process_with_pid(7), &easy).is_ok());
    }
    assert_eq!(calls.idle.len(), 1);
    assert!(calls.statistics.helper_cpu > Duration::ZERO);
}

#[test]
fn pages_of_a_slow_target_count_as_in_use() {
    let own = own();
    let memory = AnonymousMapping::map(2 * HUGE_PAGE_BYTES as usize).expect("memory can be mapped");
    let region = RegionAddr::containing(memory.address() + HUGE_PAGE_BYTES - 1);
    let mut calls = CallHelperPool::with_time_limit(LONG);
    let now = Instant::now();
    let mut find = |deadline| {
        let zero = calls.find_zero_pages_by_copying(&own, region, PAGES_PER_REGION, deadline);
        zero.expect("the pages can be read").len()
    };
    assert_eq!(find(now + LONG), usize::from(PAGES_PER_REGION));
    assert_eq!(find(now), 8, "it made more than one call after the deadline");
}

#[test]
fn a_killed_helper_is_replaced() {
    let mut calls = CallHelperPool::default();
    let own = own();
    let easy = word(&own);
    calls.start_idle_helper().expect("a helper starts");
    let helper = calls.idle[0].helper;
    kill(helper, Signal::SIGKILL).expect("the helper runs");
    assert!(calls.call_target(process_with_pid(7), &easy).is_ok());
    assert_ne!(calls.idle[0].helper, helper);
}

#[test]
fn a_process_that_has_ended_is_not_read() {
    let mut child = std::process::Command::new("true").spawn().expect("the child starts");
    let mut handle = ProcessHandle::open_child(child.id()).expect("the child can be opened");
    child.wait().expect("the child ends");
    // As if another process had got its pid.
    handle.id.pid = std::process::id();
    let mut caller = new_helper();
    let answer = answered(&mut caller, &word(&handle));
    assert_eq!(answer.result, Err(Errno::ESRCH));
}

/// Two listings under way at once each return their own process's mappings, in several packets.
#[test]
fn an_abandoned_listing_disturbs_no_other() {
    if !nix::unistd::geteuid().is_root() {
        return this_test!().skip("it needs root");
    }
    let tables = PageTableReader::load_bpf_programs().expect("the BPF programs load");
    let many = many_mappings(5000);
    let many_end = many.address() + many.byte_len() as u64;
    let bind = |pid| tables.bind_to_process(pid).expect("the programs bind to the process");
    let idle = ProbeChild::spawn().expect("the child starts");
    let (target, other_target) = (bind(std::process::id()), bind(idle.handle.id.pid));
    let in_mm = |map: MemoryMap| (map.pathname != MMapPath::Vsyscall).then_some(());
    let expected = memory_maps::read_maps(idle.handle.id.pid, in_mm);
    let expected = expected.expect("the mappings can be read").len();
    let mut slow = new_helper();
    let helper = slow.helper;
    kill(helper, Signal::SIGSTOP).expect("the helper can be signalled");
    slow.send_request(&TargetRequest::for_listing_mappings(target.mapping_list_link()))
        .expect("the helper is there");
    let given_up = slow.wait_for_result(Duration::from_millis(20));
    assert_eq!(given_up.expect("the helper was asked"), None);
    kill(helper, Signal::SIGCONT).expect("the helper can be signalled");
    let mut other = new_helper();
    let request = TargetRequest::for_listing_mappings(other_target.mapping_list_link());
    for _ in 0..20 {
        let listed = answered(&mut other, &request);
        assert_eq!(parse_mapping_records(&listed.data).len(), expected);
    }
    let late = slow.wait_for_result(LONG).expect("the helper runs").expect("the helper answers");
    assert!(late.result.is_ok());
    let late = parse_mapping_records(&late.data);
    let ours = many.address()..many_end;
    let each = late.iter().filter(|m| ours.contains(&m.range.start));
    assert_eq!(each.count(), 5000);
    assert!(late.is_sorted_by_key(|m| m.range.start));
}

/// Maps pages of memory of which no two neighbours are one mapping.
fn many_mappings(pages: usize) -> AnonymousMapping {
    let memory = AnonymousMapping::map_with_protection(pages * 4096, ProtFlags::PROT_NONE)
        .expect("memory can be mapped");
    for page in (0..pages).step_by(2) {
        // SAFETY: a page of that memory.
        let page = unsafe { memory.start().byte_add(page * 4096) };
        // SAFETY: as above.
        unsafe { mprotect(page, 4096, ProtFlags::PROT_READ) }.expect("memory can be protected");
    }
    memory
}

/// Targets may be slow on purpose.
#[test]
fn work_pauses_for_a_tenth_of_the_time_for_targets_that_answer_late() {
    let folder = TestFolder::new("late");
    let pipe = new_pipe(&folder);
    let never = file(pipe.to_str().expect("the path is valid UTF-8"), 8);
    let mut calls = CallHelperPool::with_time_limit(Duration::ZERO);
    let begun = Instant::now();
    let [first, second] = [7, 8].map(process_with_pid);
    assert!(!calls.take_pause_for_late_call(first, begun), "there is no call");
    let mut pauses = |process, at| {
        let refused = calls.call_target(process, &never);
        assert!(matches!(refused, Err(LinuxError::NotAnswering(_))));
        (0..1000).take_while(|_| calls.take_pause_for_late_call(process, at)).count()
    };
    assert_eq!(pauses(first, begun), 200, "a second's pauses at first");
    assert!(pauses(second, begun + Duration::from_millis(400)) <= 8);
    let long_after = begun + Duration::from_secs(3600);
    assert_eq!(pauses(first, long_after), 0, "it has not answered for an hour");
}
