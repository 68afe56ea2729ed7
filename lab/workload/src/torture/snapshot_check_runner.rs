//! Forked children that check a snapshot of their parent's memory.

use super::mapping_with_shadow_copy::MappingWithShadowCopy;
use super::shadow_pages::{ExpectedPage, PageMismatch};
use crate::prelude::*;
use crate::process::{ForkedChild, exit_code_of_wait_status};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One child at a time in the whole process: each can double the memory in use.
static TURN: Mutex<()> = Mutex::new(());

const RIGHT: u8 = 0;
const WRONG: u8 = 3;

/// A child overwrites one in `WRITE_EVERY` pages of its snapshot.
const WRITE_EVERY: usize = 7;

/// Forks children for one thread, and reads their reports.
pub(super) struct SnapshotCheckRunner {
    /// Shared with the children, which write their results to it.
    report: WorkloadMemory,
}

impl SnapshotCheckRunner {
    pub(super) fn new() -> WorkloadResult<Self> {
        Ok(Self { report: WorkloadMemory::map_shared(PAGE)? })
    }

    /// Waits until no other thread has a child.
    pub(super) fn lock_child_turn() -> MutexGuard<'static, ()> {
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The child also writes to its copy and checks that. `None`: no memory for a child.
    pub(super) fn fork_child(
        &mut self,
        piece: &mut MappingWithShadowCopy,
        pages: Range<usize>,
    ) -> WorkloadResult<Option<ForkedChild>> {
        let report = &mut self.report;
        // SAFETY: the child reads and writes memory that exists already;
        // `MappingWithShadowCopy::check_pages` and `write_page` neither allocate nor lock.
        let forked =
            unsafe { ForkedChild::fork(|| check_and_write_in_child(piece, pages, report)) };
        match forked {
            Ok(child) => Ok(Some(child)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN)) => {
                Ok(None)
            }
            Err(error) => Err(WorkloadError::wrap_system_error("fork")(error)),
        }
    }

    pub(super) fn wait_for_result(
        &mut self,
        child: ForkedChild,
    ) -> WorkloadResult<WorkloadResult<(), PageMismatch>> {
        let status = child.wait().map_err(WorkloadError::wrap_system_error("waitpid"))?;
        match exit_code_of_wait_status(status).and_then(|code| u8::try_from(code).ok()) {
            Some(RIGHT) => Ok(Ok(())),
            Some(WRONG) => Ok(Err([0, 8, 16, 24].map(|offset| self.report.read_word(offset)))),
            _ => Err(WorkloadError::Child(status)),
        }
    }
}

/// The child's work: memory only, no allocation, no lock.
fn check_and_write_in_child(
    piece: &mut MappingWithShadowCopy,
    pages: Range<usize>,
    report: &mut WorkloadMemory,
) -> u8 {
    let mut seen = piece.check_pages(pages.clone());
    if seen.is_ok() {
        for page in pages.clone().step_by(WRITE_EVERY) {
            piece.write_page(page, ExpectedPage::Full(u32::MAX));
        }
        seen = piece.check_pages(pages);
    }
    let Err(mismatch) = seen else {
        return RIGHT;
    };
    for (word, value) in mismatch.into_iter().enumerate() {
        report.write_word(word * 8, value);
    }
    WRONG
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{REGION, REGION_PAGES, RequestedPageKind};

    #[test]
    fn a_child_finds_a_wrong_byte_and_leaves_its_parent_alone() {
        let memory =
            WorkloadMemory::map_private_and_touch(REGION, RequestedPageKind::Default, |_| ())
                .unwrap();
        let mut piece = MappingWithShadowCopy::new(memory, 1);
        piece.write_page(5, ExpectedPage::Full(1));
        let mut snapshots = SnapshotCheckRunner::new().unwrap();
        let mut look = |piece: &mut MappingWithShadowCopy| {
            let child = snapshots.fork_child(piece, 0..REGION_PAGES).unwrap().unwrap();
            snapshots.wait_for_result(child).unwrap()
        };
        assert_eq!(look(&mut piece), Ok(()));
        assert_eq!(piece.check_pages(0..REGION_PAGES), Ok(()));
        piece.flip_bit_of_word(6, 7);
        let mismatch = look(&mut piece).unwrap_err();
        assert_eq!(mismatch[..3], [6, 7, 0]);
        assert_ne!(mismatch[3], 0);
    }
}
