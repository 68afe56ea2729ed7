//! Page sizes that anonymous memory can get at its first touch ("multi-size THP", since Linux 6.8):
//! which sizes exist, which memory gets them, and how many pages were given.
//!
//! Each size has a folder of its own (Documentation/admin-guide/mm/transhuge.rst). Its setting
//! applies to every process on the machine: it cannot be set for one process from outside (up to
//! 7.2).
//!
//! ```text
//!  arch: the processor's sizes      --> page_size_control <--> machine: sizes on offer, and wanted
//!                                        |-- page_size_switches         turns sizes on and off
//!                                        `-- mapped_page_size_sampler   looks at the processes
//!                                              `-- mapped_page_sizes    counts the pages of one
//! ```
//!
//! Read [`PageSizeSetting`] in this file first, then `page_size_control`.

pub(crate) mod page_size_control;

mod mapped_page_size_sampler;
mod mapped_page_sizes;
mod page_size_switches;

pub(crate) use mapped_page_size_sampler::MappedPageSizeSampler;
pub use mapped_page_size_sampler::{ObservedPageSize, ObservedPageSizes};
pub use mapped_page_sizes::{MappedPageSizes, read_mapped_page_sizes};
pub use page_size_switches::PageSizeSwitches;

use crate::machine_lease::thp_settings::read_setting;
use hawkeye_policy::{PageOrder, PageOrderSet};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// Memory that gets pages of a size at first touches.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "lowercase")]
pub enum ThpMode {
    /// No memory.
    #[default]
    #[serde(rename = "nobody")]
    Never,
    /// Memory that its program advised with `MADV_HUGEPAGE`.
    #[serde(rename = "advised")]
    Madvise,
    /// All memory except what its program excludes (`MADV_NOHUGEPAGE`,
    /// `PR_SET_THP_DISABLE`).
    #[serde(rename = "everybody")]
    Always,
}

/// A size and its setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageSizeSetting {
    /// The size, as an order.
    pub order: PageOrder,
    /// The size in bytes.
    pub page_bytes: u64,
    /// The value of its `enabled`: `always`, `inherit`, `madvise` or `never`.
    pub setting: String,
    /// The effect of the setting, where known: `inherit` takes the setting for all sizes.
    pub given_to: Option<ThpMode>,
    /// Counts since the machine started.
    pub counters: PageSizeCounters,
}

/// The kernel's counters of a size, for the whole machine: counts since it started, except
/// `nr_anon` and `nr_anon_partially_mapped`. Counters that the kernel does not have are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageSizeCounters {
    /// Pages given at first touches.
    pub anon_fault_alloc: Option<u64>,
    /// First touches for which no page of the size was available.
    pub anon_fault_fallback: Option<u64>,
    /// First touches without a page of the size because a cgroup was at its limit.
    pub anon_fault_fallback_charge: Option<u64>,
    /// Pages of anonymous memory that exist now.
    pub nr_anon: Option<u64>,
    /// Of these, pages of which parts are unmapped.
    pub nr_anon_partially_mapped: Option<u64>,
    /// Pages swapped out whole.
    pub swpout: Option<u64>,
    /// Pages split.
    pub split: Option<u64>,
}

impl PageSizeCounters {
    /// Reads a `stats` folder.
    fn read(folder: &Path) -> Self {
        let count = |name| read_setting(&folder.join(name)).ok()?.parse().ok();
        Self {
            anon_fault_alloc: count("anon_fault_alloc"),
            anon_fault_fallback: count("anon_fault_fallback"),
            anon_fault_fallback_charge: count("anon_fault_fallback_charge"),
            nr_anon: count("nr_anon"),
            nr_anon_partially_mapped: count("nr_anon_partially_mapped"),
            swpout: count("swpout"),
            split: count("split"),
        }
    }
}

/// Sizes with a switch of their own under `thp`, ascending; none on kernels before 6.8.
pub fn available_mthp_sizes(thp: &Path) -> PageOrderSet {
    let entries = fs::read_dir(thp).into_iter().flatten().flatten();
    let order = |name: &str| {
        let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
        PageOrder::from_bytes(kib.parse::<u64>().ok()?.checked_mul(1024)?)
    };
    entries
        .filter_map(|entry| order(entry.file_name().to_str()?))
        // A size for shared memory only (for example 8 KiB) has no switch for anonymous memory.
        .filter(|order| page_size_enabled_file(thp, *order).exists())
        .collect()
}

/// The switch of a size.
pub fn page_size_enabled_file(thp: &Path, order: PageOrder) -> PathBuf {
    page_size_folder(thp, order).join("enabled")
}

fn page_size_folder(thp: &Path, order: PageOrder) -> PathBuf {
    thp.join(format!("hugepages-{}kB", order.bytes() >> 10))
}

/// The setting of a size and its effect; `None` if there is no such size.
pub fn read_page_size_setting(thp: &Path, order: PageOrder) -> Option<PageSizeSetting> {
    let setting = read_setting(&page_size_enabled_file(thp, order)).ok()?;
    let for_all = || read_setting(&thp.join("enabled")).ok()?.parse().ok();
    let given_to = match setting.as_str() {
        "inherit" => for_all(),
        word => word.parse().ok(),
    };
    Some(PageSizeSetting {
        order,
        page_bytes: order.bytes(),
        setting,
        given_to,
        counters: PageSizeCounters::read(&page_size_folder(thp, order).join("stats")),
    })
}

/// The states of all sizes.
pub fn read_page_size_settings(thp: &Path) -> Vec<PageSizeSetting> {
    let orders = available_mthp_sizes(thp);
    orders.iter().filter_map(|order| read_page_size_setting(thp, order)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_lease::thp_settings::testing::TestFolder;

    #[test]
    fn sizes_are_those_with_a_switch_and_inherit_what_is_set_for_all() {
        let folder = TestFolder::new("page-sizes");
        folder.file("enabled", "always [madvise] never\n");
        let words = "always inherit madvise [never]\n";
        folder.file("hugepages-16kB/enabled", words);
        folder.file("hugepages-16kB/stats/anon_fault_alloc", "12\n");
        folder.file("hugepages-8kB/shmem_enabled", words);
        let inherits = "always [inherit] madvise never\n";
        folder.file("hugepages-2048kB/enabled", inherits);
        let found = read_page_size_settings(&folder.0);
        let summary = |s: &PageSizeSetting| (s.page_bytes >> 10, s.setting.clone(), s.given_to);
        let expected = [
            (16, "never".into(), Some(ThpMode::Never)),
            (2048, "inherit".into(), Some(ThpMode::Madvise)),
        ];
        assert_eq!(found.iter().map(summary).collect::<Vec<_>>(), expected);
        assert_eq!(found[0].counters.anon_fault_alloc, Some(12));
        let before_6_12 = found[0].counters.nr_anon;
        assert_eq!(before_6_12, None);
        assert_eq!(available_mthp_sizes(&folder.0).to_string(), "16 KiB, 2 MiB");
        assert!(available_mthp_sizes(Path::new("/nonexistent")).is_empty());
    }
}
