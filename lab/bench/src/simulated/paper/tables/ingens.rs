//! The Ingens paper's tables (Kwon et al., OSDI'16, section 2 and 3).

use super::Measure::*;
use super::{Table, row};
use hawkeye_sim::workloads::Size;

const NATIVE: &str = "In the paper the guest's system differs and the host has huge pages (its Table 3's column of both over that of the host alone); here programs run natively. Each \
     program's own work is chosen for the column of Linux.";

pub(super) const TABLE_3: Table = Table {
    name: "ingens-3",
    shows: "speed-up of huge pages in a virtual machine: in the guest, in the host, in both",
    guest: Some(Size(64 << 30)),
    figures: || {
        let three = |workload, program, [guest, host, both]: [f64; 3]| {
            let values = [
                ("linux-4k/linux", guest),
                ("linux/linux-4k", host),
                ("linux/linux", both),
            ];
            row(workload, program, Over("linux-4k/linux-4k"), &values)
        };
        [
            three("svm-vm", "svm", [1.14, 1.17, 1.53]),
            three("canneal-vm", "canneal", [1.11, 1.10, 1.32]),
            three("redis-vm", "redis", [1.12, 1.04, 1.20]),
            three("mcf", "mcf", [1.18, 1.13, 1.43]),
            three("tunkrank", "tunkrank", [1.11, 1.11, 1.30]),
            three("nutch", "nutch", [1.01, 1.07, 1.12]),
            three("movierecmd", "movierecmd", [1.03, 1.02, 1.11]),
            three("olio", "olio", [1.43, 1.08, 1.46]),
            three("mongodb-get", "mongodb", [1.08, 1.22, 1.37]),
        ]
        .concat()
    },
    notes: &[
        "Chosen in each workload: footprint, and cycles of own work for the column with huge pages in both; the other two columns follow. All access \
         their memory at random; the excerpt says nothing of how they do, nor why MongoDB gains so much by the host alone.",
        "Huge pages in the guest spare its page faults too, those at the host do not. Chosen for all three columns of Olio, which gains by the guest alone: that it takes 1 GiB anew for every 2 s of work.",
    ],
    ..Table::PLAIN
};

pub(super) const TABLE_4: Table = Table {
    name: "ingens-4",
    shows: "SVM: huge pages at faults, and by khugepaged alone at Ubuntu's pace",
    figures: || {
        let both = |measure, [sync, later]: [f64; 2]| {
            let values = [("linux", sync), ("linux-async", later)];
            row("svm", "svm", measure, &values)
        };
        [
            both(Seconds, [178.0, 228.0]),
            both(SpeedUp, [1.30, 1.02]),
            both(HugeGib, [4.8, 0.457]),
        ]
        .concat()
    },
    notes: &[
        NATIVE,
        "By khugepaged alone: 1.6 MB/s, as the paper has it, make 365 MB in its 228 s, not its 468 MB.",
    ],
    ..Table::PLAIN
};

pub(super) const TABLE_5: Table = Table {
    name: "ingens-5",
    shows: "memory of Redis after 70 % of its keys were deleted, and of MongoDB",
    figures: || {
        [
            row(
                "redis-8kb",
                "redis",
                ResidentGib(2),
                &[("linux", 20.7), ("linux-4k", 12.2)],
            ),
            row(
                "mongodb",
                "mongodb",
                ResidentGib(0),
                &[("linux", 12.4), ("linux-4k", 10.1)],
            ),
        ]
        .concat()
    },
    notes: &[
        "Chosen in the workloads: what is in use of each region, from the column without huge pages. That Linux fills all of it up again follows.",
    ],
    ..Table::PLAIN
};

pub(super) const TABLE_6: Table = Table {
    name: "ingens-6",
    shows: "speed-up of huge pages under FreeBSD and Linux",
    figures: || {
        let both = |workload, program, [freebsd, linux]: [f64; 2]| {
            let values = [("freebsd", freebsd), ("linux", linux)];
            row(workload, program, SpeedUp, &values)
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
    ..Table::PLAIN
};
