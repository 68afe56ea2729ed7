//! How many promotions may be done.

use super::rate::{Rate, TokenBucket};
use serde::Serialize;
use std::time::Duration;
use thiserror::Error;

/// Why no further promotion is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize)]
#[serde(tag = "spent", rename_all = "kebab-case")]
pub enum Spent {
    /// All there will ever be.
    #[error("all {max} promotions of the budget are spent")]
    Total {
        /// How many there were.
        max: u64,
    },
    /// The rate; time brings more.
    #[error("the promotion rate is used up until {:.3} s", ready_at.as_secs_f64())]
    Rate {
        /// When the next one can be taken, on the clock of the call.
        ready_at: Duration,
    },
}

/// How many promotions may be done, in total and per second. Only what succeeds is paid for.
#[derive(Clone, Copy, Debug, Default)]
pub struct PromotionBudget {
    max: Option<u64>,
    spent: u64,
    bucket: Option<TokenBucket>,
}

impl PromotionBudget {
    /// At most `max` in total and `rate` per second (with a second's worth at once); `None`: as many
    /// as there are.
    pub fn new(max: Option<u64>, rate: Option<Rate>) -> Self {
        Self {
            max,
            spent: 0,
            bucket: rate.map(TokenBucket::one_second),
        }
    }

    /// Pays for one promotion, or says why not.
    pub fn take(&mut self, now: Duration) -> Result<(), Spent> {
        if let Some(max) = self.max.filter(|max| self.spent >= *max) {
            return Err(Spent::Total { max });
        }
        if let Some(bucket) = &mut self.bucket {
            if !bucket.take(now, 1) {
                return Err(Spent::Rate {
                    ready_at: bucket.ready_at(now),
                });
            }
        }
        self.spent += 1;
        Ok(())
    }

    /// Returns the price of a promotion that was not carried out.
    pub fn give_back(&mut self) {
        // What was not taken can't be returned.
        if self.spent > 0 {
            self.spent -= 1;
            if let Some(bucket) = &mut self.bucket {
                bucket.give_back(1);
            }
        }
    }

    /// Promotions paid for and not given back.
    pub fn spent(&self) -> u64 {
        self.spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::SettingError;
    use crate::testing::at;

    #[test]
    fn promotions_end_at_the_total() {
        let mut budget = PromotionBudget::new(Some(2), None);
        assert_eq!(budget.take(at(0)), Ok(()));
        budget.give_back();
        budget.give_back();
        assert_eq!(budget.take(at(0)), Ok(()));
        assert_eq!(budget.take(at(0)), Ok(()));
        let refused = budget.take(at(1000));
        assert_eq!(refused, Err(Spent::Total { max: 2 }));
        assert_eq!(budget.spent(), 2);
        assert_eq!(
            PromotionBudget::new(Some(0), None).take(at(0)),
            Err(Spent::Total { max: 0 })
        );
    }

    #[test]
    fn promotions_keep_to_the_rate() -> Result<(), SettingError> {
        let mut budget = PromotionBudget::new(None, Some(Rate::per_second(4.0)?));
        let now = at(1);
        for _ in 0..4 {
            assert_eq!(budget.take(now), Ok(()));
        }
        let Err(Spent::Rate { ready_at }) = budget.take(now) else {
            panic!("rate not kept")
        };
        assert!(ready_at >= now + Duration::from_millis(250));
        assert_eq!(budget.take(ready_at), Ok(()));
        Ok(())
    }
}
