//! Costs that tests set instead of measuring this machine's, so that policies decide alike on every
//! host. For tests only.

use crate::error::{LinuxError, Result};
use crate::probe::mthp_sizes::FirstTouchCosts;
use crate::processes::process::calling_thread_cpu_time;
use hawkeye_policy::walk_rate::WalkCosts;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use std::{fs, hint, io};

/// The variable that names a JSON file with [`TestCosts`].
pub const VARIABLE: &str = "HAWKEYE_TEST_COSTS";

/// Costs from which policies decide. A cost that is absent is measured.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestCosts {
    /// Cost of a base page's first access after a clear, in nanoseconds; at most
    /// [`Self::MOST_FIRST_TOUCH_NS`].
    pub first_touch_ns: Option<u64>,
    /// Cost of a promotion, in microseconds: from 1 to [`Self::MOST_PROMOTION_US`]. A promotion
    /// uses this much CPU time in addition, and is reported to have taken this long.
    pub promotion_us: Option<u64>,
    /// CPU time to get and zero a huge page, in microseconds, at most [`Self::MOST_PROMOTION_US`]:
    /// that of a fill of the reserve, and of a promotion without a page of it in addition. 0 where
    /// `promotion_us` is given alone.
    pub fill_us: Option<u64>,
    /// Costs of page walks.
    pub walks: Option<WalkCosts>,
    /// Costs of first touches, where the kernel offers pages of several sizes.
    pub touches: Option<FirstTouchCosts>,
}

impl TestCosts {
    /// Largest cost of a first access, in nanoseconds.
    pub const MOST_FIRST_TOUCH_NS: u64 = 100_000;
    /// Largest cost of a promotion, in microseconds.
    pub const MOST_PROMOTION_US: u64 = 25_000;

    fn parse(text: &str) -> Result<Self, String> {
        let costs: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let (touch, promotion) = (Self::MOST_FIRST_TOUCH_NS, Self::MOST_PROMOTION_US);
        let is_promotion = |us| (1..=promotion).contains(&us);
        if costs.first_touch_ns > Some(touch) {
            Err(format!("first_touch_ns must be at most {touch}"))
        } else if !costs.promotion_us.is_none_or(is_promotion) {
            Err(format!("promotion_us must be 1 to {promotion}"))
        } else if costs.fill_us > Some(promotion) {
            Err(format!("fill_us must be at most {promotion}"))
        } else if !costs.walks.as_ref().is_none_or(WalkCosts::is_sound) {
            Err("walks does not contain valid costs of page walks".into())
        } else if !costs.touches.is_none_or(FirstTouchCosts::is_sound) {
            Err("touches does not contain valid costs of first touches".into())
        } else {
            Ok(costs)
        }
    }

    fn read_from_file(path: &Path) -> Result<Self> {
        let invalid = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        fs::read_to_string(path)
            .and_then(|text| Self::parse(&text).map_err(invalid))
            .map_err(LinuxError::wrap_io_error("reading the test's costs from", path))
    }
}

static GIVEN: OnceLock<Option<TestCosts>> = OnceLock::new();

/// The costs in the file named by `HAWKEYE_TEST_COSTS`, which is read once. `None` if the variable
/// is not set.
pub fn configured_test_costs() -> Result<Option<&'static TestCosts>> {
    if let Some(given) = GIVEN.get() {
        return Ok(given.as_ref());
    }
    let path = std::env::var_os(VARIABLE).map(PathBuf::from);
    let costs = path.as_deref().map(TestCosts::read_from_file).transpose()?;
    if costs.is_some() {
        tracing::warn!(
            "{VARIABLE} is set: costs are not measured, so decisions are only good for a test"
        );
    }
    Ok(GIVEN.get_or_init(|| costs).as_ref())
}

/// Sets the costs of this process from a file, as if `HAWKEYE_TEST_COSTS` named it. It is for tests
/// that run a manager in their own process. It has no effect once costs were read.
pub fn configure_test_costs_from_file(path: &Path) -> Result<()> {
    let costs = TestCosts::read_from_file(path)?;
    GIVEN.get_or_init(|| Some(costs));
    Ok(())
}

/// Whether the costs of a test take the place of hardware counters.
pub(crate) fn replace_counters() -> bool {
    configured_test_costs().ok().flatten().is_some_and(|costs| costs.walks.is_some())
}

/// The CPU time of a fill of the reserve, if a test sets it.
pub(crate) fn configured_fill_cost() -> Option<Duration> {
    let costs = configured_test_costs().ok().flatten()?;
    let fill_us = costs.fill_us.or(costs.promotion_us.map(|_| 0));
    fill_us.map(Duration::from_micros)
}

/// The cost of a promotion, if a test sets it. This then uses that much CPU time before it
/// returns. `served`: the reserve gave the huge page.
pub(crate) fn spend_promotion_cost(served: bool) -> Option<Duration> {
    let given = configured_test_costs().ok().flatten()?.promotion_us;
    let ready = given.map(Duration::from_micros)?;
    let fill = configured_fill_cost().filter(|_| !served).unwrap_or_default();
    let cost = ready + fill;
    // Budgets count CPU time too. On a busy machine, that can be any share of the time that passes.
    let before = calling_thread_cpu_time();
    while calling_thread_cpu_time().saturating_sub(before) < cost {
        hint::spin_loop();
    }
    Some(cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_costs_are_read_and_invalid_ones_refused() {
        let costs = TestCosts::parse(r#"{"first_touch_ns": 50, "promotion_us": 5000}"#);
        let expected = TestCosts {
            first_touch_ns: Some(50),
            promotion_us: Some(5000),
            fill_us: None,
            walks: None,
            touches: None,
        };
        assert_eq!(costs, Ok(expected));
        for (text, why) in [
            ("", "EOF"),
            ("{", "EOF"),
            (r#"{"promotion_ms": 5}"#, "unknown field"),
            (r#"{"promotion_us": -1}"#, "invalid value"),
            (r#"{"promotion_us": 0}"#, "promotion_us must be"),
            (r#"{"promotion_us": 25001}"#, "promotion_us must be"),
            (r#"{"fill_us": 25001}"#, "fill_us must be"),
            (r#"{"first_touch_ns": 100001}"#, "first_touch_ns must be"),
            (r#"{"walks": {"by_footprint": []}}"#, "missing field"),
        ] {
            let error = TestCosts::parse(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
