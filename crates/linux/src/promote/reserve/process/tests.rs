use super::*;
use hawkeye_test_support::this_test;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use std::sync::atomic::AtomicBool;

/// Slots. Only the last is ever filled, so that the search for it takes long.
const SLOTS: usize = 64;

/// The kernel's shrinker splits huge pages with many base pages of zeros.
#[test]
fn no_base_page_of_a_filled_page_is_all_zeros() {
    let shared = ReserveSharedState::map().expect("memory can be mapped");
    // A fill is at idle priority, so it must not hold locks of this process.
    // SAFETY: the child makes plain system calls on memory of its own.
    let child = match unsafe { fork() }.expect("fork succeeds") {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let found = fill_a_page_and_look(shared);
            // SAFETY: ends the child without running any exit handler of this process's.
            unsafe { libc::_exit(found) }
        }
    };
    let ended = waitpid(child, None);
    shared.unmap_self();
    if ended == Ok(WaitStatus::Exited(child, NOT_FILLED)) {
        return this_test!().skip("the kernel has no free huge page");
    }
    assert_eq!(ended, Ok(WaitStatus::Exited(child, NO_ZERO_PAGE)));
}

const NO_ZERO_PAGE: i32 = 0;
const ZERO_PAGES: i32 = 1;
const NOT_FILLED: i32 = 2;

fn fill_a_page_and_look(shared: &'static ReserveSharedState) -> i32 {
    let Some(pages) = map_reserved_pages(shared, 1) else { return NOT_FILLED };
    if !(0..100).any(|_| pages.fill_one_page()) {
        return NOT_FILLED;
    }
    // SAFETY: the mapping is ours, and nothing writes to it now.
    let filled = unsafe { std::slice::from_raw_parts(pages.start.as_ptr(), HUGE) };
    let is_zero = |page: &[u8]| page.iter().all(|byte| *byte == 0);
    if filled.chunks(BASE).any(is_zero) { ZERO_PAGES } else { NO_ZERO_PAGE }
}

/// The server and the filler give the same page back, and it is filled again.
#[test]
fn the_count_of_held_pages_never_exceeds_what_was_filled() {
    let order = Ordering::SeqCst;
    let shared = ReserveSharedState::map().expect("memory can be mapped");
    let pages = map_reserved_pages(shared, SLOTS).expect("memory can be mapped");
    let slot = &shared.slots[SLOTS - 1];
    let give_back: [&(dyn Fn(&ReservedPages) + Sync); 2] =
        [&|pages| _ = pages.give_back_and_return_cpu(), &|pages| {
            _ = pages.give_back_one_excess_page()
        }];
    let over = AtomicBool::new(false);
    let address = pages.start.as_ptr() as usize;
    let most = std::thread::scope(|scope| {
        for give_back in give_back {
            let over = &over;
            scope.spawn(move || {
                let start = NonNull::new(address as *mut u8).expect("it is the same address");
                let pages = ReservedPages { shared, start, count: SLOTS };
                while !over.load(order) {
                    give_back(&pages);
                }
            });
        }
        let fill = |_| {
            if slot.load(order) == EMPTY {
                // As the filler does it.
                shared.held.fetch_add(1, order);
                slot.store(READY, order);
            }
            shared.held.load(order)
        };
        let most = (0..10_000_000).map(fill).max();
        over.store(true, order);
        most
    });
    // SAFETY: the mapping is ours, and no thread uses it any more.
    unsafe { libc::munmap(pages.start.as_ptr().cast(), SLOTS * HUGE) };
    shared.unmap_self();
    assert_eq!(most, Some(1));
}
