//! One file a command.

pub mod attach;
pub mod bench;
pub mod demo;
pub mod doctor;
mod managing;
pub mod restore;
pub mod run;
