//! Independent runs on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `run` with each item and its index. Results are in the order of the items,
/// whatever the number of threads. There is at least one, and none without an item.
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
        let threads = threads.clamp(1, items.len().max(1));
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.flatten().collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_run_once_by_any_number_of_threads() {
        for threads in [0, 1, 2, usize::MAX] {
            let run = |index, item: &u32| (index, *item);
            assert_eq!(map_on_threads(&[7, 8, 9], threads, run), [(0, 7), (1, 8), (2, 9)]);
            assert_eq!(map_on_threads(&[], threads, run), []);
        }
    }
}
