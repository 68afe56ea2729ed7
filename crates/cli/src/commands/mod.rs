//! One file a command.

pub mod advise;
mod asking;
pub mod attach;
mod choosing;
pub mod daemon;
pub mod demo;
pub mod doctor;
mod filling;
mod managing;
pub mod pausing;
pub mod record;
pub mod report;
pub mod restore;
pub mod run;
pub mod status;
pub mod top;
pub mod why;
mod zeroing;
