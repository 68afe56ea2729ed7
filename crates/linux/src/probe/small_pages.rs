//! Whether first touches can be given pages of the sizes below that of a huge page, tried on a throw-away child.

use super::checked::Checked;
use super::throw_away::{ThrowAway, Touched};
use super::touch_costs::TouchCosts;
use crate::error::Result;
use crate::page_sizes::{GivenTo, SizeState, setting_file, small, state};
use crate::takeover::thp_settings::{SettingsGuard, THP_DIR};
use hawkeye_policy::whole::nanos_of;
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
    /// How long the first touch of one takes, in nanoseconds; 0 where it was not tried.
    pub first_touch_ns: u64,
    /// How long it takes until all base pages of one are touched.
    pub touched_ns: u64,
    /// The same by base pages.
    pub base_touched_ns: u64,
}

/// Tries each size that there is under that of a huge page; none on kernels before 6.8. A size is switched to `madvise` for some
/// milliseconds where it is on for nobody; without `settings` (somebody else manages the machine) nothing is tried.
///
/// # Errors
/// No child process could be started.
pub fn try_sizes(mut settings: Option<&mut SettingsGuard>) -> Result<Vec<SizeFacts>> {
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
            (None, _) => {
                Err("it takes a system-wide setting, and another manager is running".into())
            }
        };
        facts.push(match switched {
            Err(why) => SizeFacts {
                found,
                tried: Checked::NotTried(why),
                first_touch_ns: 0,
                touched_ns: 0,
                base_touched_ns: 0,
            },
            Ok(()) => {
                let advised = child.touch_blocks(order, true);
                // Whatever came of it.
                if let Some(settings) = &mut settings {
                    settings.put_back(&setting_file(thp, order))?;
                }
                let ns = |touched: Option<Touched>, time: fn(Touched) -> Duration| {
                    touched.map_or(0, |touched| nanos_of(time(touched)))
                };
                let (advised, base) = (advised?, child.touch_blocks(order, false)?);
                SizeFacts {
                    found,
                    tried: judge(order, advised),
                    first_touch_ns: ns(advised, |touched| touched.first),
                    touched_ns: ns(advised, |touched| touched.all),
                    base_touched_ns: ns(base, |touched| touched.all),
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

/// A base page takes a fault and zeroing it, a page of the largest size one fault and zeroing as many as it holds; what it takes to
/// touch the others of these is touches alone. `None` where no size works, or noise was greater than that.
pub fn touch_costs(facts: &[SizeFacts]) -> Option<TouchCosts> {
    let largest = facts.iter().rev().find(|size| size.tried.works())?;
    let pages = largest.found.order.pages() as f64;
    let by_base = largest.base_touched_ns as f64 / pages;
    let first = largest.first_touch_ns as f64;
    let zero_base_ns = (first - by_base) / (pages - 1.0);
    let fault_ns = by_base - zero_base_ns;
    let touch_ns = (largest.touched_ns as f64 - first) / (pages - 1.0);
    let costs = [fault_ns, zero_base_ns, touch_ns];
    costs.iter().all(|ns| *ns > 0.0).then_some(TouchCosts {
        fault_ns,
        zero_base_ns,
        touch_ns,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::page_sizes::SizeCounters;

    /// `ns`: of one touch, of all touches, and of all by base pages.
    pub(in crate::probe) fn size(order: u8, tried: Checked, ns: [u64; 3]) -> SizeFacts {
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
            first_touch_ns: ns[0],
            touched_ns: ns[1],
            base_touched_ns: ns[2],
        }
    }

    #[test]
    fn costs_are_those_that_make_both_times() {
        // 300 ns a fault, 200 ns to zero a page, 30 ns a touch of one that is there.
        let times = |pages: u64| {
            let first = 300 + 200 * pages;
            [first, first + 30 * (pages - 1), 500 * pages]
        };
        let facts = [
            size(4, Checked::Works, times(16)),
            size(8, Checked::Works, times(256)),
            size(9, Checked::Fails("no".into()), [0; 3]),
        ];
        let costs = touch_costs(&facts).expect("there are some");
        let near = |found: f64, ns: f64| (found - ns).abs() < 0.01;
        assert!(near(costs.fault_ns, 300.0), "{costs:?}");
        assert!(near(costs.zero_base_ns, 200.0), "{costs:?}");
        assert!(near(costs.touch_ns, 30.0), "{costs:?}");
        assert_eq!(working(&facts).to_string(), "64 KiB, 1 MiB");
    }

    #[test]
    fn times_that_make_no_sense_tell_no_costs() {
        let noise = size(4, Checked::Works, [400, 9000, 8000]);
        assert_eq!(touch_costs(&[noise]), None);
        assert_eq!(touch_costs(&[]), None);
    }

    #[test]
    fn one_touch_must_map_all_of_it() {
        let touched = |by_one_touch| {
            Some(Touched {
                by_one_touch,
                first: Duration::ZERO,
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
