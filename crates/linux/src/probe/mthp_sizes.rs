//! Tries on a throw-away child whether first touches can get pages of the sizes below a huge page.

use super::KernelCheckResult;
use super::probe_child::{BlockTouchResult, ProbeChild};
use crate::error::Result;
use crate::machine_lease::thp_settings::{KernelSettingsGuard, THP_DIR};
use crate::page_sizes::{
    PageSizeSetting, ThpMode, page_size_enabled_file, read_page_size_settings,
};
use hawkeye_policy::saturating_cast::nanos_of_duration;
use hawkeye_policy::{PageOrder, PageOrderSet};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A page size, with its setting and the results of its try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageSizeFacts {
    /// The state before the try.
    #[serde(flatten)]
    pub found: PageSizeSetting,
    /// Whether one touch maps a whole page of this size, in memory that is advised for huge pages.
    pub tried: KernelCheckResult,
    /// Time of the first touch of a page, in nanoseconds; 0 if it was not tried.
    pub first_touch_ns: u64,
    /// Time to touch all base pages of one, in nanoseconds.
    pub touched_ns: u64,
    /// The same time with base pages.
    pub base_touched_ns: u64,
}

/// Tries each available size below that of a huge page; none on kernels before 6.8. A size that is
/// on for no memory is switched to `madvise` for some milliseconds. Without `settings` (another
/// program manages the machine) nothing is tried.
pub fn try_mthp_sizes(
    mut settings: Option<&mut KernelSettingsGuard>,
) -> Result<Vec<PageSizeFacts>> {
    let thp = Path::new(THP_DIR);
    let child = ProbeChild::spawn()?;
    let mut facts = Vec::new();
    let is_small = |found: &PageSizeSetting| found.order < PageOrder::HUGE;
    for found in read_page_size_settings(thp).into_iter().filter(is_small) {
        let order = found.order;
        let switched = match (&mut settings, found.given_to) {
            (_, Some(ThpMode::Madvise | ThpMode::Always)) => Ok(()),
            (Some(settings), _) => settings
                .set(&page_size_enabled_file(thp, order), ThpMode::Madvise.into())
                .map_err(|error| error.to_string()),
            (None, _) => {
                Err("the check changes a system-wide setting, and another manager is running"
                    .into())
            }
        };
        let mut size = PageSizeFacts {
            found,
            tried: KernelCheckResult::Works,
            first_touch_ns: 0,
            touched_ns: 0,
            base_touched_ns: 0,
        };
        if let Err(why) = switched {
            size.tried = KernelCheckResult::NotTried(why);
        } else {
            let advised = child.touch_blocks(order, true);
            // Whatever the result.
            if let Some(settings) = &mut settings {
                settings.put_back(&page_size_enabled_file(thp, order))?;
            }
            let advised = advised?;
            size.tried = check_one_touch_maps_page(order, advised);
            if let Some(touched) = advised {
                size.first_touch_ns = nanos_of_duration(touched.first);
                size.touched_ns = nanos_of_duration(touched.all);
            }
            if let Some(base) = child.touch_blocks(order, false)? {
                size.base_touched_ns = nanos_of_duration(base.all);
            }
        }
        facts.push(size);
    }
    Ok(facts)
}

fn check_one_touch_maps_page(
    order: PageOrder,
    touched: Option<BlockTouchResult>,
) -> KernelCheckResult {
    match touched {
        None => KernelCheckResult::Fails("a child could not map memory".into()),
        Some(touched) if touched.by_one_touch == order.pages() => KernelCheckResult::Works,
        Some(touched) => KernelCheckResult::Fails(format!(
            "one touch mapped {} of {} base pages",
            touched.by_one_touch,
            order.pages()
        )),
    }
}

/// The sizes that were seen to work.
pub fn working_page_sizes(facts: &[PageSizeFacts]) -> PageOrderSet {
    let works = facts.iter().filter(|size| size.tried.works());
    works.map(|size| size.found.order).collect()
}

/// Costs of first touches, from the times of two sizes.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct FirstTouchCosts {
    /// Cost of a fault that maps one page, without zeroing it, in nanoseconds.
    pub fault_ns: f64,
    /// Cost of zeroing a base page, in nanoseconds.
    pub zero_base_ns: f64,
    /// Cost of the first touch of a base page that is mapped already, in nanoseconds. It includes a
    /// page walk and, where a hypervisor shadows page tables, an exit to it.
    pub touch_ns: f64,
}

impl FirstTouchCosts {
    /// Whether all times are above 0.
    pub(crate) fn is_sound(self) -> bool {
        let all = [self.fault_ns, self.zero_base_ns, self.touch_ns];
        all.into_iter().all(|ns| ns > 0.0 && ns.is_finite())
    }
}

/// Costs from the times of the largest size. A base page takes one fault and one zeroing. A page of
/// the largest size takes one fault and one zeroing per base page in it. The other touches of that
/// page are touches alone. `None` if no size works, or if noise exceeds the costs.
pub fn derive_first_touch_costs(facts: &[PageSizeFacts]) -> Option<FirstTouchCosts> {
    let largest = facts.iter().rev().find(|size| size.tried.works())?;
    let pages = largest.found.order.pages() as f64;
    let by_base = largest.base_touched_ns as f64 / pages;
    let first = largest.first_touch_ns as f64;
    let zero_base_ns = (first - by_base) / (pages - 1.0);
    let costs = FirstTouchCosts {
        fault_ns: by_base - zero_base_ns,
        zero_base_ns,
        touch_ns: (largest.touched_ns as f64 - first) / (pages - 1.0),
    };
    costs.is_sound().then_some(costs)
}

#[cfg(test)]
pub(super) mod tests;
