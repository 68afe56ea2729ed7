//! The classes of the policies in the thesis (section 2.4).

use super::*;
use hawkeye_itanium::kernel::policies::{CompactionDaemonSettings, ThesisPolicyClass};
use hawkeye_itanium::mmu::TlbReplacement;
use hawkeye_itanium::workloads::{ThesisWorkload, VortexWorkload};
use hawkeye_itanium::{ItaniumRunFigures, simulate_workload};

pub fn all() -> Vec<PageSizePolicy> {
    let daemon = Some(CompactionDaemonSettings::IRIX);
    vec![
        PageSizePolicy::HugeTlb { order: 2, pages: 640 },
        PageSizePolicy::Winwood { order: 2, pages: 640 },
        PageSizePolicy::Solaris,
        PageSizePolicy::Cover,
        PageSizePolicy::HP_UX,
        PageSizePolicy::Irix(CompactionDaemonSettings::IRIX),
        PageSizePolicy::Navarro { limit: None, daemon },
        PageSizePolicy::Asap,
        PageSizePolicy::ApproxOnline { misses_per_page: 1 },
        PageSizePolicy::HalfReferenced { order: 2, references: 100_000 },
        PageSizePolicy::PageReservation { order: 4 },
    ]
}

fn churning(policy: PageSizePolicy, seed: u64) -> ItaniumRunFigures {
    let workload = ThesisWorkload::Vortex(VortexWorkload {
        accesses: 20_000,
        reallocated_per_million: 5000.0,
        ..VortexWorkload::THESIS
    });
    let mut setup = setup(policy);
    setup.advice = advice(0, 64 * KIB);
    setup.processor.sub_block_order = 4;
    setup.processor.replacement = TlbReplacement::Random;
    simulate_workload(&setup, &workload, seed).unwrap()
}

#[test]
fn only_dynamic_policies_copy() {
    for policy in all() {
        let figures = churning(policy, 1);
        let copied = figures.copied_bytes > 0;
        let class = policy.thesis_class();
        assert!(!copied || class == ThesisPolicyClass::Dynamic, "{policy:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    for policy in all() {
        assert_eq!(churning(policy, 1), churning(policy, 1), "{policy:?}");
        assert_ne!(churning(policy, 1), churning(policy, 2), "{policy:?}");
    }
}
