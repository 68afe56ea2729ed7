//! Itanium Linux: the machine against a plain model of it, and against the thesis' exact results.

mod calls;
mod kernel;
mod policies;
mod reference_comparison;
mod reference_machine;
mod thesis;

fn large(by: &hawkeye_itanium::kernel::CountsByOrder) -> u64 {
    (1..20).map(|order| by.count_of_order(order)).sum()
}
