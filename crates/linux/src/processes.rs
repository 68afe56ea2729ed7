//! The machine's processes: which there are, what they hold, and which of them are managed.
//!
//! ```text
//!  proc_scanner --> process_selector --> managed_processes   found, chosen by the rules, managed
//!    |                |
//!    |-- exec_tracer  `-- process_attributes,       programs just started; command, unit, pod;
//!    |                    user_names,               user;
//!    |                    profile_requests          the profile that a unit, cgroup or pod asks for
//!    v
//!  process                                      one process, by a handle that survives pid reuse
//!    `-- mappings, memory_maps,                 its memory, and what decides about huge pages
//!        huge_page_context,                     of one process, for people: shared memory and
//!        shared_mappings, program_text, mounts  program text that cannot become huge;
//!        file_mappers                           which processes map a file
//! ```
//!
//! Read [`process`] first, then `process_selector` (pure) and `managed_processes`. Files of
//! processes are read in threads where their owner could delay the answer: `background_task` for
//! one answer, `process_reader_thread` for one process after the other.

pub(crate) mod background_task;
pub mod client_credentials;
pub mod descriptor_limit;
pub(crate) mod exec_tracer;
pub mod file_mappers;
#[cfg(test)]
pub(crate) mod hostile_elf;
pub mod huge_page_context;
pub(crate) mod join_pauses;
pub(crate) mod managed_processes;
pub(crate) mod mapping_records;
pub mod mappings;
pub(crate) mod memory_maps;
pub(crate) mod mounts;
pub(crate) mod own_pid_namespace;
pub mod proc_scanner;
pub mod process;
pub(crate) mod process_attributes;
pub(crate) mod process_reader_thread;
pub(crate) mod process_selector;
pub mod profile_requests;
pub mod program_allocator;
pub mod program_text;
pub mod schedstat;
pub mod shared_mappings;
pub(crate) mod user_names;

pub use process_attributes::read_process_attributes;
pub use user_names::UserNames;
