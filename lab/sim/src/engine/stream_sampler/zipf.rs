//! Sums over many pages by Zipf's law.

/// Ranks by Zipf's law: each of the first alone, the others in groups of growing width. Each item
/// is the chance of an access to one rank of the group, in units of the first rank's, and the
/// group's width.
pub(super) fn zipf_rank_groups(pages: f64, theta: f64) -> impl Iterator<Item = (f64, f64)> {
    const EXACT: f64 = 1000.0;
    /// Width of a group over its first rank.
    const STEP: f64 = 0.01;
    let mut rank = 1.0;
    std::iter::from_fn(move || {
        if rank > pages {
            return None;
        }
        let width = if rank < EXACT { 1.0 } else { (rank * STEP).floor() };
        let width = width.min(pages - rank + 1.0);
        let chance = (rank + (width - 1.0) / 2.0).powf(-theta);
        rank += width;
        Some((chance, width))
    })
}
