//! Regions that are being filled.

use crate::observation::ProcessId;
use crate::page::RegionAddr;
use std::collections::BTreeMap;

/// Regions that were handed out and have no result yet.
#[derive(Clone, Debug, Default)]
pub(super) struct PrefaultsUnderWay(BTreeMap<(ProcessId, RegionAddr), PrefaultUnderWay>);

#[derive(Clone, Copy, Debug)]
pub(super) struct PrefaultUnderWay {
    /// For a stream that had not yet shown that it uses what is filled.
    pub(super) unproven: bool,
    /// For a program that is gone or was replaced by another one.
    pub(super) forgotten: bool,
}

impl PrefaultsUnderWay {
    pub(super) fn begin(&mut self, process: ProcessId, region: RegionAddr, unproven: bool) {
        let fill = PrefaultUnderWay {
            unproven,
            forgotten: false,
        };
        self.0.insert((process, region), fill);
    }

    /// Takes in a result; `None` if the region was not under way.
    pub(super) fn end(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
    ) -> Option<PrefaultUnderWay> {
        self.0.remove(&(process, region))
    }

    pub(super) fn contains(&self, process: ProcessId, region: RegionAddr) -> bool {
        self.0.contains_key(&(process, region))
    }

    pub(super) fn mark_forgotten(&mut self, is_gone: impl Fn(ProcessId) -> bool) {
        for ((process, _), fill) in &mut self.0 {
            fill.forgotten |= is_gone(*process);
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    pub(super) fn count_of(&self, process: ProcessId) -> u64 {
        self.of_process(process).count() as u64
    }

    /// How many of them are filled for unproven streams.
    pub(super) fn count_unproven(&self, process: ProcessId) -> u32 {
        let unproven = self
            .of_process(process)
            .filter(|fill| fill.unproven)
            .count();
        u32::try_from(unproven).unwrap_or(u32::MAX)
    }

    fn of_process(&self, process: ProcessId) -> impl Iterator<Item = &PrefaultUnderWay> {
        let all = self.0.iter();
        let of_process = all.filter(move |((owner, _), _)| *owner == process);
        of_process.map(|(_, fill)| fill).filter(|f| !f.forgotten)
    }
}
