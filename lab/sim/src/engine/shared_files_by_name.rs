//! Files of shared memory, as programs map them.

use crate::kernel::{KernelError, SharedFileId, SimulatedKernel, SpaceId};
use std::collections::BTreeMap;
use std::ops::Range;

/// The files of one machine, by their names in its workload.
#[derive(Debug, Default)]
pub(super) struct SharedFilesByName(BTreeMap<String, SharedFileId>);

impl SharedFilesByName {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Maps a file into these bytes; creates it at its first mapping.
    pub(super) fn map_file(
        &mut self,
        kernel: &mut SimulatedKernel,
        space: SpaceId,
        (name, bytes): (&str, Range<u64>),
    ) -> Result<(), KernelError> {
        let file = match self.0.get(name) {
            Some(file) => *file,
            None => {
                let created = kernel.create_shared_file(bytes.end - bytes.start)?;
                self.0.insert(name.to_owned(), created);
                created
            }
        };
        kernel.map_shared_file(space, file, bytes.start)
    }
}
