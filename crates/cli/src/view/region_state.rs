//! The state of a region.

use super::RegionPromotionState;
use hawkeye_manager::LastSample;
use hawkeye_policy::{RegionPromotionLimits, RegionSample};
use std::time::Duration;

/// State of a region, from the last sample of its process and the actions since.
pub(super) fn region_promotion_state(
    limits: &RegionPromotionLimits,
    seen: &LastSample,
    sample: &RegionSample,
    now: Duration,
) -> RegionPromotionState {
    let (process, region) = (seen.sample.process, sample.region);
    if seen.is_huge_now(sample) {
        RegionPromotionState::Huge
    } else if !limits.recovered.may_promote(process, region) {
        RegionPromotionState::Recovered
    } else if let Some(until) = limits.cooldown.cooling_until(process, region, now) {
        RegionPromotionState::CoolingDown { remaining_s: (until - now).as_secs_f64(), errno: None }
    } else if let Some((pages, until)) =
        limits.shared.shared_pages_and_pause_end(process, region, now)
    {
        RegionPromotionState::Shared { pages, remaining_s: (until - now).as_secs_f64() }
    } else if sample.accessed > 0 {
        RegionPromotionState::Candidate
    } else {
        RegionPromotionState::NotAccessed
    }
}
