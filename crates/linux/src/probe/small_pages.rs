//! Whether first touches can be given pages of the sizes below that of a huge page, tried on a throw-away child.

use super::facts::Checked;
use super::throw_away::{ThrowAway, Touched};
use crate::error::LinuxError;
use crate::page_sizes::{GivenTo, SizeState, setting_file, small, state};
use crate::thp_settings::{SettingsGuard, THP_DIR};
use hawkeye_policy::{PageOrder, PageOrders};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// A page size, as it was found and as it was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SizeFacts {
    /// As found.
    #[serde(flatten)]
    pub found: SizeState,
    /// Whether one touch maps all of such a page, of memory for which huge pages are asked.
    pub tried: Checked,
    /// How long it takes until all base pages of one are touched, in nanoseconds; 0 where it was not tried.
    pub touched_ns: u64,
    /// The same by base pages.
    pub base_touched_ns: u64,
}

/// What first touches cost, out of the times of two sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TouchCosts {
    /// A fault that maps one base page, without zeroing it.
    pub base_fault: Duration,
    /// Zeroing a base page.
    pub zero_base: Duration,
}

/// Tries each size that there is under that of a huge page; none on kernels before 6.8. A size is switched to `madvise` for some
/// milliseconds where it is on for nobody; without `settings` (somebody else manages the machine) nothing is tried.
///
/// # Errors
/// No child process could be started.
pub fn try_sizes(mut settings: Option<&mut SettingsGuard>) -> Result<Vec<SizeFacts>, LinuxError> {
    let thp = Path::new(THP_DIR);
    let child = ThrowAway::spawn()?;
    let mut facts = Vec::new();
    for found in small(thp).iter().filter_map(|order| state(thp, order)) {
        let order = found.order;
        let switched = match (&mut settings, found.given_to) {
            (_, Some(GivenTo::Advised | GivenTo::Everybody)) => Ok(()),
            (Some(settings), _) => settings
                .set(&setting_file(thp, order), GivenTo::Advised.word())
                .map_err(|error| error.to_string()),
            (None, _) => Err("it takes a system-wide setting, and another manager is running".into()),
        };
        facts.push(match switched {
            Err(why) => SizeFacts {
                found,
                tried: Checked::NotTried(why),
                touched_ns: 0,
                base_touched_ns: 0,
            },
            Ok(()) => {
                let advised = child.touch_blocks(order, true);
                // Whatever came of it.
                if let Some(settings) = &mut settings {
                    settings.put_back(&setting_file(thp, order))?;
                }
                let ns = |touched: Option<Touched>| {
                    touched.map_or(0, |touched| touched.all.as_nanos() as u64)
                };
                let (advised, base) = (advised?, child.touch_blocks(order, false)?);
                SizeFacts {
                    found,
                    tried: judge(order, advised),
                    touched_ns: ns(advised),
                    base_touched_ns: ns(base),
                }
            }
        });
    }
    Ok(facts)
}

fn judge(order: PageOrder, touched: Option<Touched>) -> Checked {
    match touched {
        None => Checked::Fails("a child could not map memory".into()),
        Some(touched) if touched.by_one_touch == order.pages() => Checked::Works,
        Some(touched) => Checked::Fails(format!(
            "one touch mapped {} of {} base pages",
            touched.by_one_touch,
            order.pages()
        )),
    }
}

/// The sizes that were seen to work.
pub fn working(facts: &[SizeFacts]) -> PageOrders {
    let works = facts.iter().filter(|size| size.tried.works());
    works.map(|size| size.found.order).collect()
}

/// What a touch costs with one fault for each base page, and with one for as many as there are in the largest size: the
/// difference is faults, the rest zeroing. `None` where no size works, or noise was greater than that.
pub fn touch_costs(facts: &[SizeFacts]) -> Option<TouchCosts> {
    let largest = facts.iter().rev().find(|size| size.tried.works())?;
    let pages = largest.found.order.pages() as f64;
    let by_base = largest.base_touched_ns as f64 / pages;
    let by_large = largest.touched_ns as f64 / pages;
    // by_base = fault + zero; by_large = fault / pages + zero.
    let fault = (by_base - by_large) * pages / (pages - 1.0);
    let zero = by_base - fault;
    if fault > 0.0 && zero > 0.0 {
        Some(TouchCosts {
            base_fault: Duration::from_nanos(fault as u64),
            zero_base: Duration::from_nanos(zero as u64),
        })
    } else {
        None
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::page_sizes::SizeCounters;

    pub(in crate::probe) fn size(order: u8, tried: Checked, ns: (u64, u64)) -> SizeFacts {
        let order = PageOrder::new(order).expect("a size");
        SizeFacts {
            found: SizeState {
                order,
                page_bytes: order.bytes(),
                setting: "never".into(),
                given_to: Some(GivenTo::Nobody),
                counters: SizeCounters::default(),
            },
            tried,
            touched_ns: ns.0,
            base_touched_ns: ns.1,
        }
    }

    #[test]
    fn costs_are_those_that_make_both_times() {
        // 300 ns a fault, 200 ns to zero a page.
        let time = |faults: u64, pages: u64| faults * 300 + pages * 200;
        let facts = [
            size(4, Checked::Works, (time(1, 16), time(16, 16))),
            size(8, Checked::Works, (time(1, 256), time(256, 256))),
            size(9, Checked::Fails("no".into()), (0, 0)),
        ];
        let costs = touch_costs(&facts).expect("there are some");
        let near = |found: Duration, ns: i128| (found.as_nanos() as i128 - ns).abs() <= 2;
        assert!(near(costs.base_fault, 300) && near(costs.zero_base, 200), "{costs:?}");
        assert_eq!(working(&facts).to_string(), "64 KiB, 1 MiB");
    }

    #[test]
    fn a_size_that_is_slower_than_base_pages_tells_no_costs() {
        assert_eq!(touch_costs(&[size(4, Checked::Works, (9000, 8000))]), None);
        assert_eq!(touch_costs(&[]), None);
    }

    #[test]
    fn one_touch_must_map_all_of_it() {
        let touched = |by_one_touch| {
            Some(Touched {
                by_one_touch,
                all: Duration::ZERO,
            })
        };
        assert!(judge(PageOrder::CONTIGUOUS, touched(16)).works());
        assert_eq!(
            judge(PageOrder::CONTIGUOUS, touched(1)),
            Checked::Fails("one touch mapped 1 of 16 base pages".into())
        );
        assert!(!judge(PageOrder::CONTIGUOUS, None).works());
    }
}
