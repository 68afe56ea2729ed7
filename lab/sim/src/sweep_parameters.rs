//! Sweeps vary one parameter. This module defines the parameters and how their values are written.
//!
//! A parameter is a dotted key into one of five parts of a run:
//!
//! | key | is |
//! |---|---|
//! | `machine.KEY` | `memory`, `cores`, `fragment`, `seed`, `sample`, `longest_s` |
//! | `processor.KEY` | any of the [processor](crate::mmu::ProcessorSpec)'s data: `processor.l2_tlb.shape.entries`; or `processor` alone: its name |
//! | `costs.KEY` | any of the [kernel's costs](crate::kernel::KernelCosts): `costs.zero_huge_ns` |
//! | `system.KEY` | `rate_per_s`, or any of [`SystemOverrides`](crate::SystemOverrides): `system.period_s` |
//! | `workload.KEY` | anything that a workload's file says; processes and areas by name or number from 0, phases and streams by number: `workload.process.0.area.heap.size` |

mod sweep_parameter;
mod values;

pub use sweep_parameter::{SweepBase, SweepError, SweepParameter};
pub use values::{ValuesError, parse_values};
