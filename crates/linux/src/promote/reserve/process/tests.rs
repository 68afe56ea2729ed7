use super::*;
use std::sync::atomic::AtomicBool;

/// Slots. Only the last is ever filled, so that the search for it takes long.
const SLOTS: usize = 64;

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
