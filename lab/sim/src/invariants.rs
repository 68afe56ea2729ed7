//! What holds at any time.

use crate::error::BrokenInvariant;
use crate::machine::SimMachine;
use crate::process::SimProcess;

impl SimMachine {
    /// Checks that the simulation doesn't contradict itself. Debug builds do so after every call.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self) -> Result<(), BrokenInvariant> {
        for process in &self.processes {
            process.check()?;
        }
        let used_bytes = self.processes.iter().map(SimProcess::rss_bytes).sum();
        let machine = (used_bytes, self.spec.total_bytes);
        let groups = self.groups.iter();
        let groups = groups.map(|(name, limit)| (self.group_used_bytes(name), *limit));
        let broken = std::iter::once(machine)
            .chain(groups)
            .find(|(used, limit)| used > limit);
        match broken {
            Some((used_bytes, limit_bytes)) => Err(BrokenInvariant::Memory {
                used_bytes,
                limit_bytes,
            }),
            None => Ok(()),
        }
    }

    pub(crate) fn debug_check(&self) {
        if cfg!(debug_assertions) {
            let broken = self.check().err();
            assert!(broken.is_none(), "{broken:?}");
        }
    }
}
