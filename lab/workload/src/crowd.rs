//! Many small processes, some of which end and are replaced each second.

use crate::console::Console;
use crate::error::WorkloadError;
use crate::memory::{Mapping, PAGE, Pages, REGION};
use crate::storm::{Clock, HoldArgs, hold, ready};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

/// Options of `crowd`.
#[derive(Clone, Debug, clap::Args)]
pub struct CrowdArgs {
    /// Processes at a time.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub processes: u32,
    /// How many of them end and are replaced each second.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=2_000))]
    pub per_s: u32,
    /// Memory that each touches, in KiB.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(0..=1 << 20))]
    pub each_kib: u64,
    /// Memory of the parent, and duration.
    #[command(flatten)]
    pub hold: HoldArgs,
}

/// Between two looks at who is to be replaced.
const TICK: Duration = Duration::from_millis(20);

pub(super) fn crowd(args: &CrowdArgs, console: &mut Console) -> Result<(), WorkloadError> {
    let memory = hold(args.hold.mib, args.hold.pages)?;
    // Mapped by the parent and touched by each child: a child must not allocate.
    let bytes = ((args.each_kib as usize) << 10).next_multiple_of(REGION);
    let mut each = Mapping::private(bytes, Pages::Base, |_| {})?;
    let pages = (args.each_kib << 10) as usize / PAGE;
    let mut crowd = VecDeque::with_capacity(args.processes as usize);
    for _ in 0..args.processes {
        crowd.push_back(Bystander::start(&mut each, pages)?);
    }
    ready(&memory, 0, console)?;
    let (begun, mut replaced) = (Instant::now(), 0.0);
    let mut clock = Clock::new(&args.hold);
    while clock.goes_on(console, TICK)? {
        while replaced < begun.elapsed().as_secs_f64() * f64::from(args.per_s) {
            // The oldest ends before its place is taken.
            drop(crowd.pop_front());
            crowd.push_back(Bystander::start(&mut each, pages)?);
            replaced += 1.0;
        }
    }
    Ok(())
}

/// A child that touches memory and then only waits; dropping it ends it.
struct Bystander(libc::pid_t);

impl Bystander {
    fn start(memory: &mut Mapping, pages: usize) -> Result<Self, WorkloadError> {
        // SAFETY: the child writes to memory and makes system calls, and never returns.
        match unsafe { libc::fork() } {
            -1 => Err(WorkloadError::system("fork")(io::Error::last_os_error())),
            0 => {
                // SAFETY: async-signal-safe calls; a parent that is killed takes its children along.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                for page in 0..pages {
                    memory.write(page * PAGE, 1);
                }
                loop {
                    // SAFETY: async-signal-safe.
                    unsafe { libc::pause() };
                }
            }
            pid => Ok(Self(pid)),
        }
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let mut status = 0;
        // SAFETY: a child of ours that nobody else waits for; `status` is ours.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, &raw mut status, 0);
        }
    }
}
