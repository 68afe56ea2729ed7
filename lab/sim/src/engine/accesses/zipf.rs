//! Sums over many pages by Zipf's law.

use super::touched;

/// Ranks by Zipf's law: each of the first alone, the others in groups of growing width. Each item
/// is the chance of an access to one rank of the group, in units of the first rank's, and the
/// group's width.
pub(super) fn ranks(pages: f64, theta: f64) -> impl Iterator<Item = (f64, f64)> {
    const EXACT: f64 = 1000.0;
    /// Width of a group over its first rank.
    const STEP: f64 = 0.01;
    let mut rank = 1.0;
    std::iter::from_fn(move || {
        if rank > pages {
            return None;
        }
        let width = if rank < EXACT {
            1.0
        } else {
            (rank * STEP).floor()
        };
        let width = width.min(pages - rank + 1.0);
        let chance = (rank + (width - 1.0) / 2.0).powf(-theta);
        rank += width;
        Some((chance, width))
    })
}

/// The share of pages that `accesses` touch by Zipf's law.
pub(super) fn share_touched(accesses: f64, pages: f64, theta: f64, total: f64) -> f64 {
    let sum: f64 = ranks(pages, theta)
        .map(|(chance, width)| width * touched(accesses * chance / total))
        .sum();
    sum / pages
}
