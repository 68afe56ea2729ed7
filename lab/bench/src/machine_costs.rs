//! What the kernel's and the processor's work costs on this machine, measured from inside one process.
//!
//! No setting is changed: huge pages are had by `madvise`, and everything is memory of our own that is unmapped at
//! the end. Only the reading of page tables takes privileges. Each figure is the median of several turns, with the
//! least and the greatest, in nanoseconds; the first turn of each, in which a hypervisor may have to back memory, doesn't
//! count. Only an optimised build measures anything of worth.
//!
//! One file a kind of work; `caches.rs` and `sharing.rs` find out what lies between.

pub mod caches;
pub mod changing;
pub mod copying;
pub mod faults;
mod memory;
pub mod overlap;
pub mod sampling;
pub mod sharing;
pub mod shoot_down;

pub use crate::statistics::Spread;

use hawkeye_linux::LinuxError;

/// A figure, or why there is none.
pub type Found = Result<Spread, LinuxError>;

/// Turns of each measurement that count.
const TURNS: usize = 9;

/// The figures of some turns after one that doesn't count.
fn turns<const N: usize>(
    mut turn: impl FnMut() -> Result<[f64; N], LinuxError>,
) -> Result<[Spread; N], LinuxError> {
    turn()?;
    let mut figures: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
    for _ in 0..TURNS {
        for (all, one) in figures.iter_mut().zip(turn()?) {
            all.push(one);
        }
    }
    Ok(figures.map(Spread::of))
}

/// Why something could not be measured.
fn not_here(why: &'static str) -> LinuxError {
    LinuxError::NotMeasured(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_from_the_least_to_the_greatest() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]);
        assert_eq!(
            (spread.median, spread.low, spread.high, spread.turns),
            (2.0, 1.0, 3.0, 3)
        );
        assert_eq!(spread.map(|ns| ns * 2.0).high, 6.0);
        assert_eq!(Spread::of(Vec::new()).turns, 0);
    }

    #[test]
    fn the_first_turn_does_not_count() {
        let mut turn = 0.0;
        let found = turns(|| {
            turn += 1.0;
            Ok([turn])
        });
        let [spread] = found.expect("nothing failed");
        assert_eq!((spread.low, spread.turns), (2.0, TURNS));
    }
}
