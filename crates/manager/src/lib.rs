//! The loop between a [`Machine`] and a policy.
#![forbid(unsafe_code)]

pub mod config;
pub mod journal;
pub mod machine;
pub mod manager;
pub mod settings;
pub mod view;

pub use journal::{Entry, Event, FootprintPoint, Journal, Pace, ProcessTotals, Totals};
pub use machine::{
    Description, Footprint, LatePromotion, LearnedSizes, Machine, MachineError, NO_HUGE_PAGE,
    NotAnswering, Progress, Promoted, Recovered, Wake, ZeroScan,
};
pub use manager::Manager;
pub use settings::Settings;
pub use view::{Explanation, Status};
