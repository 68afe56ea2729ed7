//! The line that shows on a terminal how management goes on.

use crate::words;
use hawkeye_manager::{Machine, Manager};
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Draws at most once a second, on standard error, if that is a terminal.
pub struct Progress {
    terminal: bool,
    next: Duration,
}

impl Progress {
    /// Draws nothing yet.
    pub fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            next: Duration::ZERO,
        }
    }

    /// Draws if it is time to.
    pub fn draw<M: Machine>(&mut self, manager: &Manager<M>) {
        let now = manager.machine().now();
        if !self.terminal || now < self.next {
            return;
        }
        self.next = now + Duration::from_secs(1);
        let latest = manager.journal().latest();
        let totals = manager.journal().totals();
        let held = manager
            .held()
            .map_or_else(String::new, |hold| format!("; waiting: {hold}"));
        let line = format!(
            "hawkeye {:>4.0} s  {} resident, {} huge; promoted {}, split {}{held}",
            now.as_secs_f64(),
            words::bytes(latest.rss_bytes),
            words::bytes(latest.huge_bytes),
            totals.promoted,
            totals.split,
        );
        // A terminal that is gone is no reason to stop managing.
        let _ = write!(std::io::stderr(), "\r\x1b[K{}", clip(&line, 110));
    }

    /// Clears the line.
    pub fn finish(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn clip(line: &str, width: usize) -> String {
    line.chars().take(width).collect()
}
