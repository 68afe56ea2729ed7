//! Traces as workloads.

use crate::output::print_to_stderr;
use anyhow::Result;
use clap::Args;
use hawkeye_sim::trace::BadRecordHandling;
use hawkeye_sim::workloads::{TraceReplay, WorkloadSpec, workload_of_trace};
use std::path::Path;

/// How a trace is played, where a workload is one.
#[derive(Args)]
#[command(next_help_heading = "Traces")]
pub struct TraceOptions {
    /// Replay the trace N times in a row.
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    trace_repeat: u32,

    /// Cycles of own work per instruction, without translation.
    #[arg(long, hide_short_help = true, value_name = "CYCLES", default_value_t = 1.0)]
    trace_cycles: f64,

    /// Cycles of own work per access, for traces without instructions.
    #[arg(long, hide_short_help = true, value_name = "CYCLES", default_value_t = 4.0)]
    trace_access_cycles: f64,

    /// Share of each page walk that the program waits for: under 100 where other work overlaps it.
    #[arg(long, hide_short_help = true, value_name = "PERCENT", default_value_t = 100.0)]
    trace_waited: f64,

    /// Count each access N times: a short or sampled trace then stands for a long run.
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 1.0)]
    trace_scale: f64,

    /// Skip invalid lines and records, and report their number; without it, the first is an error.
    #[arg(long, hide_short_help = true)]
    trace_skip_bad: bool,
}

impl TraceOptions {
    /// A trace as a workload.
    pub fn workload_of_trace_file(&self, path: &Path) -> Result<WorkloadSpec> {
        let tape = TraceReplay {
            bad: if self.trace_skip_bad {
                BadRecordHandling::Skip
            } else {
                BadRecordHandling::Fail
            },
            cycles_per_instruction: self.trace_cycles,
            cycles_per_access: self.trace_access_cycles,
            waited_percent: self.trace_waited,
            scale: self.trace_scale,
            ..TraceReplay::new(path.to_owned())
        };
        let (workload, skipped) = workload_of_trace(tape, self.trace_repeat)?;
        if skipped > 0 {
            let path = path.display();
            print_to_stderr(&format!("{path}: skipped invalid lines or records: {skipped}\n"));
        }
        Ok(workload)
    }
}
