//! Order and pace of khugepaged (`mm/khugepaged.c`).

use crate::budget::{RatePerSecond, TokenBucket};
use crate::file_region::FileRegion;
use crate::huge_page_reserve_planner::HugePageReadiness;
use crate::observation::{Observation, ProcessId, RegionSample};
use crate::page::RegionAddr;
use crate::policy::{ExplainPolicy, Policy, PolicyProperties};
use crate::promotion::{MeasuredPromotionCost, Promotion};
use crate::reason::Reason;
use crate::sample_kinds::SampleKinds;
use serde::Serialize;
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::time::Duration;

/// Regions of a batch: the kernel's default of `pages_to_scan`, 4096 base pages.
const BATCH_REGIONS: u32 = 8;
/// Time from the start of one batch to the start of the next: the kernel's default of
/// `scan_sleep_millisecs`. The batch itself takes khugepaged next to no time.
const BATCH_INTERVAL: Duration = Duration::from_secs(10);

/// How fast regions are promoted. Only successes count. A proposal is spent at once and given back
/// when it failed, so that any number of proposals can be under way.
#[derive(Debug)]
enum PromotionPacer {
    /// khugepaged's pace: a batch, then sleep.
    Batches {
        began: Option<Duration>,
        spent: u32,
    },
    PerSecond(TokenBucket),
}

impl PromotionPacer {
    fn new(rate: Option<RatePerSecond>) -> Self {
        match rate {
            Some(rate) => Self::PerSecond(TokenBucket::with_one_second_burst(rate)),
            None => Self::Batches { began: None, spent: 0 },
        }
    }

    fn take_promotion_token(&mut self, now: Duration) -> bool {
        match self {
            Self::Batches { began, spent } => {
                if began.is_none_or(|began| now >= began.saturating_add(BATCH_INTERVAL)) {
                    *began = Some(now);
                    *spent = 0;
                }
                let left = *spent < BATCH_REGIONS;
                *spent += u32::from(left);
                left
            }
            Self::PerSecond(bucket) => bucket.try_take_tokens(now, 1),
        }
    }

    fn give_back_promotion_token(&mut self) {
        match self {
            Self::Batches { spent, .. } => *spent = spent.saturating_sub(1),
            Self::PerSecond(bucket) => bucket.give_back_tokens(1),
        }
    }
}

/// khugepaged's order: the next populated region, first come first served, low to high addresses.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "rule", rename = "address-order")]
struct AddressOrderReason {
    present: u16,
}

impl fmt::Display for AddressOrderReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let present = self.present;
        write!(f, "next in address order, {present} base pages present")
    }
}

#[derive(Clone, Copy, Debug)]
struct ScanCursor {
    process: ProcessId,
    /// First address not yet scanned.
    address: u64,
}

#[derive(Clone, Copy, Debug)]
struct QueuedRegion {
    process: ProcessId,
    region: RegionAddr,
    present: u16,
    file: Option<FileRegion>,
}

/// First come, first served: one process fully before the next, from low to high addresses, then
/// from the first process again.
///
/// As in the kernel, the scan continues where it was when processes come, go and grow. A region
/// that appears behind the cursor, or was refused, waits for the next round. Unlike in the kernel,
/// passing over a region that cannot be promoted costs nothing.
#[derive(Debug)]
pub struct LinuxPolicy {
    pacer: PromotionPacer,
    /// Processes of the last observation, in order of arrival.
    order: Vec<ProcessId>,
    cursor: Option<ScanCursor>,
    /// What lies ahead of the scan, once around.
    queue: VecDeque<QueuedRegion>,
    /// Proposals without a result yet.
    proposed: HashSet<(ProcessId, RegionAddr)>,
}

impl LinuxPolicy {
    /// Starts at the first process and the lowest address. A `rate` replaces khugepaged's pace.
    pub fn new(rate: Option<RatePerSecond>) -> Self {
        Self {
            pacer: PromotionPacer::new(rate),
            order: Vec::new(),
            cursor: None,
            queue: VecDeque::new(),
            proposed: HashSet::new(),
        }
    }

    /// The queue is ordered by process, and the whole of it may be held.
    fn first_of_processes_not_held(&self, held: &HashSet<ProcessId>) -> Option<usize> {
        let mut looked_up: Option<(ProcessId, bool)> = None;
        self.queue.iter().position(|QueuedRegion { process, .. }| match looked_up {
            Some((same, is_held)) if same == *process => !is_held,
            _ => {
                let is_held = held.contains(process);
                looked_up = Some((*process, is_held));
                !is_held
            }
        })
    }

    /// The cursor among the processes that exist now. It stays in its own process if that is
    /// left. Else it moves to the start of the next process that is left, or of the first newcomer.
    fn cursor_in_remaining_processes(&self, processes: &[ProcessId]) -> Option<ScanCursor> {
        let cursor = self.cursor?;
        let after = self.order.iter().skip_while(|p| **p != cursor.process);
        let newcomers = processes.iter().filter(|p| !self.order.contains(p));
        let mut left = after.filter(|p| processes.contains(p)).chain(newcomers);
        let process = *left.next()?;
        let address = if process == cursor.process { cursor.address } else { 0 };
        Some(ScanCursor { process, address })
    }
}

impl Policy for LinuxPolicy {
    fn name(&self) -> &'static str {
        "linux"
    }

    fn sample_kinds(&self) -> SampleKinds {
        SampleKinds::POPULATION
    }

    fn properties(&self) -> PolicyProperties {
        PolicyProperties { limits_own_rate: true, ..PolicyProperties::USUAL }
    }

    fn observe(&mut self, observation: &Observation) {
        let order: Vec<ProcessId> = observation.processes.iter().map(|p| p.process).collect();
        self.cursor = self.cursor_in_remaining_processes(&order);
        let mut queue = Vec::new();
        let mut behind = 0;
        for sampled in &observation.processes {
            let process = sampled.process;
            let start = queue.len();
            // One present page is enough, as with the kernel's default of `max_ptes_none`, 511.
            let eligible = |s: &&RegionSample| !s.is_huge() && s.present > 0;
            for sample in sampled.regions.iter().filter(eligible) {
                let RegionSample { region, present, file, .. } = *sample;
                queue.push(QueuedRegion { process, region, present, file });
            }
            if let Some(cursor) = self.cursor.filter(|cursor| cursor.process == process) {
                let scanned = |w: &QueuedRegion| w.region.start() < cursor.address;
                behind = start + queue[start..].partition_point(scanned);
            }
        }
        queue.rotate_left(behind);
        self.queue = queue.into();
        self.order = order;
        // The manager dropped proposals that still have no result. They stay spent.
        self.proposed.clear();
    }

    fn pop_next_promotion(
        &mut self,
        now: Duration,
        _supply: HugePageReadiness,
        held: &HashSet<ProcessId>,
    ) -> Option<Promotion> {
        let next = self.first_of_processes_not_held(held)?;
        if !self.pacer.take_promotion_token(now) {
            return None;
        }
        let QueuedRegion { process, region, present, file } = self.queue.remove(next)?;
        let address = region.end();
        self.cursor = Some(ScanCursor { process, address });
        self.proposed.insert((process, region));
        let reason = Reason::new(AddressOrderReason { present });
        Some(Promotion::to_huge_page(process, region, present, file, reason))
    }

    fn on_promotion_result(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        cost: Option<MeasuredPromotionCost>,
    ) {
        if self.proposed.remove(&(process, region)) && cost.is_none() {
            self.pacer.give_back_promotion_token();
        }
    }
}

impl ExplainPolicy for LinuxPolicy {}

#[cfg(test)]
mod tests;
