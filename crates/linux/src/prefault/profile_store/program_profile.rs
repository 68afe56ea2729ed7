//! The record of one program.

use super::executable_identity::ExecutableIdentity;
use crate::machine_lease::own_files::{UnusableFileReason, parse_json_of_version};
use hawkeye_policy::{PageOrder, PageOrderSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the format. Version 1 had no user.
const VERSION: u32 = 2;
/// Upper bound of the number of page sizes.
const MOST_SIZES: usize = 64;

/// What was learned of a program in all its starts. Figures are those of the last start unless
/// stated otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramProfile {
    version: u32,
    /// Which program.
    pub executable: ExecutableIdentity,
    /// How often it was managed from its start on, for long enough to learn from.
    pub starts: u32,
    /// When the last of these ended, in seconds since 1970.
    pub last_seen_s: u64,
    /// How long it was managed, in seconds.
    pub managed_s: f64,
    /// Page sizes at first touches, in bytes, that the policy chose for most of the time. An empty
    /// list means base pages. `None`: the policy could not choose.
    pub fault_sizes_bytes: Option<Vec<u64>>,
    /// Consecutive starts in which these sizes were best. It shows how certain that is.
    pub confirmed: u32,
    /// Address translation overhead when last seen, in percent of its time.
    pub overhead_percent: Option<f64>,
    /// Share of its memory in huge pages when last seen (0-1).
    pub huge_share: f64,
    /// Most memory that it had, in bytes.
    pub resident_bytes: u64,
    /// Regions promoted.
    pub promoted: u64,
    /// Huge pages, promoted or filled, that were split and taken back.
    pub split: u64,
    /// Pages larger than base pages when last seen, by their size in bytes.
    pub pages: BTreeMap<u64, u64>,
    /// Memory in whole regions that it had filled when it was first sampled, in bytes: the least of
    /// all starts. 0 where it fills its regions sparsely.
    pub filled_at_start_bytes: u64,
}

impl ProgramProfile {
    /// A record of a program of which nothing is known yet.
    pub fn new(executable: ExecutableIdentity) -> Self {
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

    pub(super) fn parse(text: &[u8]) -> Result<Self, UnusableFileReason> {
        let record: Self = parse_json_of_version(text, VERSION)?;
        let out_of_range = |field| format!("{field} is out of range");
        match record.find_field_out_of_range() {
            Some(field) => Err(UnusableFileReason::Impossible(out_of_range(field))),
            None => Ok(record),
        }
    }

    /// The first field with a value that HawkEye never writes.
    fn find_field_out_of_range(&self) -> Option<&'static str> {
        let sizes = self.fault_sizes_bytes.as_deref().unwrap_or_default();
        let known = |bytes: &u64| PageOrder::from_bytes(*bytes).is_some();
        let percent = self.overhead_percent.unwrap_or_default();
        let is_time = self.managed_s.is_finite() && self.managed_s >= 0.0;
        let are_sizes = sizes.len() <= MOST_SIZES && sizes.iter().all(known);
        let fields = [
            ("managed_s", is_time),
            ("overhead_percent", (0.0..=100.0).contains(&percent)),
            ("huge_share", (0.0..=1.0).contains(&self.huge_share)),
            ("fault_sizes_bytes", are_sizes),
            ("pages", self.pages.len() <= MOST_SIZES),
        ];
        let wrong = fields.into_iter().find(|(_, in_range)| !in_range);
        wrong.map(|(field, _)| field)
    }

    /// The sizes that were best; `None` where no start has shown that.
    pub fn best_fault_sizes(&self) -> Option<PageOrderSet> {
        let sizes = self.fault_sizes_bytes.as_ref()?.iter();
        Some(sizes.filter_map(|it| PageOrder::from_bytes(*it)).collect())
    }

    /// Notes the sizes that were best in a start that has ended.
    pub(super) fn record_best_fault_sizes(&mut self, best: Option<PageOrderSet>) {
        let Some(best) = best else {
            return;
        };
        let is_same = self.best_fault_sizes() == Some(best);
        let before = if is_same { self.confirmed } else { 0 };
        self.confirmed = before.saturating_add(1);
        self.fault_sizes_bytes = Some(best.iter().map(PageOrder::bytes).collect());
    }

    /// Bytes to fill as soon as it starts: what every start has filled, once there were two.
    pub fn warm_start_bytes(&self) -> u64 {
        if self.starts < 2 { 0 } else { self.filled_at_start_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::super::executable_identity::BuildIdentity;
    use super::*;

    fn record() -> ProgramProfile {
        let mut executable = ExecutableIdentity::for_test("/bin/a");
        executable.build = BuildIdentity::File { inode: 1, changed_s: -1, bytes: 9 };
        ProgramProfile::new(executable)
    }

    #[test]
    fn sizes_are_confirmed_start_by_start() {
        let small = PageOrderSet::NONE.with(PageOrder::CONTIGUOUS);
        let mut record = record();
        assert_eq!(record.best_fault_sizes(), None);
        for (best, confirmed) in [(Some(small), 1), (Some(small), 2), (None, 2)] {
            record.record_best_fault_sizes(best);
            assert_eq!(record.confirmed, confirmed);
            assert_eq!(record.best_fault_sizes(), Some(small));
        }
        record.record_best_fault_sizes(Some(PageOrderSet::NONE));
        assert_eq!(record.best_fault_sizes(), Some(PageOrderSet::NONE));
        assert_eq!(record.confirmed, 1);
    }

    #[test]
    fn one_start_is_not_enough_to_fill_ahead() {
        let mut record = record();
        record.filled_at_start_bytes = 1 << 30;
        for (starts, warm) in [(0, 0), (1, 0), (2, 1 << 30)] {
            record.starts = starts;
            assert_eq!(record.warm_start_bytes(), warm);
        }
    }

    #[test]
    fn values_that_are_never_written_are_refused() {
        let with = |field: &str, value: serde_json::Value| {
            let mut all = serde_json::to_value(record()).expect("it is valid JSON");
            all[field] = value;
            ProgramProfile::parse(all.to_string().as_bytes()).map_err(|error| error.to_string())
        };
        assert!(with("huge_share", 1.into()).is_ok());
        for (field, value) in [
            ("huge_share", (-0.5).into()),
            ("overhead_percent", 1e300.into()),
            ("managed_s", (-1.0).into()),
            ("fault_sizes_bytes", serde_json::json!([5000])),
            ("fault_sizes_bytes", serde_json::json!(vec![65_536; 1000])),
        ] {
            let refused = with(field, value).expect_err(field);
            assert!(refused.contains(field), "{refused}");
        }
        for (field, value, why) in [
            ("starts", (-1).into(), "damaged"),
            ("resident_bytes", 1e30.into(), "damaged"),
            ("version", 3.into(), "has version 3"),
        ] {
            let refused = with(field, value).expect_err(field);
            assert!(refused.contains(why), "{refused}");
        }
        let deep = "[".repeat(60_000);
        assert!(ProgramProfile::parse(deep.as_bytes()).is_err());
    }

    proptest::proptest! {
        #[test]
        fn damaged_text_causes_no_panic(other: Vec<u8>, at in 0..600usize, byte: u8) {
            let _ = ProgramProfile::parse(&other);
            let mut text = serde_json::to_vec(&record()).expect("it is valid JSON");
            let at = at % text.len();
            text[at] = byte;
            if let Ok(record) = ProgramProfile::parse(&text) {
                let _ = (record.best_fault_sizes(), record.warm_start_bytes());
            }
        }
    }
}
