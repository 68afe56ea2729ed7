//! Run-rate: how fast a process causes page walks, seen from the pages it touches in short windows,
//! and what that costs it on this machine. No hardware counters.
//!
//! The paper leaves open how to tell, without counters, a process that suffers from translation from
//! one that doesn't (section 4, HawkEye-PMU against HawkEye-G): over a second, random and sequential
//! access look the same. Here a few regions at a time are cleared *with* their TLB entries, and read
//! several times within milliseconds ([`plan`]). Every page found marked is a page walk. Because it is a
//! random part of the process that is looked at, rates far above what a hypervisor lets through
//! (it intercepts each first touch) can be seen, and the process hardly notices.
//!
//! What is marked is told apart by how it lies ([`shape`]): streams of neighbours, strides, and
//! scattered pages have walks of different cost ([`costs`]), measured on the machine at start-up. What chance adds to the
//! counts of single regions is told from what is theirs (`chance`). [`estimate`] puts it together.
//!
//! ```text
//!  plan: regions to probe --> marks --> shape --> chance --> estimate: Overhead, walks of each region
//!                                                               ^
//!                                 costs of a walk here (costs) -'
//! ```

mod chance;
pub mod costs;
pub mod estimate;
pub mod plan;
pub mod shape;

pub use costs::{DistanceCost, FootprintCosts, WalkCosts};
pub use estimate::{Estimate, Estimator, RegionMarks, RegionWalks, WORTH_CORES};
pub use plan::{INTERCEPTED, Probe, ProbeSettings, RoundPlan};
pub use shape::{PageBits, Shape};
