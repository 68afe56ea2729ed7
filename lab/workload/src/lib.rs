//! Programs to manage, each a process of its own.
//!
//! A workload uses memory in a known way, checks its contents, and uses a line protocol:
//!
//! ```text
//!  starter                                        workload process
//!  WorkloadProcess --WorkloadRequest (words)----> console --> access, torture, grow, touch, ...
//!  (workload_process) <--WorkloadEvent (JSON)---- console <--   `-- memory: every read and write
//! ```
//!
//! [`run_workload`] is the workload's side, [`WorkloadProcess`] that of its starter. Read
//! [`WorkloadCommand`], the list of the workloads, then `protocol`, then one workload: `grow` is
//! short. All workloads read and write memory in `memory`; `patterned_memory` adds known
//! contents.

mod access;
mod arch;
mod console;
pub mod core_set;
mod crowd;
mod error;
mod executable_memory;
mod fragment;
mod grow;
mod key_value_client;
pub mod line_reader_thread;
mod memory;
mod memory_file;
mod memory_holding_workloads;
mod one_tib;
mod page_fault_stalls;
mod patterned_memory;
mod prelude;
mod process;
mod process_storms;
mod protocol;
mod rate_schedule;
mod read_stalls;
pub mod rng;
mod shared;
mod shared_file;
mod shared_file_torture;
pub mod test_program;
mod text;
mod torture;
mod touch;
mod workload_process;

pub use key_value_client::{AnswerLatencies, HotKeyShares, RequestSchedule};
pub use memory_file::{create_memory_file, path_for_other_processes};
pub use page_fault_stalls::PageFaultTimes;
pub use protocol::{WorkloadEvent, WorkloadReady, WorkloadRequest};
pub use shared_file::page_of_shared_file;
pub use workload_process::{WorkloadProcess, WorkloadProcessError};

pub(crate) use rng::WorkloadRng;

use access::{BlocksArgs, ReadWorkloadArgs, SparseArgs, ZipfArgs};
use console::Console;
use crowd::CrowdArgs;
use error::{WorkloadError, WorkloadResult};
use fragment::FragmentArgs;
use grow::GrowArgs;
use key_value_client::KeyValueClientArgs;
use memory_holding_workloads::{BloatArgs, FullyUsedMemoryArgs};
use one_tib::OneTibArgs;
use page_fault_stalls::PageFaultStallsArgs;
use process_storms::{ExecSelfArgs, ExitAfterArgs, ForkStormArgs, ThreadStormArgs};
use read_stalls::ReadStallsArgs;
use shared::SharedArgs;
use shared_file::SharedFileArgs;
use shared_file_torture::SharedFileTortureArgs;
use text::TextArgs;
use torture::TortureArgs;
use touch::TouchArgs;

/// The workloads and their options, to be embedded as a subcommand.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum WorkloadCommand {
    /// Read at random, mostly in a hot part at the highest addresses [default: 512 MiB].
    HotSpot(ReadWorkloadArgs),
    /// Read independent random words of all memory.
    Random(ReadWorkloadArgs),
    /// Read pages with a popularity by Zipf's law, scattered over all memory.
    Zipf(ZipfArgs),
    /// Read every word in address order, repeatedly.
    Sequential(ReadWorkloadArgs),
    /// Read one word at equal distances, in address order (see --stride-bytes).
    Stride(ReadWorkloadArgs),
    /// Chase pointers over one random cycle through all cache lines: dependent reads.
    Chase(ReadWorkloadArgs),
    /// Read random words in many blocks that are mapped one by one, partly used, and replaced.
    Blocks(BlocksArgs),
    /// Read at random in regions of which a part of the base pages holds data.
    Sparse(SparseArgs),
    /// Hold mostly zero-filled memory; free, refill, verify and share it on request.
    Bloat(BloatArgs),
    /// Hold memory in full use; free, refill, verify and share it on request.
    Burner(FullyUsedMemoryArgs),
    /// Grow region by region, use a few pages of each, then verify.
    Grow(GrowArgs),
    /// Touch new memory in order or at random, and report the time.
    Touch(TouchArgs),
    /// Map a small file many times, and time mmap, munmap and page faults.
    OneTib(OneTibArgs),
    /// Touch new pages at equal intervals beside random reads, and time each page fault.
    Stalls(PageFaultStallsArgs),
    /// Read a word of each region of private or shared memory at equal intervals, and time the
    /// longest read.
    ReadStalls(ReadStallsArgs),
    /// Write and verify memory in threads that remap, fork, free and protect it.
    Torture(TortureArgs),
    /// Start and join threads repeatedly.
    ThreadStorm(ThreadStormArgs),
    /// Fork children that write to memory and exit, repeatedly.
    ForkStorm(ForkStormArgs),
    /// Run many small processes, and replace some of them each second.
    Crowd(CrowdArgs),
    /// Share memory between forked workers, copy-on-write, or by KSM.
    Shared(SharedArgs),
    /// Map one file of shared memory in several processes, and read it at random.
    SharedFile(SharedFileArgs),
    /// Write, truncate, punch, unmap and verify one file of shared memory in several processes.
    SharedFileTorture(SharedFileTortureArgs),
    /// Call functions of generated machine code in a mapped file, in random order.
    Text(TextArgs),
    /// Request random keys of a running Redis or memcached, or time single answers.
    Ask(KeyValueClientArgs),
    /// Fragment free memory to a target, and hold it until the end of input.
    Fragment(FragmentArgs),
    /// Execute itself again after a delay.
    ExecSelf(ExecSelfArgs),
    /// Touch memory, wait and exit.
    ExitAfter(ExitAfterArgs),
}

/// Runs a workload in this process until it is done, gets `quit`, or is at the end of its input.
///
/// Nothing else may use standard output meanwhile.
pub fn run_workload(command: &WorkloadCommand) -> WorkloadResult<()> {
    let mut console = Console::default();
    let result = match command {
        WorkloadCommand::HotSpot(args) => {
            access::run_random_reads(args, access::HOT_MIB, &mut console)
        }
        WorkloadCommand::Random(args) => access::run_random_reads(args, 0, &mut console),
        WorkloadCommand::Zipf(args) => access::run_zipf_reads(args, &mut console),
        WorkloadCommand::Sequential(args) => access::run_strided_reads(args, 8, &mut console),
        WorkloadCommand::Stride(args) => {
            access::run_strided_reads(args, args.stride_bytes, &mut console)
        }
        WorkloadCommand::Chase(args) => access::run_pointer_chase(args, &mut console),
        WorkloadCommand::Blocks(args) => access::run_block_reads(args, &mut console),
        WorkloadCommand::Sparse(args) => access::run_sparse_reads(args, &mut console),
        WorkloadCommand::Bloat(args) => memory_holding_workloads::run_bloat(args, &mut console),
        WorkloadCommand::Burner(args) => {
            memory_holding_workloads::run_fully_used_memory(args, &mut console)
        }
        WorkloadCommand::Grow(args) => grow::run_grow(args, &mut console),
        WorkloadCommand::Touch(args) => touch::run_touch(args, &mut console),
        WorkloadCommand::OneTib(args) => one_tib::run_one_tib(args, &mut console),
        WorkloadCommand::Stalls(args) => {
            page_fault_stalls::run_page_fault_stalls(args, &mut console)
        }
        WorkloadCommand::ReadStalls(args) => read_stalls::run_read_stalls(args, &mut console),
        WorkloadCommand::Torture(args) => torture::run_torture(args, &mut console),
        WorkloadCommand::ThreadStorm(args) => process_storms::run_thread_storm(args, &mut console),
        WorkloadCommand::ForkStorm(args) => process_storms::run_fork_storm(args, &mut console),
        WorkloadCommand::Crowd(args) => crowd::run_crowd(args, &mut console),
        WorkloadCommand::Shared(args) => shared::run_shared(args, &mut console),
        WorkloadCommand::SharedFile(args) => shared_file::run_shared_file(args, &mut console),
        WorkloadCommand::SharedFileTorture(args) => {
            shared_file_torture::run_shared_file_torture(args, &mut console)
        }
        WorkloadCommand::Text(args) => text::run_text(args, &mut console),
        WorkloadCommand::Ask(args) => key_value_client::run_key_value_client(args, &mut console),
        WorkloadCommand::Fragment(args) => fragment::run_fragment(args, &mut console),
        WorkloadCommand::ExecSelf(args) => process_storms::run_exec_self(args, &mut console),
        WorkloadCommand::ExitAfter(args) => process_storms::run_exit_after(args, &mut console),
    };
    if let Err(error) = &result {
        if !matches!(error, WorkloadError::Output(_)) {
            // The error itself is the answer; if no process reads it, nothing changes.
            let _ = console.emit_event(&WorkloadEvent::Error { message: error.to_string() });
        }
    }
    result
}
