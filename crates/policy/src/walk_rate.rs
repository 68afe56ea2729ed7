//! Walk-rate sampling: estimates how fast a process causes page walks, and their cost on this
//! machine. It uses the pages that the process touches in short windows, and no hardware counters.
//!
//! The paper leaves open how to find, without counters, a process that suffers from translation
//! (section 4, HawkEye-PMU against HawkEye-G). Over a second, random and sequential access look the
//! same. Here a few regions at a time are cleared *with* their TLB entries, and read several times
//! within milliseconds ([`region_probe_plan`]). Every page found marked is a page walk. Only a
//! random part of the process is sampled. So rates show that are far above what a hypervisor lets
//! through (it intercepts each first touch), and the process hardly slows down.
//!
//! Marked pages are classified by how they lie ([`touched_pages_by_pattern`]). Walks of streams of
//! neighbours, strides and scattered pages differ in cost ([`walk_costs`]), which is measured on
//! the machine at start-up. `expected_touch_rates` separates the effect of chance on the counts of
//! single regions from their true rates. [`overhead_estimator`] combines all of this. A huge page
//! has one access bit: [`access_interval`].
//!
//! ```text
//!  region_probe_plan --> marks --> touched_pages_by_pattern --> expected_touch_rates
//!                                                                        |
//!   costs of a walk here (walk_costs) --> overhead_estimator <-----------'
//!                                             `-> TranslationOverhead, and walks of each region
//! ```

pub mod access_interval;
mod confidence_interval;
mod expected_touch_rates;
pub mod overhead_estimator;
pub mod region_probe_plan;
pub mod touched_pages_by_pattern;
pub mod walk_costs;

pub use overhead_estimator::{
    OverheadEstimate, OverheadEstimator, RegionAccessBits, RegionWalksPerSecond, WORTH_CORES,
};
pub use region_probe_plan::{INTERCEPTED, ProbeRoundPlan, RegionProbePlan, RegionProbeSettings};
pub use touched_pages_by_pattern::{PageBitmap, TouchedPagesByPattern};
pub use walk_costs::{WalkCostAtInterval, WalkCosts, WalkCostsAtFootprint};
