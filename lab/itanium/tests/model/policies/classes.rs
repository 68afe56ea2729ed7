//! The classes of the policies in the thesis (section 2.4).

use super::*;
use hawkeye_itanium::kernel::policies::{
    ApproxOnline, Asap, Class, Cover, HalfReferenced, HpUx, HugeTlb, Irix, Navarro,
    PageReservation, Solaris, Winwood,
};
use hawkeye_itanium::mmu::Replacement;
use hawkeye_itanium::workloads::{Vortex, Workload};
use hawkeye_itanium::{Figures, simulate};

pub fn all() -> Vec<Policy> {
    let daemon = Some(Irix::default().daemon);
    vec![
        Policy::HugeTlb(HugeTlb {
            order: 2,
            pages: 640,
        }),
        Policy::Winwood(Winwood {
            order: 2,
            pages: 640,
        }),
        Policy::Solaris(Solaris),
        Policy::Cover(Cover),
        Policy::HpUx(HpUx::default()),
        Policy::Irix(Irix::default()),
        Policy::Navarro(Navarro {
            limit: None,
            daemon,
        }),
        Policy::Asap(Asap),
        Policy::ApproxOnline(ApproxOnline { misses_per_page: 1 }),
        Policy::HalfReferenced(HalfReferenced {
            order: 2,
            references: 100_000,
        }),
        Policy::PageReservation(PageReservation { order: 4 }),
    ]
}

fn churning(policy: Policy, seed: u64) -> Figures {
    let workload = Workload::Vortex(Vortex {
        accesses: 20_000,
        reallocated_per_million: 5000.0,
        ..Vortex::THESIS
    });
    let mut setup = setup(policy);
    setup.advice = advice(0, 64 * KIB);
    setup.processor.sub_block_order = 4;
    setup.processor.replacement = Replacement::Random;
    simulate(&setup, &workload, seed).unwrap()
}

#[test]
fn only_dynamic_policies_copy() {
    for policy in all() {
        let figures = churning(policy, 1);
        let copied = figures.copied_bytes > 0;
        let class = policy.class();
        assert!(!copied || class == Class::Dynamic, "{policy:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    for policy in all() {
        assert_eq!(churning(policy, 1), churning(policy, 1), "{policy:?}");
        assert_ne!(churning(policy, 1), churning(policy, 2), "{policy:?}");
    }
}
