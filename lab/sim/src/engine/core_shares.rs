//! Division of the cores among threads.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CpuDemand {
    pub(super) threads: u32,
    /// Weight of each of these threads beside others (over 0).
    pub(super) weight: f64,
}

/// The share of a core that each thread gets (0-1), by demand. Shares are in proportion to weights,
/// and no thread gets more than a core. What some threads can't use goes to the others. A fair
/// scheduler divides time so among running threads (Linux, `kernel/sched/fair.c`).
pub(super) fn core_shares_by_demand(cores: u32, demands: &[CpuDemand]) -> Vec<f64> {
    let mut shares = vec![1.0; demands.len()];
    let mut limited = vec![true; demands.len()];
    loop {
        let rest = demands.iter().zip(&limited).filter(|(_, l)| **l);
        let wanted: f64 = rest.map(|(d, _)| f64::from(d.threads) * d.weight).sum();
        let whole = demands.iter().zip(&limited).filter(|(_, l)| !**l);
        let taken: u64 = whole.map(|(d, _)| u64::from(d.threads)).sum();
        let left = (f64::from(cores) - taken as f64).max(0.0);
        let mut settled = true;
        for ((demand, limited), share) in demands.iter().zip(&mut limited).zip(&mut shares) {
            if *limited {
                *share = if wanted > 0.0 { left * demand.weight / wanted } else { 1.0 };
                if *share >= 1.0 {
                    (*limited, *share, settled) = (false, 1.0, false);
                }
            }
        }
        if settled {
            return shares;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(cores: u32, demands: &[(u32, f64)]) -> Vec<f64> {
        let demands: Vec<_> =
            demands.iter().map(|&(threads, weight)| CpuDemand { threads, weight }).collect();
        core_shares_by_demand(cores, &demands)
    }

    #[test]
    fn with_enough_cores_each_has_a_whole_one_and_too_few_are_shared_by_weight() {
        assert_eq!(of(4, &[(1, 1.0), (2, 9.0), (1, 0.01)]), [1.0, 1.0, 1.0]);
        assert_eq!(of(4, &[]), Vec::<f64>::new());
        assert_eq!(of(1, &[(1, 1.0), (1, 3.0)]), [0.25, 0.75]);
        assert_eq!(of(2, &[(4, 1.0)]), [0.5]);
        assert_eq!(of(3, &[(2, 1.0), (2, 2.0)]), [0.5, 1.0]);
        // A demand for no threads takes nothing.
        assert_eq!(of(1, &[(0, 5.0), (1, 1.0)])[1], 1.0);
        // By weight alone the first would have 1.8 cores.
        assert_eq!(of(2, &[(1, 9.0), (1, 0.5), (1, 0.5)]), [1.0, 0.5, 0.5]);
    }

    proptest! {
        #[test]
        fn all_cores_are_used_and_no_more(
            cores in 1_u32..64,
            demands in prop::collection::vec((1_u32..16, 0.01_f64..100.0), 1..12),
        ) {
            let got = of(cores, &demands);
            prop_assert!(got.iter().all(|s| *s > 0.0 && *s <= 1.0), "{got:?}");
            let used: f64 = got.iter().zip(&demands).map(|(s, (t, _))| s * f64::from(*t)).sum();
            let threads: u32 = demands.iter().map(|(t, _)| t).sum();
            let expected = f64::from(cores.min(threads));
            prop_assert!((used - expected).abs() < 1e-6, "{used} of {expected}");
            // No thread with more weight has less.
            for (a, wa) in got.iter().zip(demands.iter().map(|d| d.1)) {
                for (b, wb) in got.iter().zip(demands.iter().map(|d| d.1)) {
                    prop_assert!(wa < wb || a + 1e-9 >= *b);
                }
            }
        }
    }
}
