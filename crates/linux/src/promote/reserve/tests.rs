use super::*;
use crate::anonymous_mapping::AnonymousMapping;
use crate::processes::process::ProcessHandle;
use crate::promote::target_call::CallHelperPool;
use hawkeye_live_test_support::or_skip;
use hawkeye_policy::saturating_cast::usize_from_u64;
use hawkeye_policy::{HUGE_PAGE_BYTES, RegionAddr};
use hawkeye_test_support::test_skips::TestName;
use hawkeye_test_support::this_test;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use std::fs;

const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until this many huge pages are held, which is fewer than before.
fn wait_for_shrinking(reserve: &Reserve, held: u32) {
    let deadline = Instant::now() + PATIENCE;
    while reserve.state().held != held {
        assert!(Instant::now() < deadline, "{:?}", reserve.state());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Fills up to this many huge pages until the state is as wanted, and returns it. `None`, and the
/// test counts as skipped, where the kernel has none for a minute.
fn filled(
    test: TestName,
    reserve: &Reserve,
    (pages, most): (u32, u32),
    is_wanted: impl Fn(ReserveState) -> bool,
) -> Option<ReserveState> {
    let deadline = Instant::now() + PATIENCE;
    let mut failed = 0;
    fill(reserve, pages, most);
    loop {
        let state = reserve.state();
        if is_wanted(state) {
            return Some(state);
        }
        if Instant::now() >= deadline {
            assert!(state.failed > 0, "{state:?}");
            test.skip("the kernel has no free huge page");
            return None;
        }
        if state.failed > failed {
            failed = state.failed;
            // It is tried again when the target changes.
            let keep = ReserveTarget { pages, fill: false };
            reserve.set_target(keep, most).expect("its process runs");
            fill(reserve, pages, most);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Fills up to this many huge pages; `most` is the limit of all targets.
fn fill(reserve: &Reserve, pages: u32, most: u32) {
    let target = ReserveTarget { pages, fill: true };
    reserve.set_target(target, most).expect("its process runs");
}

/// Bytes in huge pages of the process of a reserve.
fn huge_bytes(reserve: &Reserve) -> u64 {
    let pid = reserve.pid.load(Ordering::Relaxed);
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("it runs");
    let line = smaps.lines().find_map(|l| l.strip_prefix("AnonHugePages:"));
    let kib = line.expect("the kernel has huge pages").trim().trim_end_matches(" kB");
    kib.parse::<u64>().expect("it is a number") << 10
}

#[test]
fn it_is_filled_with_huge_pages_gives_them_back_and_is_emptied() {
    let (test, reserve) = (this_test!(), Reserve::new());
    assert_eq!(reserve.give_back_page(), None);
    fill(&reserve, 0, 8);
    assert_eq!(reserve.pid.load(Ordering::Relaxed), 0, "no process is needed");
    let full = or_skip!(filled(test, &reserve, (4, 8), |state| state.held == 4));
    assert_eq!((full.filled, full.served), (4, 0));
    assert!(full.fill_cpu > Duration::ZERO);
    let full_bytes = huge_bytes(&reserve);
    assert!(reserve.give_back_page().is_some());
    let is_full_again = |state: ReserveState| state.held == 4 && state.filled > 4;
    let again = or_skip!(filled(test, &reserve, (4, 8), is_full_again));
    assert_eq!((again.filled, again.served), (5, 1));
    fill(&reserve, 1, 8);
    wait_for_shrinking(&reserve, 1);
    let one_bytes = huge_bytes(&reserve);
    let keep = ReserveTarget { pages: 3, fill: false };
    reserve.set_target(keep, 8).expect("it runs");
    assert!(reserve.give_back_page().is_some());
    let kept = reserve.state();
    assert_eq!((kept.held, kept.filled, kept.served), (0, 5, 2));
    fill(&reserve, 0, 8);
    wait_for_shrinking(&reserve, 0);
    // It also inherits what this process had in huge pages.
    let inherited_bytes = huge_bytes(&reserve);
    assert_eq!(full_bytes - inherited_bytes, 4 * HUGE_PAGE_BYTES);
    assert_eq!(one_bytes - inherited_bytes, HUGE_PAGE_BYTES);
    assert_eq!(reserve.give_back_page(), None);
    reserve.stop();
    assert_eq!(reserve.state(), ReserveState::default());
}

#[test]
fn a_target_beyond_the_limit_fills_up_to_it() {
    let reserve = Reserve::new();
    or_skip!(filled(this_test!(), &reserve, (5, 2), |state| state.held == 2));
    fill(&reserve, 0, 2);
    wait_for_shrinking(&reserve, 0);
}

#[test]
fn requests_to_shrink_have_no_answer_that_could_fill_the_socket() {
    let reserve = ReserveProcess::start(1).expect("a process");
    let [_, _, last] =
        [SHRINK, SHRINK, GIVE_BACK].map(|request| reserve.send_request(request).expect("it runs"));
    let deadline = Instant::now() + PATIENCE;
    let readable = wait_until_readable(reserve.socket.as_fd(), deadline);
    assert_eq!(readable, Ok(true));
    let mut packet = [0; 8];
    let length = recv(reserve.socket.as_raw_fd(), &mut packet, MsgFlags::empty());
    assert_eq!(length, Ok(8));
    let answered = u32::from_ne_bytes([packet[4], packet[5], packet[6], packet[7]]);
    assert_eq!(answered, last, "the first answer is to the last request");
}

/// Prefault threads wait for pages of a reserve that is stopped; the manager's loop does not.
#[test]
fn its_state_and_target_do_not_wait_for_pages_that_others_wait_for() {
    let reserve = Reserve::new();
    or_skip!(filled(this_test!(), &reserve, (1, 2), |state| state.held == 1));
    let pid = i32::try_from(reserve.pid.load(Ordering::Relaxed)).expect("a pid");
    kill(Pid::from_raw(pid), Signal::SIGSTOP).expect("it can be stopped");
    let stopped = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WUNTRACED));
    assert!(matches!(stopped, Ok(WaitStatus::Stopped(..))), "{stopped:?}");
    let is_quick = |pages| {
        std::thread::scope(|scope| {
            scope.spawn(|| reserve.give_back_page());
            // Long enough for the wait to begin.
            std::thread::sleep(WAIT / 10);
            let begun = Instant::now();
            reserve.state();
            fill(&reserve, pages, 2);
            begun.elapsed() < WAIT / 3
        })
    };
    // Any single look may be slow on a busy machine.
    assert!([2, 1, 2].into_iter().any(is_quick));
}

#[test]
fn it_is_started_again_after_its_process_was_killed() {
    let (test, reserve) = (this_test!(), Reserve::new());
    or_skip!(filled(test, &reserve, (1, 2), |state| state.held == 1));
    let pid = reserve.pid.load(Ordering::Relaxed);
    assert!(reserve.is_reserve_pid(pid));
    let pid = Pid::from_raw(i32::try_from(pid).expect("a pid"));
    kill(pid, Signal::SIGKILL).expect("it can be killed");
    let deadline = Instant::now() + PATIENCE;
    while reserve.is_reserve_pid(pid.as_raw().unsigned_abs()) {
        assert!(Instant::now() < deadline, "its end is noticed");
        reserve.give_back_page();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(reserve.state(), ReserveState::default());
    or_skip!(filled(test, &reserve, (1, 2), |state| state.held == 1));
}

#[test]
fn a_promotion_takes_a_page_of_the_reserve() {
    let memory =
        AnonymousMapping::map(4 * usize_from_u64(HUGE_PAGE_BYTES)).expect("memory can be mapped");
    let region = RegionAddr::containing(memory.address() + 2 * HUGE_PAGE_BYTES);
    let offset = usize_from_u64(region.start() - memory.address());
    // SAFETY: within the mapping, to which no reference exists.
    unsafe {
        let start = memory.start().cast::<u8>().add(offset);
        start.write_bytes(7, usize_from_u64(HUGE_PAGE_BYTES));
    }
    or_skip!(filled(this_test!(), &RESERVE, (2, 2), |state| state.held == 2));
    let served_before = RESERVE.state().served;
    let own = ProcessHandle::open(std::process::id()).expect("this process exists");
    let mut calls = CallHelperPool::with_time_limit(Duration::from_secs(60));
    calls.collapse(&own, region, || RESERVE.give_back_page()).expect("it is promoted");
    let state = RESERVE.state();
    RESERVE.stop();
    // Promotions of other tests take pages too.
    assert!(state.served > served_before, "{state:?}");
    // SAFETY: as above.
    let kept = unsafe {
        let start = memory.start().cast::<u8>().add(offset);
        std::slice::from_raw_parts(start.as_ptr(), usize_from_u64(HUGE_PAGE_BYTES))
    };
    assert!(kept.iter().all(|byte| *byte == 7));
}
