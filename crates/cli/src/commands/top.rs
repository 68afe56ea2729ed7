//! `hawkeye top`: what the daemon manages, as it changes.
//!
//! ```text
//!  daemon_poller (a thread that asks the daemon) --answers--+
//!                                                           v
//!  terminal (keys, size) -----------keys------------> top_model --> draw --> overview,
//!                                                     (pure)     (ratatui)   process_table,
//!                                                                            process_screen,
//!                                                                            address_strip_text
//!                                                                            (lines of text)
//! ```
//! `sort_order` sorts the processes, `theme` says what the terminal can show. Without a terminal
//! the same lines are printed once.

mod address_strip_text;
mod daemon_poller;
mod draw;
mod overview;
mod process_screen;
mod process_table;
mod sort_order;
mod terminal;
mod theme;
mod top_model;

use super::client_options::{ClientOptions, print_text_or_json};
use crate::daemon::protocol::DaemonStatus;
use crate::options;
use anyhow::{Result, bail};
use clap::Args;
use daemon_poller::TopData;
use sort_order::SortOrder;
use std::process::ExitCode;
use theme::Theme;
use top_model::TopModel;

/// Watch what the daemon manages and decides.
///
/// Lists processes by what address translation costs them, and the latest decisions.
///
/// Enter opens a process and shows its address space as a strip. Without a terminal, use --once or
/// --json.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye top
  hawkeye top --once
  hawkeye top --once $(pidof redis-server)
  hawkeye top --json

Keys: arrows select, Enter opens a process, < and > choose the column to sort
by, r reverses the order, ? explains every figure, Esc goes back, q quits.")]
pub struct TopOptions {
    /// Print the figures once, as text, and exit.
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    options: ClientOptions,

    /// Show this process.
    #[arg(value_parser = options::parse_pid)]
    pid: Option<u32>,
}

/// Columns of the strip without a terminal.
const WIDTH: u16 = 80;

impl TopOptions {
    pub fn execute(self) -> Result<ExitCode> {
        let alone = self.once || self.options.json;
        if !alone {
            if let Some(why) = terminal::terminal_unsupported_reason() {
                bail!("{why}: use `hawkeye top --once` for text, or --json");
            }
        }
        // Before the alternate screen starts: an error about a missing daemon then stays on the
        // terminal.
        let answer = daemon_poller::fetch_top_data(&self.options, self.pid, WIDTH)?;
        if alone {
            return self.print_once(&answer);
        }
        let mut model = TopModel::new(Theme::from_environment());
        if let Some(pid) = self.pid {
            model.open_process(pid);
        }
        model.apply_daemon_answer(Ok(answer));
        terminal::run_top_screen(model, self.options)?;
        Ok(ExitCode::SUCCESS)
    }

    fn print_once(&self, answer: &TopData) -> Result<ExitCode> {
        let Some(opened) = &answer.opened else {
            print_text_or_json(self.options.json, &*answer.status, overview_text)?;
            return Ok(ExitCode::SUCCESS);
        };
        let look = Theme::from_environment();
        print_text_or_json(self.options.json, opened, |it| {
            let lines =
                process_screen::process_screen_lines(&it.why, it.strip.as_ref(), None, &look);
            look.to_displayable(&lines.join("\n")) + "\n"
        })?;
        Ok(ExitCode::from(u8::from(!opened.why.is_managed())))
    }
}

fn overview_text(status: &DaemonStatus) -> String {
    let order = SortOrder::default();
    let mut lines = overview::management_state_lines(status, WIDTH.into());
    lines.push(String::new());
    lines.push(process_table::header_line(order));
    let processes = sort_order::sorted_processes(&status.manager.processes, order);
    lines.extend(processes.iter().map(|process| process_table::process_row_line(process)));
    lines.extend(process_table::unlisted_processes_note(&status.manager));
    lines.push(String::new());
    lines.push("Latest decisions:".to_owned());
    lines.extend(overview::decision_lines(&status.manager, usize::MAX, WIDTH.into()));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests;
