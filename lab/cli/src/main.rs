//! The program `hawkeye-lab`: explains, predicts and reproduces what `hawkeye` does.

mod commands;

use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Exit code of a command that could not do what was asked.
const COULD_NOT: u8 = 1;

/// Huge pages measured and simulated: every system on one machine model, and on this kernel.
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
`hawkeye-lab help COMMAND` says more about each option than --help does."
)]
struct Arguments {
    /// Print help.
    // Both forms are short: a screen is read, three are not.
    #[arg(short, long, global = true, action = ArgAction::HelpShort)]
    help: Option<bool>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Sim(Box<commands::sim::Sim>),
    Itanium(commands::itanium::Itanium),
    Predict(commands::predict::Predict),
    Calibrate(commands::calibrate::Calibrate),
    Bench(commands::bench::Bench),
    Demo(commands::demo::Demo),
    /// One of our own programs to try things on.
    #[command(subcommand, hide = true)]
    Workload(hawkeye_workload::WorkloadCommand),
    #[command(hide = true)]
    Generate(hawkeye_pages::Generate),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("HAWKEYE_LOG")
                .unwrap_or_else(|_| "warn".into()),
        )
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .init();
    let done = || Ok(ExitCode::SUCCESS);
    let result = match arguments.command {
        Command::Sim(command) => command.execute().and_then(|()| done()),
        Command::Itanium(command) => command.execute().and_then(|()| done()),
        Command::Predict(command) => command.execute().and_then(|()| done()),
        Command::Calibrate(command) => command.execute().and_then(|()| done()),
        Command::Demo(command) => command.execute().and_then(|()| done()),
        Command::Bench(command) => command.execute(),
        Command::Generate(command) => command.execute("hawkeye-lab", &Arguments::command()),
        Command::Workload(command) => hawkeye_workload::run(&command)
            .map_err(anyhow::Error::from)
            .and_then(|()| done()),
    };
    result.unwrap_or_else(|error| {
        eprintln!("hawkeye-lab: {error:#}");
        ExitCode::from(COULD_NOT)
    })
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use hawkeye_test_support::help;

    #[test]
    fn every_help_fits_a_screen() {
        help::every_help_fits_a_screen::<Arguments>();
    }

    #[test]
    fn every_command_has_an_example_that_is_understood() {
        help::every_command_has_an_example_that_is_understood::<Arguments>();
    }

    #[test]
    fn the_long_flag_shows_the_short_help_everywhere() {
        help::the_long_flag_shows_the_short_help_everywhere::<Arguments>();
    }
}
