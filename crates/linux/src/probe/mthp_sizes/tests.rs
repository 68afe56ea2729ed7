use super::*;
use crate::page_sizes::PageSizeCounters;
use std::time::Duration;

/// `ns`: times of one touch, of all touches, and of all touches with base pages.
pub(in crate::probe) fn size(order: u8, tried: KernelCheckResult, ns: [u64; 3]) -> PageSizeFacts {
    let order = PageOrder::new(order).expect("the order is a page size");
    PageSizeFacts {
        found: PageSizeSetting {
            order,
            page_bytes: order.bytes(),
            setting: "never".into(),
            given_to: Some(ThpMode::Never),
            counters: PageSizeCounters::default(),
        },
        tried,
        first_touch_ns: ns[0],
        touched_ns: ns[1],
        base_touched_ns: ns[2],
    }
}

#[test]
fn costs_reproduce_both_measured_times() {
    // 300 ns per fault, 200 ns to zero a page, 30 ns per touch of a present page.
    let times = |pages: u64| {
        let first = 300 + 200 * pages;
        [first, first + 30 * (pages - 1), 500 * pages]
    };
    let facts = [
        size(4, KernelCheckResult::Works, times(16)),
        size(8, KernelCheckResult::Works, times(256)),
        size(9, KernelCheckResult::Fails("no".into()), [0; 3]),
    ];
    let costs = derive_first_touch_costs(&facts).expect("the facts give costs");
    let near = |found: f64, ns: f64| (found - ns).abs() < 0.01;
    assert!(near(costs.fault_ns, 300.0), "{costs:?}");
    assert!(near(costs.zero_base_ns, 200.0), "{costs:?}");
    assert!(near(costs.touch_ns, 30.0), "{costs:?}");
    assert_eq!(working_page_sizes(&facts).to_string(), "64 KiB, 1 MiB");
}

#[test]
fn impossible_times_give_no_costs() {
    let noise = size(4, KernelCheckResult::Works, [400, 9000, 8000]);
    assert_eq!(derive_first_touch_costs(&[noise]), None);
    assert_eq!(derive_first_touch_costs(&[]), None);
}

#[test]
fn one_touch_must_map_all_of_it() {
    let touched = |by_one_touch| {
        Some(BlockTouchResult { by_one_touch, first: Duration::ZERO, all: Duration::ZERO })
    };
    assert!(check_one_touch_maps_page(PageOrder::CONTIGUOUS, touched(16)).works());
    let why = "one touch mapped 1 of 16 base pages".into();
    let judged = check_one_touch_maps_page(PageOrder::CONTIGUOUS, touched(1));
    assert_eq!(judged, KernelCheckResult::Fails(why));
    assert!(!check_one_touch_maps_page(PageOrder::CONTIGUOUS, None).works());
}
