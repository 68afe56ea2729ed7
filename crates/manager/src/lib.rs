//! The loop between a [`Machine`] and a policy.
#![forbid(unsafe_code)]

pub mod journal;
pub mod machine;
pub mod manager;
pub mod settings;
pub mod view;

pub use journal::{Entry, Event, FootprintPoint, Journal, Pace, ProcessTotals, Totals};
pub use machine::{
    Description, Explain, FaultPageSizes, Footprint, LatePromotion, LearnedSizes, Machine,
    MachineError, NotAnswering, OwnCosts, Prefault, Progress, Promoted, Recovered, Sampling,
    Unanswered, Wake, ZeroScan,
};
pub use manager::Manager;
pub use settings::Settings;
pub use view::{Explanation, Status};
