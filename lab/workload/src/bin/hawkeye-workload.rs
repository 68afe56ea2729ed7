//! The workloads alone, for this crate's tests; `hawkeye-lab workload` runs the same ones.

use clap::Parser;
use hawkeye_workload::WorkloadCommand;
use std::process::ExitCode;

/// Programs to manage: they use memory in a known way and check its contents.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    workload: WorkloadCommand,
}

fn main() -> ExitCode {
    match hawkeye_workload::run(&Arguments::parse().workload) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hawkeye-workload: {error}");
            ExitCode::FAILURE
        }
    }
}
