//! HawkEye paper: the cost of first touches.

use super::PaperMeasure::*;
use super::{ExperimentName, PaperTable, paper_values_of_systems, values_and_speed_ups};

pub(super) const FIRST_TOUCH_COSTS: PaperTable = PaperTable {
    name: ExperimentName::from_name_and_alias("first-touch-costs", "table-1"),
    shows: "100 GB touched, one byte of each base page",
    figures: || {
        const SYSTEMS: [&str; 5] = ["linux-4k", "linux", "ingens-90", "unzeroed-4k", "unzeroed"];
        let all = |measure, values: [f64; 5]| {
            let values = SYSTEMS.into_iter().zip(values);
            paper_values_of_systems("touch", "touch", measure, values)
        };
        [
            all(MillionFaults, [26.2, 0.0515, 26.2, 26.2, 0.0515]),
            all(FaultSeconds, [92.6, 23.9, 92.8, 69.5, 0.7]),
            all(FaultMicroseconds, [3.5, 465.0, 3.5, 2.65, 13.0]),
            all(SystemSeconds, [102.0, 24.0, 104.0, 79.0, 1.3]),
            all(Seconds, [106.0, 24.9, 116.0, 83.0, 4.4]),
        ]
        .concat()
    },
    notes: &[
        "Costs are calibrated on the columns linux-4k and linux, the program's own time for a touch on the column linux (`Calibration::TABLE_1`).",
        "Ingens' system time: its memory is huge here when it is freed, which takes almost no time. By the paper's figure it was not huge.",
    ],
    ..PaperTable::PLAIN
};

pub(super) const FIRST_TOUCH_PROGRAMS: PaperTable = PaperTable {
    name: ExperimentName::from_name_and_alias("first-touch-programs", "table-8"),
    shows: "programs that spend their time in first touches: requests per second, or seconds",
    figures: || {
        const SYSTEMS: [&str; 5] = ["linux-4k", "linux", "ingens-90", "hawkeye-4k", "hawkeye-pmu"];
        let all = |workload, program, measure, values: [f64; 5]| {
            values_and_speed_ups(workload, program, measure, SYSTEMS, values)
        };
        // Number of 2 MiB values in 45 GiB.
        let requests = RequestsPerS(23_040.0);
        let seconds = Seconds;
        [
            all("redis-2mb", "redis", requests, [233.0, 437.0, 192.0, 236.0, 551.0]),
            all("sparsehash", "sparsehash", seconds, [50.1, 17.2, 51.5, 46.6, 10.6]),
            all("hacc-io", "hacc-io", seconds, [6.5, 4.5, 6.6, 6.5, 4.2]),
            all("jvm-start", "jvm", seconds, [37.7, 18.6, 52.7, 29.8, 1.37]),
            all("kvm-start", "kvm", seconds, [40.6, 9.7, 41.8, 30.2, 0.7]),
        ]
        .concat()
    },
    notes: &[
        "Costs are those of Table 1. Chosen from the column linux: each program's own time for a page; from the column linux-4k: Redis' buffers and HACC-IO's own memory; from the column hawkeye-pmu: the part of the wait for memory that KVM sees.",
        "The JVM under huge pages: by Table 1, 9.4M zeroed pages take 8.6 s. The paper does not say what the rest of the 18.6 s is, nor why HawkEye's 1.37 s do not include it. Measured (docs/research/measured.md, `first-touch-programs`), a JVM takes as long under huge pages as QEMU does for the same memory: 1.06 and 0.99 s for 8 GiB. So it does here.",
        "The JVM under Ingens: in the paper it takes 15.0 s more than under base pages, and KVM only 1.2 s more, for the same 36 GB touched once. Table 1 has 3.6 s for the same amount. The paper does not say how they differ; here both take 6.9 s more.",
        "Base pages: the table's differences between programs (KVM 40.6 s, JVM 37.7 s for the same 36 GB) do not follow from Table 1's 3.5 us per fault, by which 36 GB take 33.0 s. This explains KVM's speed-up by HawkEye with huge pages; its 0.74 s are near the paper's 0.70. Nor does it follow from Table 1 that zeroing in advance saves Redis and SparseHash almost nothing under base pages: 0.03 and 0.37 us of the 0.88 us that zeroing takes there.",
    ],
    ..PaperTable::PLAIN
};
