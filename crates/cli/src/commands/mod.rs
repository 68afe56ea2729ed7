//! One file a command.

pub mod advise;
mod asking;
pub mod attach;
pub mod bench;
mod choosing;
pub mod daemon;
pub mod demo;
pub mod doctor;
mod filling;
pub mod generate;
mod managing;
pub mod pausing;
pub mod record;
pub mod report;
pub mod restore;
pub mod run;
pub mod sim;
pub mod status;
pub mod top;
pub mod why;
mod zeroing;
