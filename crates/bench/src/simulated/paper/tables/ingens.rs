//! The Ingens paper's tables (Kwon et al., OSDI'16, section 2 and 3).

use super::{Measure, Table, plain, row};

const NATIVE: &str = "The paper's runs are in a virtual machine with huge pages in guest and host; here they are native. Each program's overhead is chosen for the column of Linux \
     under huge pages.";

pub(super) const TABLE_4: Table = Table {
    name: "ingens-4",
    shows: "SVM: huge pages at faults, and by khugepaged alone at Ubuntu's pace",
    setup: plain,
    instances: 1,
    guest: None,
    figures: || {
        let both = |measure, [sync, later]: [f64; 2]| {
            row(
                "svm",
                "svm",
                measure,
                &[("linux", sync), ("linux-async", later)],
            )
        };
        [
            both(Measure::Seconds, [178.0, 228.0]),
            both(Measure::SpeedUp, [1.30, 1.02]),
            both(Measure::HugeGib, [4.8, 0.457]),
        ]
        .concat()
    },
    notes: &[NATIVE],
};

pub(super) const TABLE_5: Table = Table {
    name: "ingens-5",
    shows: "memory of Redis after 70 % of its keys were deleted, and of MongoDB",
    setup: plain,
    instances: 1,
    guest: None,
    figures: || {
        [
            row(
                "redis-8kb",
                "redis",
                Measure::ResidentGib(2),
                &[("linux", 20.7), ("linux-4k", 12.2)],
            ),
            row(
                "mongodb",
                "mongodb",
                Measure::ResidentGib(0),
                &[("linux", 12.4), ("linux-4k", 10.1)],
            ),
        ]
        .concat()
    },
    notes: &[
        "Chosen in the workloads: what is in use of each region, from the column without huge pages. That Linux fills all of it up again follows.",
    ],
};

pub(super) const TABLE_6: Table = Table {
    name: "ingens-6",
    shows: "speed-up of huge pages under FreeBSD and Linux",
    setup: plain,
    instances: 1,
    guest: None,
    figures: || {
        let both = |workload, program, [freebsd, linux]: [f64; 2]| {
            row(
                workload,
                program,
                Measure::SpeedUp,
                &[("freebsd", freebsd), ("linux", linux)],
            )
        };
        [
            both("svm", "svm", [1.28, 1.30]),
            both("canneal", "canneal", [1.13, 1.21]),
            both("redis-get", "redis", [1.02, 1.15]),
        ]
        .concat()
    },
    notes: &[
        NATIVE,
        "Chosen in each workload, for the column of FreeBSD: how much of its memory is in regions that are never touched in full, which FreeBSD does not promote.",
    ],
};
