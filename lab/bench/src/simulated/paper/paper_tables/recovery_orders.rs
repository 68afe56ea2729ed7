//! Orders in which bloated huge pages are split: the HawkEye paper's, EMD's and ours.

use super::PaperMeasure::{MeanPhaseOver, PhaseOver, ResidentGib, TotalResidentGib};
use super::{ExperimentName, PaperTable, PaperValue, PublishedValue};

/// The system with the paper's order.
const PAPER: &str = "hawkeye-pmu";
const ORDERS: [&str; 3] = [PAPER, "emd", "hawkeye"];
/// The programs under pressure. A fourth makes memory short.
const PROGRAMS: [&str; 3] = ["index", "table", "graph"];
/// The phase after recovery: fills come before.
const AFTER: usize = 3;
const AFTER_OF_EQUAL: usize = 2;

pub(super) const RECOVERY_ORDERS: PaperTable = PaperTable {
    name: ExperimentName::from_name_and_alias("guard-order", ""),
    shows: "three programs of different bloat under pressure, and two equal ones, by the order of recovery: speed and memory",
    figures: || {
        let row = |workload, program, system, measure, paper| PaperValue {
            workload,
            program,
            system,
            measure,
            paper,
        };
        let mut figures = Vec::new();
        for program in PROGRAMS {
            // "Up to 69 %" (abstract).
            let published =
                [("emd", PublishedValue::Range(1.0, 1.69)), ("hawkeye", PublishedValue::Unknown)];
            for (system, paper) in published {
                let over = PhaseOver(PAPER, AFTER);
                figures.push(row("bloat-and-heat", program, system, over, paper));
            }
            for system in ORDERS {
                let memory = ResidentGib(AFTER);
                figures.push(row(
                    "bloat-and-heat",
                    program,
                    system,
                    memory,
                    PublishedValue::Unknown,
                ));
            }
        }
        for system in ORDERS {
            for measure in
                [TotalResidentGib(&PROGRAMS, AFTER), MeanPhaseOver(&PROGRAMS, PAPER, AFTER)]
            {
                let all = "all three";
                figures.push(row("bloat-and-heat", all, system, measure, PublishedValue::Unknown));
            }
        }
        for system in ORDERS {
            for program in ["twin-1", "twin-2"] {
                let over = PhaseOver("linux", AFTER_OF_EQUAL);
                figures.push(row("equal-bloat", program, system, over, PublishedValue::Unknown));
            }
        }
        figures
    },
    long: true,
    notes: &[
        "Both workloads are chosen; `hawkeye-lab sim list` lists their figures. EMD's abstract has one figure, up to 69 % over HawkEye, for programs that it does not name; its order is described in docs/research/systems.md.",
        "Speed is that of the last phase, over that with the paper's order. All three: memory of all, each at the end of its last phase, and the geometric mean of their speeds. Equal programs: over Linux, which gives nothing back. Ours keeps to 2 % of a core; the others have no budget.",
    ],
    ..PaperTable::PLAIN
};
