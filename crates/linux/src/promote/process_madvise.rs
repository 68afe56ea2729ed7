//! Advice to the kernel about another process's memory, by name, and which refusals to try again.

use crate::error::Result;
use nix::errno::Errno;
use std::time::Duration;

/// Advice (`MADV_*`), and the name of a call with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedAdvice {
    pub(crate) number: i32,
    pub(crate) call: &'static str,
}

impl NamedAdvice {
    pub(crate) const fn new(number: i32, call: &'static str) -> Self {
        Self { number, call }
    }
}

/// Of one base page.
pub(crate) const SPLIT: NamedAdvice = NamedAdvice::new(libc::MADV_COLD, "splitting a huge page");
/// Of whole regions.
pub(crate) const CLEAR: NamedAdvice = NamedAdvice::new(libc::MADV_COLD, "clearing access bits");
pub(crate) const PAGE_OUT: NamedAdvice =
    NamedAdvice::new(libc::MADV_PAGEOUT, "paging out zero pages");
pub(crate) const COLLAPSE: NamedAdvice =
    NamedAdvice::new(libc::MADV_COLLAPSE, "collapsing a region");

/// A call that is refused faster than this did not search for a huge page.
const FAST_REFUSAL: Duration = Duration::from_micros(500);
/// Time for which the call is repeated for one region. 64 such refusals take 5 ms on a machine of
/// two cores. Each makes all cores hand over pages that were just touched (`lru_add_drain_all`). So
/// on large machines fewer of them fit.
const RETRY_TIME: Duration = Duration::from_millis(10);

/// Whether a call that found no huge page is made again at once.
///
/// Where the kernel defers compaction, it refuses up to 64 calls that need it without a try,
/// whenever they come (mm/compaction.c, `compaction_deferred`).
#[derive(Debug, Default)]
pub(crate) struct CollapseRetry {
    so_far: Duration,
}

impl CollapseRetry {
    /// Takes the result of a call and its duration; returns whether to call again.
    pub(crate) fn should_retry<T>(&mut self, result: &Result<T>, took: Duration) -> bool {
        self.so_far += took;
        let refused = matches!(result, Err(error) if error.errno() == Some(Errno::ENOMEM));
        refused && took < FAST_REFUSAL && self.so_far < RETRY_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::LinuxError;

    fn refused(errno: Errno) -> Result<()> {
        Err(LinuxError::wrap_errno(COLLAPSE.call)(errno))
    }

    const QUICK: Duration = Duration::from_micros(70);

    #[test]
    fn a_call_that_the_kernel_did_not_try_is_repeated() {
        let mut retry = CollapseRetry::default();
        for _ in 1..64 {
            assert!(retry.should_retry(&refused(Errno::ENOMEM), QUICK));
        }
        assert!(!retry.should_retry(&Ok(()), QUICK));
    }

    #[test]
    fn a_call_that_was_tried_or_refused_otherwise_is_made_once() {
        for (errno, took) in [(Errno::ENOMEM, FAST_REFUSAL), (Errno::EAGAIN, QUICK)] {
            assert!(!CollapseRetry::default().should_retry(&refused(errno), took));
        }
    }

    #[test]
    fn a_call_that_no_helper_made_is_not_repeated() {
        let doing = "starting a helper process";
        let failed: Result<()> = Err(LinuxError::HelperFailed { doing, errno: Errno::ENOMEM });
        assert!(!CollapseRetry::default().should_retry(&failed, QUICK));
    }

    #[test]
    fn repeated_calls_are_bounded() {
        let mut retry = CollapseRetry::default();
        let calls = (1..).find(|_| !retry.should_retry(&refused(Errno::ENOMEM), QUICK));
        assert_eq!(calls, Some(143));
    }
}
