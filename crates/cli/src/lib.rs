//! The program `hawkeye`: manages huge pages for running Linux programs.
//!
//! This crate joins the product's libraries into a program. It decides nothing about memory: what
//! is promoted or recovered, and when, is up to `hawkeye_policy` and `hawkeye_manager`.
//!
//! ```text
//!  command line (options)      configuration file (config)
//!            \                   /
//!             v                 v
//!        commands::session: one session ---------> progress, session_summary (for people)
//!                    |                         \--> recording --> FILE.parquet --> report
//!                    v
//!        hawkeye_manager::Manager <--- requests --- daemon (socket, metrics, journal)
//!                    |                                 ^
//!                    v                                 | asked by
//!        hawkeye_linux: the running kernel       commands::{status, top, why, pause_resume}
//! ```
//!
//! How to read it: a command is one file in `commands`, named after it. `run`, `attach`, `record`
//! and `daemon` manage processes, by `commands/session.rs`. `status`, `top`, `why`, `pause` and
//! `resume` send a request to a running daemon. `doctor`, `advise` and `report` change nothing.
//! `text` changes the pages of one process, once.
//! Most of the rest is one step from values to text: pure, and tested without a machine.

// `output` has the only ways to standard output and standard error.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod allocator_env_plan;
mod background_writer;
mod commands;
mod config;
mod daemon;
mod demo;
mod json_file;
mod log_filter;
mod memory_limit;
mod options;
mod output;
mod page_size_build;
mod program_resource_use;
mod progress;
mod recording;
mod report;
mod session_summary;
mod text_format;
mod view;

use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use commands::client_options::ClientOptions;
use hawkeye_linux::machine_lease::manager_lock::state_dir;
use hawkeye_linux::sample::walk_costs::measure_at_lowest_priority;
use hawkeye_linux::stop_signals::keep_ended_children;
use output::print_to_stderr;
use std::process::ExitCode;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

const EXIT_COMMAND_FAILED: u8 = 1;

/// Give running programs huge pages where they help, and recover wasted memory.
#[derive(Parser)]
#[command(
    name = "hawkeye",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    disable_help_flag = true,
    max_term_width = 80,
    after_help = "\
Examples:
  hawkeye doctor
  hawkeye run -- redis-server --port 6380
`hawkeye help COMMAND` describes each option at more length than --help does."
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
    Doctor(commands::doctor::DoctorOptions),
    Demo(commands::demo::DemoOptions),
    Run(commands::run::RunOptions),
    Attach(commands::attach::AttachOptions),
    Daemon(commands::daemon::DaemonOptions),
    Top(commands::top::TopOptions),
    Record(commands::record::RecordOptions),
    Report(commands::report::ReportOptions),
    Status(commands::status::StatusOptions),
    Why(commands::why::WhyOptions),
    /// Pause the daemon until `hawkeye resume` (root only).
    ///
    /// Meanwhile it leaves every process alone.
    #[command(after_help = "Example: hawkeye pause")]
    Pause(ClientOptions),
    /// Resume the daemon after `hawkeye pause` (root only).
    #[command(after_help = "Example: hawkeye resume --json")]
    Resume(ClientOptions),
    Advise(commands::advise::AdviseOptions),
    Text(commands::text::TextOptions),
    /// Restore kernel settings that a killed manager left changed.
    ///
    /// Restores a setting only if it still has the value that the manager wrote. A setting that was
    /// changed since is kept and reported. Every start of a manager restores settings too.
    #[command(after_help = "Example: hawkeye restore")]
    Restore,
    /// Run one of the programs of `hawkeye demo`.
    #[command(subcommand, hide = true)]
    DemoProgram(demo::demo_program::DemoProgram),
    /// Measure page walks for the manager that started this.
    #[command(hide = true)]
    MeasurePageWalks,
}

/// The definition of the command line, for manual pages and completions.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the command that the arguments name.
pub fn run() -> ExitCode {
    page_size_build::go_on_as_build_for_kernel();
    keep_ended_children();
    let arguments = Arguments::parse();
    tracing_subscriber::registry()
        .with(fmt::layer().with_writer(std::io::stderr).without_time().with_target(false))
        .with(log_filter::filter_from_environment())
        .init();
    let result = match arguments.command {
        Command::Doctor(command) => command.execute(),
        Command::Demo(command) => command.execute(),
        Command::Run(command) => command.execute(),
        Command::Attach(command) => command.execute(),
        Command::Daemon(command) => command.execute(),
        Command::Top(command) => command.execute(),
        Command::Record(command) => command.execute(),
        Command::Report(command) => command.execute(),
        Command::Status(command) => command.execute(),
        Command::Why(command) => command.execute(),
        Command::Pause(options) => commands::pause_resume::request_pause_or_resume(&options, true),
        Command::Resume(options) => {
            commands::pause_resume::request_pause_or_resume(&options, false)
        }
        Command::Advise(command) => command.execute(),
        Command::Text(command) => command.execute(),
        Command::Restore => commands::restore::execute(),
        Command::MeasurePageWalks => {
            measure_at_lowest_priority(&state_dir()).map(|()| ExitCode::SUCCESS).map_err(Into::into)
        }
        Command::DemoProgram(program) => program.execute().map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        print_to_stderr(&format!("hawkeye: {error:#}\n"));
        ExitCode::from(EXIT_COMMAND_FAILED)
    })
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::CommandFactory;
    use hawkeye_test_support::command_help;

    #[test]
    fn help_names_options_that_it_leaves_out_and_long_help_does_not_refer_to_itself() {
        let mut hawkeye = Arguments::command();
        hawkeye.build();
        for command in hawkeye.get_subcommands_mut().filter(|it| !it.is_hide_set()) {
            let name = command.get_name().to_owned();
            let (short, long) = (command.render_help(), command.render_long_help());
            let (short, long) = (short.to_string(), long.to_string());
            assert!(!long.contains(&format!("`hawkeye help {name}`")), "{long}");
            let options = command.get_arguments().filter(|it| !it.is_hide_set());
            for flag in options.filter_map(|option| option.get_long()) {
                assert!(short.contains(&format!("--{flag}")), "--{flag}: {short}");
            }
        }
    }

    #[test]
    fn every_help_fits_a_screen_and_has_valid_examples() {
        command_help::assert_help_is_short_with_examples::<Arguments>();
    }
}
