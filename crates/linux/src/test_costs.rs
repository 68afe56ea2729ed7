//! Costs that tests give instead of those that this machine has. For tests only: with it they
//! decide alike on every host.

use crate::error::{LinuxError, Result};
use crate::probe::touch_costs::TouchCosts;
use crate::processes::process::thread_cpu;
use hawkeye_policy::run_rate::WalkCosts;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use std::{fs, hint, io};

/// Names a file of [`TestCosts`] as JSON.
pub const VARIABLE: &str = "HAWKEYE_TEST_COSTS";

/// What policies decide from. A cost that is absent is measured.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestCosts {
    /// A base page's first access after a clear, in nanoseconds; at most
    /// [`Self::MOST_FIRST_TOUCH_NS`].
    pub first_touch_ns: Option<u64>,
    /// A promotion, in microseconds, at least 1 and at most [`Self::MOST_PROMOTION_US`]: so much CPU time it takes
    /// in addition, and so long it is reported to have taken.
    pub promotion_us: Option<u64>,
    /// Page walks.
    pub walks: Option<WalkCosts>,
    /// First touches, where pages of several sizes can be given at them.
    pub touches: Option<TouchCosts>,
}

impl TestCosts {
    /// Largest cost of a first access, in nanoseconds.
    pub const MOST_FIRST_TOUCH_NS: u64 = 100_000;
    /// Largest cost of a promotion, in microseconds.
    pub const MOST_PROMOTION_US: u64 = 25_000;

    fn parse(text: &str) -> Result<Self, String> {
        let costs: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if costs.first_touch_ns > Some(Self::MOST_FIRST_TOUCH_NS) {
            let most = Self::MOST_FIRST_TOUCH_NS;
            return Err(format!("first_touch_ns must be at most {most}"));
        }
        if costs
            .promotion_us
            .is_some_and(|us| !(1..=Self::MOST_PROMOTION_US).contains(&us))
        {
            let most = Self::MOST_PROMOTION_US;
            return Err(format!("promotion_us must be 1 to {most}"));
        }
        if !costs.walks.as_ref().is_none_or(WalkCosts::is_sound) {
            return Err("walks are no costs of page walks".into());
        }
        if !costs.touches.is_none_or(TouchCosts::is_sound) {
            return Err("touches are no costs of first touches".into());
        }
        Ok(costs)
    }

    fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|source| LinuxError::File {
            doing: "reading the test's costs",
            path: path.into(),
            source,
        })?;
        Self::parse(&text).map_err(|why| LinuxError::File {
            doing: "reading the test's costs",
            path: path.into(),
            source: io::Error::new(io::ErrorKind::InvalidData, why),
        })
    }
}

static GIVEN: OnceLock<Option<TestCosts>> = OnceLock::new();

/// The costs of the file that `HAWKEYE_TEST_COSTS` names, read once; `None` where it is not set.
///
/// # Errors
/// The file can't be read, or does not hold costs.
pub fn given() -> Result<Option<&'static TestCosts>> {
    if let Some(given) = GIVEN.get() {
        return Ok(given.as_ref());
    }
    let path = std::env::var_os(VARIABLE).map(PathBuf::from);
    let costs = path.as_deref().map(TestCosts::read).transpose()?;
    if costs.is_some() {
        tracing::warn!("{VARIABLE} is set: costs are not measured, and decisions are for a test");
    }
    Ok(GIVEN.get_or_init(|| costs).as_ref())
}

/// Gives this process the costs of a file, as if `HAWKEYE_TEST_COSTS` named it: for tests that
/// manage within their own process. Without effect where costs were read before.
///
/// # Errors
/// As [`given`].
pub fn give(path: &Path) -> Result<()> {
    let costs = TestCosts::read(path)?;
    GIVEN.get_or_init(|| Some(costs));
    Ok(())
}

/// How long a promotion took: `took`, or the cost that a test gives. So much CPU time was used when this returns.
pub(crate) fn promotion_took(took: Duration) -> Duration {
    let given = given().ok().flatten().and_then(|costs| costs.promotion_us);
    let Some(cost) = given.map(Duration::from_micros) else {
        return took;
    };
    // Budgets count CPU time as well, of which the time that passes is any share on a busy machine.
    let before = thread_cpu();
    while thread_cpu().saturating_sub(before) < cost {
        hint::spin_loop();
    }
    cost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read_and_what_is_none_is_refused() {
        let costs = TestCosts::parse(r#"{"first_touch_ns": 50, "promotion_us": 5000}"#);
        let expected = TestCosts {
            first_touch_ns: Some(50),
            promotion_us: Some(5000),
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
            (r#"{"first_touch_ns": 100001}"#, "first_touch_ns must be"),
            (r#"{"walks": {"by_footprint": []}}"#, "missing field"),
        ] {
            let error = TestCosts::parse(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
