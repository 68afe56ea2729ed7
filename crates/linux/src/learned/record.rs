//! What is kept of one program.

use super::executable::Executable;
use hawkeye_policy::{PageOrder, PageOrders};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use thiserror::Error;

/// Version of the format.
const VERSION: u32 = 1;

/// What was learned of a program in all its starts. Figures are those of the last start but where that is said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    version: u32,
    /// Which program.
    pub executable: Executable,
    /// How often it was managed from its start on, for long enough to tell.
    pub starts: u32,
    /// When that last ended, in seconds since 1970.
    pub last_seen_s: u64,
    /// How long it was managed, in seconds.
    pub managed_s: f64,
    /// Sizes at first touches, in bytes, that the policy has held to be best for most of the time; none: base pages. `None`: it
    /// could not choose.
    pub fault_sizes_bytes: Option<Vec<u64>>,
    /// In so many starts, one after the other, these were best: how sure that is.
    pub confirmed: u32,
    /// What translation cost it when last seen, in per cent of its time.
    pub overhead_percent: Option<f64>,
    /// Share of its memory that was under huge pages when last seen (0-1).
    pub huge_share: f64,
    /// Most memory that it had.
    pub resident_bytes: u64,
    /// Regions promoted.
    pub promoted: u64,
    /// Huge pages split and taken back: promoted, or filled, in vain.
    pub split: u64,
    /// Pages larger than base pages when last seen, by their size in bytes.
    pub pages: BTreeMap<u64, u64>,
    /// Memory in whole regions that it had filled when it was first looked at, in bytes: the least of all starts. 0 where it fills its
    /// regions sparsely.
    pub filled_at_start_bytes: u64,
}

/// Why a record counts as none, to follow the file's name.
#[derive(Debug, Error)]
pub(super) enum Unreadable {
    #[error("can't be read ({0})")]
    Io(#[from] io::Error),
    #[error("is damaged ({0}); it is written anew when the program ends")]
    Damaged(#[from] serde_json::Error),
    #[error(
        "is of version {0}, and this program knows {VERSION}: it is written anew when the program ends"
    )]
    Version(u32),
    #[error("is no record: it is too long")]
    TooLong,
}

impl Record {
    /// Nothing is known yet.
    pub fn new(executable: Executable) -> Self {
        Self {
            version: VERSION,
            executable,
            starts: 0,
            last_seen_s: 0,
            managed_s: 0.0,
            fault_sizes_bytes: None,
            confirmed: 0,
            overhead_percent: None,
            huge_share: 0.0,
            resident_bytes: 0,
            promoted: 0,
            split: 0,
            pages: BTreeMap::new(),
            filled_at_start_bytes: 0,
        }
    }

    pub(super) fn parse(text: &[u8]) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Version { version } = serde_json::from_slice(text)?;
        if version != VERSION {
            return Err(Unreadable::Version(version));
        }
        Ok(serde_json::from_slice(text)?)
    }

    /// The sizes that were best; `None` where that was never told.
    pub fn fault_sizes(&self) -> Option<PageOrders> {
        let sizes = self.fault_sizes_bytes.as_ref()?;
        Some(
            sizes
                .iter()
                .filter_map(|bytes| PageOrder::from_bytes(*bytes))
                .collect(),
        )
    }

    /// Notes the sizes that were best in a start that is over.
    pub(super) fn note_fault_sizes(&mut self, best: Option<PageOrders>) {
        let Some(best) = best else {
            return;
        };
        self.confirmed = if self.fault_sizes() == Some(best) {
            self.confirmed.saturating_add(1)
        } else {
            1
        };
        self.fault_sizes_bytes = Some(best.iter().map(PageOrder::bytes).collect());
    }

    /// How much of it may be filled as soon as it starts: what every start has filled, once there were two.
    pub fn warm_bytes(&self) -> u64 {
        if self.starts >= 2 {
            self.filled_at_start_bytes
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::executable::Build;
    use super::*;

    fn record() -> Record {
        Record::new(Executable {
            path: "/bin/a".into(),
            build: Build::File {
                inode: 1,
                changed_s: -1,
                bytes: 9,
            },
        })
    }

    #[test]
    fn sizes_are_confirmed_start_by_start() {
        let small = PageOrders::NONE.with(PageOrder::CONTIGUOUS);
        let mut record = record();
        assert_eq!(record.fault_sizes(), None);
        for (best, confirmed) in [(Some(small), 1), (Some(small), 2), (None, 2)] {
            record.note_fault_sizes(best);
            assert_eq!(record.confirmed, confirmed);
            assert_eq!(record.fault_sizes(), Some(small));
        }
        record.note_fault_sizes(Some(PageOrders::NONE));
        assert_eq!(record.fault_sizes(), Some(PageOrders::NONE));
        assert_eq!(record.confirmed, 1);
    }

    #[test]
    fn one_start_is_not_enough_to_fill_ahead() {
        let mut record = record();
        record.filled_at_start_bytes = 1 << 30;
        for (starts, warm) in [(0, 0), (1, 0), (2, 1 << 30)] {
            record.starts = starts;
            assert_eq!(record.warm_bytes(), warm);
        }
    }

    #[test]
    fn text_comes_back_as_it_went() {
        let mut record = record();
        record.pages.insert(65_536, 3);
        record.overhead_percent = Some(12.5);
        let text = serde_json::to_vec(&record).expect("is JSON");
        assert_eq!(Record::parse(&text).ok(), Some(record));
        let newer = br#"{"version": 2, "anything": 1}"#;
        let said = Record::parse(newer).map_err(|error| error.to_string());
        assert!(said.is_err_and(|why| why.contains("of version 2")));
    }
}
