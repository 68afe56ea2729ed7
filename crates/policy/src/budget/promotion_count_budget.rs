//! Limits on the number of promotions.

use super::token_bucket::{RatePerSecond, TokenBucket};
use std::time::Duration;

/// Why no further promotion is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromotionBudgetExhausted {
    /// The total number of promotions is used up.
    Total {
        /// The number.
        max: u64,
    },
    /// The rate is used up; more become available with time.
    Rate {
        /// When the next promotion is allowed, on the clock of the call.
        ready_at: Duration,
    },
}

/// Number of promotions allowed, in total and per second. Only successful ones count.
#[derive(Clone, Copy, Debug, Default)]
pub struct PromotionCountBudget {
    max: Option<u64>,
    spent: u64,
    bucket: Option<TokenBucket>,
}

impl PromotionCountBudget {
    /// At most `max` in total and `rate` per second (with one second's worth at once); `None`: no
    /// limit.
    pub fn new(max: Option<u64>, rate: Option<RatePerSecond>) -> Self {
        Self { max, spent: 0, bucket: rate.map(TokenBucket::with_one_second_burst) }
    }

    /// Takes one promotion from the budget, or returns why there is none.
    pub fn take_promotion(&mut self, now: Duration) -> Result<(), PromotionBudgetExhausted> {
        if let Some(max) = self.max.filter(|max| self.spent >= *max) {
            return Err(PromotionBudgetExhausted::Total { max });
        }
        if let Some(bucket) = &mut self.bucket {
            if !bucket.try_take_tokens(now, 1) {
                return Err(PromotionBudgetExhausted::Rate { ready_at: bucket.next_token_at(now) });
            }
        }
        self.spent += 1;
        Ok(())
    }

    /// Returns a promotion that was not carried out to the budget.
    pub fn give_back_promotion(&mut self) {
        // A promotion that was not taken cannot be returned.
        if self.spent > 0 {
            self.spent -= 1;
            if let Some(bucket) = &mut self.bucket {
                bucket.give_back_tokens(1);
            }
        }
    }

    /// Promotions taken and not given back.
    pub fn count_spent_promotions(&self) -> u64 {
        self.spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting_error::SettingError;
    use crate::test_support::at_second;

    #[test]
    fn promotions_end_at_the_total() {
        let mut budget = PromotionCountBudget::new(Some(2), None);
        assert_eq!(budget.take_promotion(at_second(0)), Ok(()));
        budget.give_back_promotion();
        budget.give_back_promotion();
        assert_eq!(budget.take_promotion(at_second(0)), Ok(()));
        assert_eq!(budget.take_promotion(at_second(0)), Ok(()));
        let reached = |max| Err(PromotionBudgetExhausted::Total { max });
        assert_eq!(budget.take_promotion(at_second(1000)), reached(2));
        assert_eq!(budget.count_spent_promotions(), 2);
        let mut none = PromotionCountBudget::new(Some(0), None);
        assert_eq!(none.take_promotion(at_second(0)), reached(0));
    }

    #[test]
    fn promotions_keep_to_the_rate() -> Result<(), SettingError> {
        let mut budget = PromotionCountBudget::new(None, Some(RatePerSecond::new(4.0)?));
        let now = at_second(1);
        for _ in 0..4 {
            assert_eq!(budget.take_promotion(now), Ok(()));
        }
        let Err(PromotionBudgetExhausted::Rate { ready_at }) = budget.take_promotion(now) else {
            panic!("promotions exceed the rate")
        };
        assert!(ready_at >= now + Duration::from_millis(250));
        assert_eq!(budget.take_promotion(ready_at), Ok(()));
        Ok(())
    }
}
