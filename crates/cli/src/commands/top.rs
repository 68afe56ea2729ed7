//! `hawkeye top`: what the daemon manages, as it changes.
//!
//! ```text
//!  poller (a thread that asks the daemon) --answers--+
//!                                                    v
//!  terminal (keys, size) -----------keys-----> model --> draw --> overview, table, process, strip
//!                                                (pure)     (ratatui)      (lines of text)
//! ```
//! `sort_order` sorts the processes, `theme` says what the terminal can show. Without a terminal
//! the same lines are printed once.

mod asker;
mod draw;
mod look;
mod model;
mod order;
mod overview;
mod process;
mod strip;
mod table;
mod terminal;

use super::asking::AskOptions;
use crate::daemon::protocol::DaemonStatus;
use crate::options;
use anyhow::{Result, bail};
use asker::Answer;
use clap::Args;
use look::Look;
use model::Model;
use order::Order;
use std::process::ExitCode;

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
pub struct Top {
    /// Print the figures once, as text, and exit.
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    options: AskOptions,

    /// Show this process.
    #[arg(value_parser = options::pid)]
    pid: Option<u32>,
}

/// Columns of the strip without a terminal.
const WIDTH: u16 = 80;

impl Top {
    /// Shows the figures until the user quits, or prints them once.
    pub fn execute(self) -> Result<ExitCode> {
        let alone = self.once || self.options.json();
        if !alone {
            if let Some(why) = terminal::unfit() {
                bail!("{why}: use `hawkeye top --once` for text, or --json");
            }
        }
        // Before the alternate screen starts: an error about a missing daemon then stays on the
        // terminal.
        let answer = asker::ask(&self.options, self.pid, WIDTH)?;
        if alone {
            return self.print(&answer);
        }
        let mut model = Model::new(Look::of_environment());
        if let Some(pid) = self.pid {
            model.open(pid);
        }
        model.take(Ok(answer));
        terminal::watch(model, self.options)?;
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, answer: &Answer) -> Result<ExitCode> {
        let Some(opened) = &answer.opened else {
            self.options.print(&*answer.status, once)?;
            return Ok(ExitCode::SUCCESS);
        };
        let look = Look::of_environment();
        self.options.print(opened, |it| {
            look.text(&process::lines(&it.why, it.strip.as_ref(), None, &look).join("\n")) + "\n"
        })?;
        Ok(ExitCode::from(u8::from(!opened.why.is_managed())))
    }
}

/// All figures as text.
fn once(status: &DaemonStatus) -> String {
    let order = Order::default();
    let mut lines = overview::lines(status);
    lines.push(String::new());
    lines.push(table::header(order));
    let processes = order::sorted(&status.manager.processes, order);
    lines.extend(processes.iter().map(|process| table::row(process)));
    lines.extend(table::unlisted(&status.manager));
    lines.push(String::new());
    lines.push("Latest decisions:".to_owned());
    let width = usize::from(WIDTH);
    lines.extend(overview::decisions(&status.manager, usize::MAX, width));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests;
