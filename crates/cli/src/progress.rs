//! Lines that show on a terminal how a command is getting on.

use crate::words;
use hawkeye_manager::{Machine, Manager};
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Longer lines would wrap, and a wrapped line is not written over as a whole.
const COLUMNS: usize = 110;

/// A line on standard error that is written over again and again; nothing where that is no terminal.
pub struct StatusLine {
    terminal: bool,
}

impl StatusLine {
    /// Shows nothing yet.
    pub fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Replaces what the line says.
    pub fn show(&self, text: &str) {
        self.write(&words::clipped(text, COLUMNS));
    }

    /// Clears the line.
    pub fn clear(&self) {
        self.write("");
    }

    fn write(&self, text: &str) {
        if self.terminal {
            // A terminal that is gone is no reason to stop.
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
        }
    }
}

/// Shows how management goes on, at most once a second.
pub struct Progress {
    line: StatusLine,
    next: Duration,
}

impl Progress {
    /// Draws nothing yet.
    pub fn new() -> Self {
        Self {
            line: StatusLine::new(),
            next: Duration::ZERO,
        }
    }

    /// Draws if it is time to.
    pub fn draw<M: Machine>(&mut self, manager: &Manager<M>) {
        let now = manager.machine().now();
        if !self.line.terminal || now < self.next {
            return;
        }
        self.next = now + Duration::from_secs(1);
        let latest = manager.journal().latest();
        let totals = manager.journal().totals();
        let held = manager
            .held()
            .map_or_else(String::new, |hold| format!("; waiting: {hold}"));
        self.line.show(&format!(
            "hawkeye {:>4.0} s  {} resident, {} huge; promoted {}, split {}{held}",
            now.as_secs_f64(),
            words::bytes(latest.rss_bytes),
            words::bytes(latest.huge_bytes),
            totals.promoted,
            totals.split,
        ));
    }

    /// Clears the line.
    pub fn finish(&self) {
        self.line.clear();
    }
}
