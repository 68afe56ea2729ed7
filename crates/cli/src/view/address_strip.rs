//! A process's address space as a strip.

use super::RegionPromotionState;
use super::region_state::region_promotion_state;
use hawkeye_manager::{LastSample, Machine, Manager};
use hawkeye_policy::{CoverageSource, RegionSample};
use serde::{Deserialize, Serialize};

/// The regions of a process in address order, in columns of about equal numbers of regions. Based
/// on its last sample and the promotions and splits since.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AddressStrip {
    pub pid: u32,
    pub uid: Option<u32>,
    /// Age of the sample; `None`: not yet sampled.
    pub age_s: Option<f64>,
    pub source: Option<CoverageSource>,
    pub columns: Vec<AddressStripColumn>,
}

/// Neighbouring regions of a process, without empty ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AddressStripColumn {
    /// First byte of the first region; `None`: this client may not know it.
    pub start: Option<u64>,
    pub end: Option<u64>,
    /// Whether there is a gap before this column, in which nothing is mapped or nothing is present.
    pub after_gap: bool,
    pub regions: u64,
    pub huge: u64,
    /// Of all regions, those that were accessed and may be promoted.
    pub candidates: u64,
    /// Of all regions, those of shared memory.
    pub shared_memory: u64,
    pub present_pages: u64,
    /// Base pages accessed in the last window; of a huge page, all or none.
    pub accessed_pages: u64,
    /// Page walks of base pages per second of CPU time, if the sampler sees them by region. Huge
    /// regions have none.
    pub walks_per_s: u64,
}

impl AddressStrip {
    pub const MOST_COLUMNS: u16 = 512;

    /// The same without addresses, for clients that may not know them.
    pub fn without_addresses(mut self) -> Self {
        for column in &mut self.columns {
            (column.start, column.end) = (None, None);
        }
        self
    }
}

/// The address space of a process in at most this many columns; `None` if it is not managed.
pub fn address_strip_of_process(
    manager: &Manager<impl Machine>,
    pid: u32,
    most: u16,
) -> Option<AddressStrip> {
    let process = *manager.processes().current.iter().find(|p| p.pid == pid)?;
    let seen = manager.last_samples().sample(process);
    let now = manager.machine().now();
    let most = most.clamp(1, AddressStrip::MOST_COLUMNS);
    let columns = |seen: &LastSample| {
        divide_into_strip_columns(&seen.sample.regions, most.into(), |region| {
            region_promotion_state(&manager.limits().regions, seen, region, now)
        })
    };
    Some(AddressStrip {
        pid,
        uid: manager.machine().describe(process).uid,
        age_s: seen.map(|seen| now.saturating_sub(seen.at).as_secs_f64()),
        source: seen.map(|seen| seen.sample.source),
        columns: seen.map(columns).unwrap_or_default(),
    })
}

/// Divides regions in address order into `most` columns of about equal size.
fn divide_into_strip_columns(
    regions: &[RegionSample],
    most: usize,
    state: impl Fn(&RegionSample) -> RegionPromotionState,
) -> Vec<AddressStripColumn> {
    let count = most.min(regions.len());
    let mut before = None;
    let column = |n: usize| {
        let part = &regions[n * regions.len() / count..(n + 1) * regions.len() / count];
        let start = part.first().map(|region| region.region.start());
        let mut column = AddressStripColumn {
            start,
            end: part.last().map(|region| region.region.end()),
            after_gap: before.is_some() && before != start,
            ..AddressStripColumn::default()
        };
        before = column.end;
        for region in part {
            let state = state(region);
            column.regions += 1;
            column.huge += u64::from(state == RegionPromotionState::Huge);
            column.candidates += u64::from(state == RegionPromotionState::Candidate);
            column.shared_memory += u64::from(region.file.is_some());
            column.present_pages += u64::from(region.present);
            column.accessed_pages += u64::from(region.accessed);
            // The figure of a huge page is what its accesses cost before its promotion.
            if state != RegionPromotionState::Huge {
                column.walks_per_s += u64::from(region.walks_per_s);
            }
        }
        column
    };
    (0..count).map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::{PageOrder, RegionAddr};

    fn regions(indices: &[u64]) -> Vec<RegionSample> {
        let region = |index: &u64| RegionSample {
            present: 500,
            accessed: 10,
            runs: 1,
            order: PageOrder::base_or_huge(index % 2 == 0),
            walks_per_s: 7,
            ..RegionSample::new_full_and_untouched(RegionAddr::containing(index << 21))
        };
        indices.iter().map(region).collect()
    }

    fn state(region: &RegionSample) -> RegionPromotionState {
        if region.is_huge() { RegionPromotionState::Huge } else { RegionPromotionState::Candidate }
    }

    #[test]
    fn every_region_is_in_one_column() {
        let all = regions(&[1, 2, 3, 4, 10, 11, 12]);
        for most in [1, 2, 3, 7, 80] {
            let strip = divide_into_strip_columns(&all, most, state);
            assert_eq!(strip.len(), most.min(7));
            let sum = |part: fn(&AddressStripColumn) -> u64| strip.iter().map(part).sum::<u64>();
            assert_eq!(sum(|c| c.regions), 7);
            assert_eq!((sum(|c| c.huge), sum(|c| c.candidates)), (4, 3));
            assert_eq!(sum(|c| c.present_pages), 3500);
            assert_eq!(sum(|c| c.walks_per_s), 21, "those of the three that are not huge");
            assert_eq!(strip[0].start, Some(1 << 21));
            assert_eq!(strip[strip.len() - 1].end, Some(13 << 21));
        }
        assert!(divide_into_strip_columns(&[], 80, state).is_empty());
    }

    #[test]
    fn gaps_are_marked() {
        let gaps = |most| -> Vec<bool> {
            let strip = divide_into_strip_columns(&regions(&[1, 2, 10, 11]), most, state);
            strip.iter().map(|c| c.after_gap).collect()
        };
        assert_eq!(gaps(4), [false, false, true, false]);
        assert_eq!(gaps(2), [false, true]);
    }
}
