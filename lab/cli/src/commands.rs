//! One file a command.

pub mod bench;
pub mod calibrate;
pub mod demo;
pub mod itanium;
pub mod predict;
pub mod sim;
pub mod verify;
