//! Traces as workloads.

use anyhow::Result;
use clap::Args;
use hawkeye_sim::trace::BadRecords;
use hawkeye_sim::workloads::{Tape, Workload, traced};
use std::path::Path;

/// How a trace is played, where a workload is one.
#[derive(Args)]
#[command(next_help_heading = "Traces")]
pub struct Tracing {
    /// How often it is played, one time after the other.
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    trace_repeat: u32,

    /// The program's own work for each instruction, all but translation.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "CYCLES",
        default_value_t = 1.0
    )]
    trace_cycles: f64,

    /// The same for each access, where the trace has no instructions.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "CYCLES",
        default_value_t = 4.0
    )]
    trace_access_cycles: f64,

    /// How much of each page walk the program waits for: less than 100 where other work goes on
    /// meanwhile.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "PERCENT",
        default_value_t = 100.0
    )]
    trace_waited: f64,

    /// Each access counts as N like it, one after the other: a short trace, or one of samples,
    /// stands for a long run.
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 1.0)]
    trace_scale: f64,

    /// Leave out lines and records that are not of the trace's format, and say how many; without it
    /// the first is an error.
    #[arg(long, hide_short_help = true)]
    trace_skip_bad: bool,
}

impl Tracing {
    /// A trace as a workload.
    pub fn workload(&self, path: &Path) -> Result<Workload> {
        let tape = Tape {
            bad: if self.trace_skip_bad {
                BadRecords::Skip
            } else {
                BadRecords::Fail
            },
            cycles_per_instruction: self.trace_cycles,
            cycles_per_access: self.trace_access_cycles,
            waited_percent: self.trace_waited,
            scale: self.trace_scale,
            ..Tape::new(path.to_owned())
        };
        let (workload, skipped) = traced(tape, self.trace_repeat)?;
        if skipped > 0 {
            eprintln!("{}: lines or records left out: {skipped}", path.display());
        }
        Ok(workload)
    }
}
