//! `hawkeye top`: what the daemon manages, as it changes.
//!
//! ```text
//!  asker (a thread that asks the daemon) --answers--+
//!                                                   v
//!  terminal (keys, size) --------------keys-----> model --> draw --> overview, table, process, strip
//!                                                (pure)     (ratatui)      (lines of text)
//! ```
//! `order` sorts the processes, `look` says what the terminal can show. Without a terminal the same lines are
//! printed once.

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
use crate::view::{Explanation, Strip};
use anyhow::{Result, bail};
use asker::{Answer, Opened};
use clap::Args;
use look::Look;
use model::Model;
use order::Order;
use serde::Serialize;
use std::process::ExitCode;

/// Watch what the daemon manages and decides.
///
/// Processes by what address translation costs them, and the latest decisions.
///
/// Enter opens a process and shows its address space as a strip. Without a terminal: --once or --json.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye top
  hawkeye top --once
  hawkeye top --once $(pidof redis-server)
  hawkeye top --json

Keys: arrows select, Enter opens a process, < and > choose the column to sort
by, r reverses, ? explains every figure, Esc goes back, q quits.")]
pub struct Top {
    /// Print it once, as text, and end.
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    options: AskOptions,

    /// Begin with this process opened.
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
}

/// Columns of the strip where there is no terminal to fill.
const WIDTH: u16 = 80;

/// A process, for programs.
#[derive(Serialize)]
struct Process<'a> {
    #[serde(flatten)]
    why: &'a Explanation,
    strip: &'a Option<Strip>,
}

impl Top {
    /// Shows it until the user has seen enough, or once.
    pub fn execute(self) -> Result<ExitCode> {
        let alone = self.once || self.options.json();
        if !alone {
            if let Some(why) = terminal::unfit() {
                bail!("{why}: `hawkeye top --once` prints the same as text, --json for programs");
            }
        }
        // Before the screen is taken: whoever has no daemon reads it where he typed.
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
        let Some(Opened { why, strip }) = &answer.opened else {
            self.options.print(&*answer.status, once)?;
            return Ok(ExitCode::SUCCESS);
        };
        let look = Look::of_environment();
        self.options.print(&Process { why, strip }, |it| {
            look.text(&process::lines(it.why, it.strip.as_ref(), None, &look).join("\n")) + "\n"
        })?;
        let managed = !matches!(why, Explanation::NotManaged { .. });
        Ok(ExitCode::from(u8::from(!managed)))
    }
}

/// Everything as text.
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
    lines.extend(overview::decisions(
        &status.manager,
        usize::MAX,
        usize::from(WIDTH),
    ));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests;
