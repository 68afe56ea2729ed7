//! Programs to manage, each a process of its own.
//!
//! A workload uses memory in a known way, checks its contents, and uses a line protocol:
//! [`WorkloadEvent`]s as JSON objects on standard output, [`WorkloadRequest`]s as words on standard
//! input. [`run`] is the workload's side, [`WorkloadProcess`] that of its starter.

mod access;
mod bloat;
mod console;
pub mod core_set;
mod crowd;
mod error;
mod fragment;
mod grow;
mod key_value_client;
pub mod line_receiver;
mod memory;
mod one_tib;
mod patterned;
mod prelude;
mod process;
mod process_storms;
mod protocol;
pub mod rng;
mod shared;
mod stalls;
pub mod test_program;
mod torture;
mod touch;
mod workload_process;

pub use key_value_client::{AnswerLatencies, HotKeys, RequestSchedule};
pub use protocol::{WorkloadEvent, WorkloadReady, WorkloadRequest};
pub use stalls::FaultTimes;
pub use workload_process::{WorkloadProcess, WorkloadProcessError};

pub(crate) use rng::WorkloadRng;

use access::{AccessArgs, BlocksArgs, ZipfArgs};
use bloat::{BloatArgs, BurnerArgs};
use console::Console;
use crowd::CrowdArgs;
use error::{WorkloadError, WorkloadResult};
use fragment::FragmentArgs;
use grow::GrowArgs;
use key_value_client::AskArgs;
use one_tib::OneTibArgs;
use process_storms::{ExecArgs, ExitArgs, ForkStormArgs, ThreadStormArgs};
use shared::SharedArgs;
use stalls::StallsArgs;
use torture::TortureArgs;
use touch::TouchArgs;

/// The workloads and their options, to be embedded as a subcommand.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum WorkloadCommand {
    /// Read at random, mostly in a hot part at the highest addresses [default: 512 MiB].
    HotSpot(AccessArgs),
    /// Read independent random words of all memory.
    Random(AccessArgs),
    /// Read pages with a popularity by Zipf's law, scattered over all memory.
    Zipf(ZipfArgs),
    /// Read every word in address order, repeatedly.
    Sequential(AccessArgs),
    /// Read one word at equal distances, in address order (see --stride-bytes).
    Stride(AccessArgs),
    /// Chase pointers over one random cycle through all cache lines: dependent reads.
    Chase(AccessArgs),
    /// Read random words in many blocks that are mapped one by one, partly used, and replaced.
    Blocks(BlocksArgs),
    /// Hold mostly zero-filled memory; free, refill and verify it on request.
    Bloat(BloatArgs),
    /// Hold memory in full use; free, refill and verify it on request.
    Burner(BurnerArgs),
    /// Grow region by region, use a few pages of each, then verify.
    Grow(GrowArgs),
    /// Touch new memory in order or at random, and report the time.
    Touch(TouchArgs),
    /// Map a small file many times, and time mmap, munmap and page faults.
    OneTib(OneTibArgs),
    /// Touch new pages at equal intervals beside random reads, and time each page fault.
    Stalls(StallsArgs),
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
    /// Request random keys of a running Redis or memcached, or time single answers.
    Ask(AskArgs),
    /// Fragment free memory to a target, and hold it until the end of input.
    Fragment(FragmentArgs),
    /// Execute itself again after a delay.
    ExecSelf(ExecArgs),
    /// Touch memory, wait and exit.
    ExitAfter(ExitArgs),
}

/// Runs a workload in this process until it is done, gets `quit`, or is at the end of its input.
///
/// Nothing else may use standard output meanwhile.
pub fn run(command: &WorkloadCommand) -> WorkloadResult<()> {
    let mut console = Console::default();
    let result = match command {
        WorkloadCommand::HotSpot(args) => access::random(args, access::HOT_MIB, &mut console),
        WorkloadCommand::Random(args) => access::random(args, 0, &mut console),
        WorkloadCommand::Zipf(args) => access::zipf(args, &mut console),
        WorkloadCommand::Sequential(args) => access::stride(args, 8, &mut console),
        WorkloadCommand::Stride(args) => access::stride(args, args.stride_bytes, &mut console),
        WorkloadCommand::Chase(args) => access::chase(args, &mut console),
        WorkloadCommand::Blocks(args) => access::blocks(args, &mut console),
        WorkloadCommand::Bloat(args) => bloat::bloat(args, &mut console),
        WorkloadCommand::Burner(args) => bloat::burner(args, &mut console),
        WorkloadCommand::Grow(args) => grow::grow(args, &mut console),
        WorkloadCommand::Touch(args) => touch::touch(args, &mut console),
        WorkloadCommand::OneTib(args) => one_tib::one_tib(args, &mut console),
        WorkloadCommand::Stalls(args) => stalls::stalls(args, &mut console),
        WorkloadCommand::Torture(args) => torture::torture(args, &mut console),
        WorkloadCommand::ThreadStorm(args) => process_storms::thread_storm(args, &mut console),
        WorkloadCommand::ForkStorm(args) => process_storms::fork_storm(args, &mut console),
        WorkloadCommand::Crowd(args) => crowd::crowd(args, &mut console),
        WorkloadCommand::Shared(args) => shared::shared(args, &mut console),
        WorkloadCommand::Ask(args) => key_value_client::ask(args, &mut console),
        WorkloadCommand::Fragment(args) => fragment::fragment(args, &mut console),
        WorkloadCommand::ExecSelf(args) => process_storms::exec_self(args, &mut console),
        WorkloadCommand::ExitAfter(args) => process_storms::exit_after(args, &mut console),
    };
    if let Err(error) = &result {
        if !matches!(error, WorkloadError::Output(_)) {
            // The error itself is the answer; if no process reads it, nothing changes.
            let _ = console.emit(&WorkloadEvent::Error {
                message: error.to_string(),
            });
        }
    }
    result
}
