use super::super::area_layout::lay_out_areas;
use super::*;
use crate::page_bits::PageBits;
use crate::workloads::{Area, ByteSize};
use std::collections::BTreeSet;

pub(in crate::engine) fn source(
    pattern: StreamPattern,
    regions: u64,
    pages: u16,
) -> (StreamSampler, Vec<AreaLayout>) {
    let area = Area {
        name: "a".to_owned(),
        size: ByteSize(regions << 21),
        start: None,
        pieces: None,
        file: None,
    };
    let mut lots = lay_out_areas(&[area]);
    for number in 0..regions as usize {
        lots[0].mark_pages_used(number, PageBits::evenly_spread(pages));
    }
    let stream = AccessStream {
        area: "a".to_owned(),
        part: [0.0, 1.0],
        pattern,
        weight: 1.0,
        stores_percent: 0.0,
        cycles: 60.0,
        waited_percent: 100.0,
    };
    let source = StreamSampler::new(&stream, 1.0, &lots, &mut SimulationRng::new(1, 1));
    (source.unwrap_or_else(|| panic!("no source")), lots)
}

#[test]
fn the_coverage_reckoned_is_that_of_accesses_made() {
    let cases = [
        (StreamPattern::Random, 512),
        (StreamPattern::Random, 100),
        (StreamPattern::Zipf(0.99), 512),
        (StreamPattern::Stride(64), 512),
        (StreamPattern::Stride(3 << 12), 512),
    ];
    for (pattern, pages) in cases {
        for accesses in [500u64, 5_000, 50_000] {
            let (mut source, lots) = source(pattern, 16, pages);
            let mut rng = SimulationRng::new(7, 7);
            let mut seen = BTreeSet::new();
            for _ in 0..accesses {
                seen.insert(source.draw_access(&lots[0], &mut rng).address() >> 12);
            }
            let exposure = source.touched_share(accesses as f64);
            let mean = (0..16).map(|n| exposure.touch_chance_in_region(n)).sum::<f64>() / 16.0;
            let reckoned = mean * 16.0 * f64::from(pages);
            let made = seen.len() as f64;
            assert!(
                (reckoned - made).abs() <= 0.03 * made + 5.0,
                "{pattern:?}, {accesses} accesses: {reckoned:.0} reckoned, {made} made"
            );
        }
    }
}

#[test]
fn only_pages_in_use_are_accessed() {
    let (mut source, lots) = source(StreamPattern::Random, 4, 1);
    let mut rng = SimulationRng::new(3, 3);
    for _ in 0..1000 {
        let address = source.draw_access(&lots[0], &mut rng).address();
        assert!(lots[0].is_page_used((address - lots[0].start) >> 12));
    }
}
