//! Itanium Linux: the machine against a plain model of it, and against the thesis' exact results.

mod agree;
mod calls;
mod kernel;
mod plain;
mod policies;
mod thesis;

/// Events of large pages.
fn large(by: &hawkeye_itanium::kernel::ByOrder) -> u64 {
    (1..20).map(|order| by.of(order)).sum()
}
