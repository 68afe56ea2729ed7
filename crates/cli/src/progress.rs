//! Lines on a terminal that show the progress of a command.

use crate::text_format;
use crate::view::BudgetWaitStatus;
use hawkeye_manager::{Machine, Manager};
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// A longer line would wrap, and then it can't be replaced as a whole.
const COLUMNS: usize = 110;

/// A line on standard error that each new text replaces. Prints nothing where that is not a
/// terminal.
pub struct StatusLine {
    terminal: bool,
}

impl StatusLine {
    pub fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
        }
    }

    pub fn show(&self, text: &str) {
        self.write(&text_format::clipped(text, COLUMNS));
    }

    pub fn clear(&self) {
        self.write("");
    }

    fn write(&self, text: &str) {
        if self.terminal {
            // A closed terminal is no reason to stop.
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
        }
    }
}

/// Shows the state of management, at most once a second.
pub struct ProgressLine {
    pub line: StatusLine,
    next: Duration,
}

impl ProgressLine {
    pub fn new() -> Self {
        Self {
            line: StatusLine::new(),
            next: Duration::ZERO,
        }
    }

    /// Draws if the last drawing is at least a second old.
    pub fn draw<M: Machine>(&mut self, manager: &Manager<M>) {
        let now = manager.machine().now();
        if !self.line.terminal || now < self.next {
            return;
        }
        self.next = now + Duration::from_secs(1);
        let latest = manager.journal().latest_footprint;
        let totals = manager.journal().totals();
        let wait = manager.promotion_pacing().waits.current(now);
        let held = match (manager.promotion_held_by(), wait) {
            (Some(hold), _) => format!("; promotion held: {hold}"),
            (None, Some(wait)) => format!("; {}", BudgetWaitStatus::new(&wait, now)),
            (None, None) => String::new(),
        };
        self.line.show(&format!(
            "hawkeye {:>4.0} s  {} resident, {} huge; promoted {}, split {}{held}",
            now.as_secs_f64(),
            text_format::bytes(latest.rss_bytes),
            text_format::bytes(latest.huge_bytes),
            totals.promoted,
            totals.split,
        ));
    }
}
