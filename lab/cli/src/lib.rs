//! The program `hawkeye-lab`: explains, predicts and reproduces what `hawkeye` does.
//!
//! ```text
//!  run_command_line --> commands --+--> hawkeye_sim       sim, demo: the simulated machine
//!                                  |--> hawkeye_bench     bench, calibrate, predict, verify,
//!                                  |                      itanium, sim paper: experiments
//!                                  `--> hawkeye_workload  workload (hidden): programs to manage
//! ```
//!
//! Read [`run_command_line`] first. Each command is a file in `commands/` of the same name, and
//! `sim` has its subcommands in a folder. The commands read options and print results; the other
//! crates compute them.

// `output` has the only ways to standard output and standard error.
#![deny(clippy::print_stdout, clippy::print_stderr)]

/// Prints a line. It is no error if the reader has closed the pipe.
macro_rules! print_line {
    ($($format:tt)*) => { crate::output::print_to_stdout(&(format!($($format)*) + "\n"))? };
}

mod commands;
// The program `hawkeye` has these two as well, but neither program depends on the other.
#[path = "../../../crates/cli/src/json_file.rs"]
mod json_file;
#[path = "../../../crates/cli/src/output.rs"]
mod output;

use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use hawkeye_linux::stop_signals::keep_ended_children;
use output::print_to_stderr;
use std::process::ExitCode;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Exit code of a command that failed.
const COULD_NOT: u8 = 1;

/// Measure and simulate huge pages: every system on one machine model, and on this kernel.
#[derive(Parser)]
#[command(
    name = "hawkeye-lab",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    disable_help_flag = true,
    max_term_width = 80,
    after_help = "\
Examples:
  hawkeye-lab sim compare --systems linux,hawkeye --workloads random
  hawkeye-lab bench --list
`hawkeye-lab help COMMAND` describes each option in full; --help is short."
)]
struct LabArguments {
    /// Print help.
    // Both forms are short, because a screen of help is read and three are not.
    #[arg(short, long, global = true, action = ArgAction::HelpShort)]
    help: Option<bool>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Sim(Box<commands::sim::SimCommand>),
    Itanium(commands::itanium::ItaniumCommand),
    Predict(commands::predict::PredictCommand),
    Calibrate(commands::calibrate::CalibrateCommand),
    Bench(commands::bench::BenchCommand),
    Verify(commands::verify::VerifyCommand),
    Demo(commands::demo::DemoCommand),
    /// Run a program that uses memory in a known way.
    #[command(subcommand, hide = true)]
    Workload(hawkeye_workload::WorkloadCommand),
}

/// The command line, for manual pages and completions.
pub fn clap_command() -> clap::Command {
    LabArguments::command()
}

/// Runs the command that this process's arguments request.
pub fn run_command_line() -> ExitCode {
    keep_ended_children();
    let arguments = LabArguments::parse();
    let messages = fmt::layer().with_writer(std::io::stderr).without_time().with_target(false);
    tracing_subscriber::registry().with(messages).with(log_filter_from_environment()).init();
    let succeed = |()| ExitCode::SUCCESS;
    let result = match arguments.command {
        Command::Sim(command) => command.execute().map(succeed),
        Command::Itanium(command) => command.execute().map(succeed),
        Command::Predict(command) => command.execute().map(succeed),
        Command::Calibrate(command) => command.execute().map(succeed),
        Command::Demo(command) => command.execute().map(succeed),
        Command::Bench(command) => command.execute(),
        Command::Verify(command) => command.execute().map(succeed),
        Command::Workload(command) => {
            hawkeye_workload::run_workload(&command).map_err(anyhow::Error::from).map(succeed)
        }
    };
    result.unwrap_or_else(|error| {
        print_to_stderr(&format!("hawkeye-lab: {error:#}\n"));
        ExitCode::from(COULD_NOT)
    })
}

fn log_filter_from_environment() -> Targets {
    let usual = Targets::new().with_default(LevelFilter::WARN);
    let Some(text) = std::env::var_os("HAWKEYE_LOG").filter(|text| !text.is_empty()) else {
        return usual;
    };
    text.to_string_lossy().parse().unwrap_or_else(|error| {
        print_to_stderr(&format!(
            "hawkeye-lab: HAWKEYE_LOG is ignored, the level is warn: {error}\n"
        ));
        usual
    })
}

#[cfg(test)]
mod tests {
    use super::LabArguments;
    use hawkeye_test_support::command_help;

    #[test]
    fn every_help_fits_a_screen_and_has_valid_examples() {
        command_help::assert_help_is_short_with_examples::<LabArguments>();
    }
}
