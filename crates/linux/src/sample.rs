//! What is seen of a process's memory: accesses, population, contents, and the cost of its page
//! walks.
//!
//! ```text
//!  sampler                  access coverage and page walks, one file for each way to see them
//!    |-- page_table_reader    by BPF: accessed bits, contents of pages, without the target's locks
//!    |-- pagemap              by /proc: which pages are there
//!    |-- partly_mapped        which of them are what is left of a huge page
//!    `-- shared_pages         which of them other processes map too
//!  counters                 overhead by hardware counters
//!  walk_costs               what a page walk costs on this machine
//!  process_meter            all of it for one process, for `advise`
//!  population_survey        population of all processes, for forecasts
//!  zero_filled_pages        base pages that programs filled with zeros, for forecasts
//!  shared_memory_survey     files of shared memory that all processes map, for `advise`
//! ```
//!
//! Read [`sampler`] first, then [`page_table_reader`].

pub mod counters;
pub mod page_table_reader;
pub mod pagemap;
pub(crate) mod partly_mapped;
pub mod population_survey;
pub mod process_meter;
pub mod random;
pub mod sampler;
pub mod shared_memory_survey;
pub mod shared_pages;
pub mod walk_costs;
mod zero_filled_pages;
