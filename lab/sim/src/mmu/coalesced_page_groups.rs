//! Groups of neighbouring pages that one TLB entry can hold.

use super::error::MmuError;
use serde::{Deserialize, Serialize};

/// Aligned neighbours that one TLB entry can hold, each with its own page-table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoalescedPageGroup {
    /// log2 of the number of pages: 2 to 6 for base pages (4 is 64 KiB), 1 to 6 for huge pages.
    pub order: u32,
    /// Condition for one entry.
    pub condition: TlbGroupCondition,
    /// Whether the first TLB level holds a group as one entry too, not page by page.
    pub in_l1: bool,
}

/// What makes neighbouring pages one TLB entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlbGroupCondition {
    /// The walker reads the page-table line that it has loaded and sees contiguous frames and equal
    /// attributes, access bits included: AMD. Each page keeps its access bit. Neighbours become one
    /// entry once all of them have it set.
    Contiguous,
    /// The kernel has marked the entries of all of them: the contiguous bit of Arm, N of RISC-V's
    /// Svnapot. To software they have one access bit. The walker may set the bit of any of them,
    /// and kernels read all and clear all (Linux, `arch/arm64/mm/contpte.c`: `contpte_ptep_get`,
    /// `contpte_ptep_test_and_clear_young`).
    Marked,
}

/// The groups that a processor supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoalescedPageGroups {
    /// Of base pages. They are in the same TLBs as base pages, one entry each.
    pub base: Option<CoalescedPageGroup>,
    /// Of huge pages. They are in the same TLBs as huge pages.
    pub huge: Option<CoalescedPageGroup>,
}

impl CoalescedPageGroups {
    /// No groups.
    pub const NONE: Self = Self { base: None, huge: None };

    /// Rejects orders out of range, and unmarked groups of huge pages; errors name `owner`.
    pub(crate) fn check(&self, owner: &'static str) -> Result<(), MmuError> {
        let base = self.base.is_none_or(|base| (2..=6).contains(&base.order));
        let huge = self.huge.is_none_or(|huge| {
            (1..=6).contains(&huge.order) && huge.condition == TlbGroupCondition::Marked
        });
        (base && huge).then_some(()).ok_or(MmuError::Processor {
            processor: owner,
            part: "a group of pages",
            allowed: "of order 2 to 6 of base pages, 1 to 6 and marked of huge pages",
        })
    }
}
