//! A flag by which a thread learns that it should end, also after a panic.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets the flag when it is dropped. A scope waits for its threads also while it unwinds: a thread
/// that nothing tells to end would keep it there for ever.
pub(super) struct FlagSetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for FlagSetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn a_panic_ends_the_thread_that_waits_for_the_flag() {
        let ended = catch_unwind(|| {
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                });
                let _ends = FlagSetOnDrop(&over);
                assert!(over.load(Ordering::Relaxed), "the work fails");
            });
        });
        assert!(ended.is_err());
    }
}
