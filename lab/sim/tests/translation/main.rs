//! Tests of fast translation: against a plain model of the same rules, the exact model, and by
//! hand.

mod agree;
mod exact;
mod golden;
mod groups;
mod mapping;
mod plain;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Where programs have their memory; also that of a run of the exact model.
const BEGIN: u64 = 0x7f00_0000_0000;
/// All pages of a region.
const FULL: [u64; 8] = [u64::MAX; 8];

fn random(seed: u64) -> impl Iterator<Item = u64> {
    let next = |n: &u64| n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    std::iter::successors(Some(seed), move |n| Some(next(n))).skip(1)
}
