//! HawkEye paper: bloat.

use super::PaperMeasure::*;
use super::translation::TABLE_9_PER_S;
use super::{
    ExperimentName, PaperTable, SimulationSetup, paper_values_of_systems, setup_at_promotion_rate,
};

/// Table 7: regions promoted per second, by every system alike. Chosen with the time between
/// deletions (workload `redis`): Ingens visits each region a few times meanwhile.
const TABLE_7_PER_S: f64 = 200.0;

pub(super) const REDIS_BLOAT: PaperTable = PaperTable {
    name: ExperimentName::from_name_and_alias("redis-bloat", "table-7"),
    shows: "Redis after 60 % of its keys were deleted, without and with memory pressure: memory, and thousand requests per second",
    setup: || setup_at_promotion_rate(TABLE_7_PER_S),
    figures: || {
        const SYSTEMS: [&str; 5] = ["linux-4k", "linux", "ingens-90", "ingens-50", "hawkeye-pmu"];
        let all = |measure, values: [f64; 5]| {
            let values = SYSTEMS.into_iter().zip(values);
            paper_values_of_systems("redis", "redis", measure, values)
        };
        let pressed = |measure, value| {
            let values = [("hawkeye-pmu", value)];
            paper_values_of_systems("redis-pressure", "redis", measure, values)
        };
        [
            all(ResidentGib(2), [16.2, 33.2, 16.3, 33.1, 33.2]),
            all(ThousandPerS(2, 6.9), [106.1, 113.8, 106.8, 113.4, 113.6]),
            pressed(ResidentGib(4), 16.2),
            pressed(ThousandPerS(4, 6.9), 105.8),
        ]
        .concat()
    },
    long: true,
    notes: &[
        "Chosen for the memory of Ingens-50 and Ingens-90 together: every system promotes 200 regions/s, and there are 127 us from one deletion to the next. The paper has neither value. `hawkeye-lab sim list` lists the choices of each workload.",
        "Ingens-50: at the end, 48.8 % of each region's pages are in use. It still holds 33.1 GB, which only promotions during the deletions can explain.",
        "With memory pressure: another program takes memory once Redis is bloated. Resident memory is that at the end of the workload.",
    ],
    ..PaperTable::PLAIN
};

pub(super) const REDIS_REFILL: PaperTable = PaperTable {
    name: ExperimentName::from_name_and_alias("redis-refill", "figure-1"),
    shows: "Redis on 48 GB, filled, 80 % deleted, filled again: memory in use when memory runs out, or at the end",
    // At Table 9's pace.
    setup: || SimulationSetup { memory_bytes: 48 << 30, ..setup_at_promotion_rate(TABLE_9_PER_S) },
    figures: || {
        let full = [("linux", 11.0), ("ingens", 11.0), ("hawkeye-pmu", 11.0)];
        let useful =
            [("linux", 20.0), ("ingens", 28.0), ("hawkeye-pmu", 45.0), ("hawkeye-g", 45.0)];
        [
            paper_values_of_systems("redis-full", "redis", ResidentGib(1), full),
            paper_values_of_systems("redis-full", "redis", UsefulGib, useful),
        ]
        .concat()
    },
    long: true,
    notes: &[
        "Chosen for Linux's 20 GB: Table 9's pace of 8.4 regions/s, and the time between deletion and refill (2250 s).",
        "Ingens: after the deletions, hardly any free huge page is left. From then on its fragmentation index is far over 0.5, and it promotes almost nothing. In the paper the index stays under 0.5 until 32 GB are in use; the paper does not say why. Only that is missing: promotions up to 32 GB would add 21 GB of bloat to 11 GB of data, which leaves 27 of 48 GB for data.",
    ],
    ..PaperTable::PLAIN
};
