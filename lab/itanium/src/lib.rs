//! Itanium Linux with many page sizes: I. Wienand, "Transparent Large-Page Support for Itanium
//! Linux" (University of New South Wales, 2008), the third system beside x86 Linux and HawkEye.
//!
//! # The model
//!
//! ```text
//!  ThesisWorkload --mappings, touches--> kernel::ItaniumMachine
//!                                          |-- mmu: a hit in the TLB, or the walker
//!                                          |-- kernel: a miss handler, a fault, a page size
//!                                          v
//!  ItaniumRunFigures <-- costs of events --- ItaniumCounters
//! ```
//!
//! - [`mmu`]: TLBs with region ids and entries of any page size, and the hardware walker in its two
//!   forms.
//! - [`kernel`]: the machine with its kernel: page sizes chosen at `mmap`, memory at first touch,
//!   splitting, TLB-miss handlers.
//! - [`workloads`]: the thesis' programs, as mappings and touches that depend on no system.
//! - Events are counted exactly. Time is the sum of counts times their costs
//!   ([`mmu::EventCycleCosts`]).
//! - Each reference is to the data of one program on one processor.
//!
//! Left out: data caches (walks, tables and programs share no lines; each cost is an average),
//! instruction TLBs (text is never on large pages, thesis, section 5.5.2), access and dirty bits,
//! protection keys, files, swap.
//!
//! Values that the thesis does not state come from one of two sources. They are from the patches
//! for the long format that its author and his colleagues published, or they are chosen. The
//! definition of each value names its source.
//!
//! ```
//! use hawkeye_itanium::workloads::{LinearWorkload, ThesisWorkload};
//! use hawkeye_itanium::{MachineSettings, simulate_workload};
//!
//! // A GiB, page by page, is 65,536 misses. The walker fills all but the first miss of each page
//! // of the page table.
//! let workload = ThesisWorkload::Linear(LinearWorkload::THESIS);
//! let figures = simulate_workload(&MachineSettings::default(), &workload, 1)?;
//! assert_eq!((figures.counters.walker, figures.counters.nested), (65_504, 32));
//! # Ok::<(), hawkeye_itanium::ItaniumError>(())
//! ```

pub mod address;
mod error;
pub mod kernel;
pub mod mmu;
mod simulate_workload;
pub mod workloads;

pub use error::{ItaniumError, ModelContradiction, Result};
pub use kernel::{ItaniumMachine, MachineSettings, PageSizeAdvice};
pub use simulate_workload::{ItaniumRunFigures, simulate_workload};
