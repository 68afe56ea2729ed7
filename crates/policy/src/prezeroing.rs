//! How fast kernels with prezeroing zero free memory ahead of its use (paper, section 3.1). They
//! zero nothing while memory is short, and little while no processor is idle or most of it is
//! already zeroed.

use crate::saturating_cast::u32_from_f64;
use crate::setting_error::{Setting, SettingError};
use serde::Serialize;

/// All unzeroed memory should be zeroed within this many seconds, as far as the bounds allow.
const WITHIN_S: u64 = 10;
/// The rest is zeroed at least at this rate, in base pages per second: one huge page per second.
const LEAST: u32 = 512;
/// Below this share of idle time, zeroing would take time from programs.
const BUSY: f64 = 0.1;
/// Above this share of idle time, the rate may exceed the usual one.
const CALM: f64 = 0.5;
/// The rate stays as it is when it would change by less than this share.
const CHANGE: f64 = 0.25;

/// Range of the rate, in base pages per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroingRateBounds {
    usual: u32,
    most: u32,
}

impl ZeroingRateBounds {
    /// `usual` while processors are half busy, up to `most` while all are idle.
    /// `usual` is 512 to 10 million, `most` between it and 10 million.
    pub fn new(usual: u32, most: u32) -> Result<Self, SettingError> {
        const HIGHEST: u32 = 10_000_000;
        let fits = (LEAST..=HIGHEST).contains(&usual);
        let (setting, allowed) = (Setting::UsualZeroingRate, "512 to 10000000");
        SettingError::error_unless_valid(fits, setting, usual, allowed)?;
        let fits = (usual..=HIGHEST).contains(&most);
        let allowed = "at least the usual rate and at most 10000000";
        SettingError::error_unless_valid(fits, Setting::HighestZeroingRate, most, allowed)?;
        Ok(Self { usual, most })
    }

    /// The rate while processors are half busy.
    pub fn half_busy_rate(self) -> u32 {
        self.usual
    }

    /// The rate while all processors are idle.
    pub fn all_idle_rate(self) -> u32 {
        self.most
    }

    fn max_rate_for_idle_share(self, idle: f64) -> Option<u32> {
        if idle < BUSY {
            return None;
        }
        let calm = ((idle - CALM) / (1.0 - CALM)).clamp(0.0, 1.0);
        let more = f64::from(self.most - self.usual) * calm;
        Some(self.usual + u32_from_f64(more))
    }
}

impl Default for ZeroingRateBounds {
    /// 10,000 as in the paper, and up to five times that, 200 MB/s.
    fn default() -> Self {
        Self { usual: 10_000, most: 50_000 }
    }
}

/// Inputs to the choice of the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ZeroingConditions {
    /// Free base pages.
    pub free: u64,
    /// Free base pages that are zeroed.
    pub zeroed: u64,
    /// Whether memory is short. Free memory is then taken before it could be zeroed.
    pub short: bool,
    /// Recent share of idle time over all processors, 0 to 1; `None`: not known.
    pub idle: Option<f64>,
}

/// How fast free memory should be zeroed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
pub enum ZeroingRate {
    /// Not at all: memory is short.
    #[strum(to_string = "stopped: memory is short")]
    Short,
    /// Not at all: no processor is idle.
    #[strum(to_string = "stopped: no processor is idle")]
    Busy,
    /// At most this many base pages per second (1 and up).
    #[strum(to_string = "at most {0} pages/s")]
    PagesPerS(u32),
}

/// Chooses the rate, one reading after the other.
#[derive(Clone, Copy, Debug)]
pub struct ZeroingRateControl {
    bounds: ZeroingRateBounds,
    last: Option<ZeroingRate>,
}

impl ZeroingRateControl {
    /// A pace without any choice so far.
    pub fn new(bounds: ZeroingRateBounds) -> Self {
        Self { bounds, last: None }
    }

    /// The rate from now on. It stays as it is where the new one hardly differs. Where idle time is
    /// not known, it is at most the usual rate.
    pub fn decide_rate(&mut self, seen: &ZeroingConditions) -> ZeroingRate {
        let decided = self.rate_before_hysteresis(seen);
        let rate = match (self.last, decided) {
            (Some(ZeroingRate::PagesPerS(last)), ZeroingRate::PagesPerS(new))
                if f64::from(new.abs_diff(last)) < f64::from(last) * CHANGE =>
            {
                ZeroingRate::PagesPerS(last)
            }
            _ => decided,
        };
        self.last = Some(rate);
        rate
    }

    fn rate_before_hysteresis(&self, seen: &ZeroingConditions) -> ZeroingRate {
        if seen.short {
            return ZeroingRate::Short;
        }
        let Some(allowed) = self.bounds.max_rate_for_idle_share(seen.idle.unwrap_or(CALM)) else {
            return ZeroingRate::Busy;
        };
        let dirty = seen.free.saturating_sub(seen.zeroed);
        let wanted = u32::try_from(dirty / WITHIN_S).unwrap_or(u32::MAX);
        ZeroingRate::PagesPerS(wanted.max(LEAST).min(allowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 18;

    fn idle(idle: f64) -> ZeroingConditions {
        ZeroingConditions { free: 64 * GIB, idle: Some(idle), ..ZeroingConditions::default() }
    }

    fn first(seen: ZeroingConditions) -> ZeroingRate {
        ZeroingRateControl::new(ZeroingRateBounds::default()).decide_rate(&seen)
    }

    #[test]
    fn the_rate_of_the_paper_unless_more_is_idle_than_not() {
        assert_eq!(first(idle(0.1)), ZeroingRate::PagesPerS(10_000));
        assert_eq!(first(idle(0.5)), ZeroingRate::PagesPerS(10_000));
        assert_eq!(first(idle(0.75)), ZeroingRate::PagesPerS(30_000));
        assert_eq!(first(idle(1.0)), ZeroingRate::PagesPerS(50_000));
        let unknown = ZeroingConditions { idle: None, ..idle(1.0) };
        assert_eq!(first(unknown), ZeroingRate::PagesPerS(10_000));
    }

    #[test]
    fn no_zeroing_while_memory_is_short_or_no_processor_is_idle() {
        let short = ZeroingConditions { short: true, ..idle(1.0) };
        assert_eq!(first(short), ZeroingRate::Short);
        assert_eq!(first(idle(0.09)), ZeroingRate::Busy);
    }

    #[test]
    fn zeroing_slows_as_less_is_left_to_zero() {
        let left = |pages| ZeroingConditions { zeroed: 64 * GIB - pages, ..idle(1.0) };
        assert_eq!(first(left(2 * GIB)), ZeroingRate::PagesPerS(50_000));
        assert_eq!(first(left(GIB)), ZeroingRate::PagesPerS(26_214));
        assert_eq!(first(left(GIB / 8)), ZeroingRate::PagesPerS(3_276));
        assert_eq!(first(left(0)), ZeroingRate::PagesPerS(512));
        // The figures come from two different moments.
        let more = ZeroingConditions { zeroed: 65 * GIB, ..idle(1.0) };
        assert_eq!(first(more), ZeroingRate::PagesPerS(512));
    }

    #[test]
    fn small_changes_keep_the_rate() {
        let mut pace = ZeroingRateControl::new(ZeroingRateBounds::default());
        assert_eq!(pace.decide_rate(&idle(0.75)), ZeroingRate::PagesPerS(30_000));
        assert_eq!(pace.decide_rate(&idle(0.8)), ZeroingRate::PagesPerS(30_000));
        assert_eq!(pace.decide_rate(&idle(0.9)), ZeroingRate::PagesPerS(42_000));
        assert_eq!(pace.decide_rate(&idle(0.0)), ZeroingRate::Busy);
        assert_eq!(pace.decide_rate(&idle(0.8)), ZeroingRate::PagesPerS(34_000));
    }

    #[test]
    fn bounds_have_an_order() {
        assert!(ZeroingRateBounds::new(511, 10_000).is_err());
        assert!(ZeroingRateBounds::new(10_000, 9_999).is_err());
        assert!(ZeroingRateBounds::new(10_000, 10_000_001).is_err());
        let usual = ZeroingRateBounds::default();
        assert_eq!(
            ZeroingRateBounds::new(usual.half_busy_rate(), usual.all_idle_rate()),
            Ok(usual)
        );
    }

    proptest! {
        #[test]
        fn rates_are_within_bounds(
            (usual, more) in (512u32..1_000_000, 0u32..1_000_000),
            (free, zeroed) in (any::<u64>(), any::<u64>()),
            idle in prop::option::of(0.0f64..=1.0),
            short in any::<bool>(),
        ) {
            let bounds = ZeroingRateBounds::new(usual, usual + more).expect("the bounds are in order");
            let mut pace = ZeroingRateControl::new(bounds);
            let seen = ZeroingConditions { free, zeroed, short, idle };
            match pace.decide_rate(&seen) {
                ZeroingRate::PagesPerS(pages) => {
                    prop_assert!(!short && (LEAST..=bounds.all_idle_rate()).contains(&pages));
                }
                ZeroingRate::Short => prop_assert!(short),
                ZeroingRate::Busy => prop_assert!(idle.is_some_and(|idle| idle < BUSY)),
            }
        }
    }
}
