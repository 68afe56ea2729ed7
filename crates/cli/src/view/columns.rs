//! A process's regions in columns.

use super::{Column, RegionState};
use hawkeye_policy::RegionSample;

/// Divides regions, which ascend by address, into `most` columns of about as many each.
pub(super) fn columns(
    regions: &[RegionSample],
    most: usize,
    state: impl Fn(&RegionSample) -> RegionState,
) -> Vec<Column> {
    let count = most.min(regions.len());
    let mut before = None;
    (0..count)
        .map(|n| {
            let part = &regions[n * regions.len() / count..(n + 1) * regions.len() / count];
            let mut column = Column {
                start: part.first().map(|r| r.region.start()),
                end: part.last().map(|r| r.region.end()),
                ..Column::default()
            };
            column.after_gap = before.is_some() && before != column.start;
            before = column.end;
            for region in part {
                let state = state(region);
                column.regions += 1;
                column.huge += u64::from(state == RegionState::Huge);
                column.candidates += u64::from(state == RegionState::Candidate);
                column.present_pages += u64::from(region.present);
                column.accessed_pages += u64::from(region.accessed);
                column.walks_per_s += u64::from(region.walks_per_s);
            }
            column
        })
        .collect()
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
            order: PageOrder::of_region(index % 2 == 0),
            walks_per_s: 7,
            ..RegionSample::untouched(RegionAddr::containing(index << 21))
        };
        indices.iter().map(region).collect()
    }

    fn state(region: &RegionSample) -> RegionState {
        if region.is_huge() {
            RegionState::Huge
        } else {
            RegionState::Candidate
        }
    }

    #[test]
    fn every_region_is_in_one_column() {
        let all = regions(&[1, 2, 3, 4, 10, 11, 12]);
        for most in [1, 2, 3, 7, 80] {
            let strip = columns(&all, most, state);
            assert_eq!(strip.len(), most.min(7));
            let sum = |part: fn(&Column) -> u64| strip.iter().map(part).sum::<u64>();
            assert_eq!(sum(|c| c.regions), 7);
            assert_eq!((sum(|c| c.huge), sum(|c| c.candidates)), (4, 3));
            assert_eq!(
                (sum(|c| c.present_pages), sum(|c| c.walks_per_s)),
                (3500, 49)
            );
            assert_eq!(strip[0].start, Some(1 << 21));
            assert_eq!(strip[strip.len() - 1].end, Some(13 << 21));
        }
        assert!(columns(&[], 80, state).is_empty());
    }

    #[test]
    fn gaps_are_marked() {
        let gaps = |most| -> Vec<bool> {
            let strip = columns(&regions(&[1, 2, 10, 11]), most, state);
            strip.iter().map(|c| c.after_gap).collect()
        };
        assert_eq!(gaps(4), [false, false, true, false]);
        assert_eq!(gaps(2), [false, true]);
    }
}
