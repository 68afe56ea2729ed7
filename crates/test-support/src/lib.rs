//! Code shared by the tests of several crates: a scripted machine, constructors of events, skipped
//! tests, and checks of every command's help. For tests only: the product does not depend on it.
//!
//! ```text
//!  ScriptedProgram --> ScriptedMachine <--Machine's calls--> Manager --> promotions, recoveries
//!                      (scripted_machine)            (builders makes both, and reads results)
//! ```
//!
//! A test of the manager's loop starts from [`builders`]: read it first, then [`scripted_machine`].
//! The other modules stand alone: [`event_constructors`] makes processes and events, [`test_skips`]
//! names a test and records that it was skipped, [`command_help`] checks the help of a program.

pub mod builders;
pub mod command_help;
pub mod event_constructors;
pub mod scripted_machine;
pub mod test_skips;
