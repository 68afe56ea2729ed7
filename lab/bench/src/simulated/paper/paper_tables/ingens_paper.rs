//! The Ingens paper's tables (Kwon et al., OSDI'16, section 2 and 3).

use super::PaperMeasure::*;
use super::{ExperimentName, PaperTable, paper_values_of_systems};
use hawkeye_sim::workloads::ByteSize;

const NATIVE: &str = "In the paper these programs run in a virtual machine: the guest's system varies, and the host has huge pages (Table 3 there: the column for both over that for the host alone). Here they run natively. Each program's own work was chosen for the column of Linux.";

pub(super) const VIRTUAL_SPEEDUP: PaperTable = PaperTable {
    name: ExperimentName::from_name_and_alias("virtual-speedup", "ingens-3"),
    shows: "speed-up by huge pages in a virtual machine: in the guest, in the host, in both",
    guest: Some(ByteSize(64 << 30)),
    figures: || {
        let three = |workload, program, [guest, host, both]: [f64; 3]| {
            let values =
                [("linux-4k/linux", guest), ("linux/linux-4k", host), ("linux/linux", both)];
            paper_values_of_systems(workload, program, Over("linux-4k/linux-4k"), values)
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
    long: true,
    notes: &[
        "Chosen in each workload for the column with huge pages in both: the footprint, and the cycles of own work. The other two columns follow. All programs access their memory at random: the paper's excerpt does not describe their accesses. Nor does it explain MongoDB's large gain from huge pages in the host alone.",
        "Huge pages in the guest also save page faults there; huge pages in the host do not. Chosen for all three columns of Olio, which gains from the guest alone: it allocates 1 GiB anew for every 2 s of work.",
    ],
    ..PaperTable::PLAIN
};

pub(super) const ASYNC_PROMOTION: PaperTable = PaperTable {
    name: ExperimentName::from_name_and_alias("async-promotion", "ingens-4"),
    shows: "SVM: huge pages at page faults, and by khugepaged alone at Ubuntu's pace",
    figures: || {
        let both = |measure, [sync, later]: [f64; 2]| {
            let values = [("linux", sync), ("linux-async", later)];
            paper_values_of_systems("svm", "svm", measure, values)
        };
        [both(Seconds, [178.0, 228.0]), both(SpeedUp, [1.30, 1.02]), both(HugeGib, [4.8, 0.457])]
            .concat()
    },
    notes: &[
        NATIVE,
        "khugepaged alone: at the paper's 1.6 MB/s, 365 MB become huge in the paper's 228 s. The paper has 468 MB.",
    ],
    ..PaperTable::PLAIN
};

pub(super) const REDIS_MONGODB_MEMORY: PaperTable = PaperTable {
    name: ExperimentName::from_name_and_alias("redis-mongodb-memory", "ingens-5"),
    shows: "memory of Redis after 70 % of its keys were deleted, and memory of MongoDB",
    figures: || {
        let redis = [("linux", 20.7), ("linux-4k", 12.2)];
        let mongodb = [("linux", 12.4), ("linux-4k", 10.1)];
        [
            paper_values_of_systems("redis-8kb", "redis", ResidentGib(2), redis),
            paper_values_of_systems("mongodb", "mongodb", ResidentGib(0), mongodb),
        ]
        .concat()
    },
    notes: &[
        "Chosen in the workloads, from the column without huge pages: the part of each region that is in use. That Linux fills the rest again follows.",
    ],
    ..PaperTable::PLAIN
};

pub(super) const FREEBSD_SPEEDUP: PaperTable = PaperTable {
    name: ExperimentName::from_name_and_alias("freebsd-speedup", "ingens-6"),
    shows: "speed-up by huge pages under FreeBSD and Linux",
    figures: || {
        let both = |workload, program, [freebsd, linux]: [f64; 2]| {
            let values = [("freebsd", freebsd), ("linux", linux)];
            paper_values_of_systems(workload, program, SpeedUp, values)
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
        "Chosen in each workload for the column of FreeBSD: the share of memory in regions that are never touched in full. FreeBSD does not promote these.",
    ],
    ..PaperTable::PLAIN
};
