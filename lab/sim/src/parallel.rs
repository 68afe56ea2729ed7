//! Independent runs on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `run` with each item and its index. Results are in the order of the items,
/// whatever the number of threads (at least 1).
pub fn map_on_threads<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    run: impl Fn(usize, &T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else {
                return results;
            };
            results.push((index, run(index, item)));
        }
    };
    let mut results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.flatten().collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
