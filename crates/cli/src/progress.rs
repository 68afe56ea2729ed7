//! Lines on a terminal that show the progress of a command.

use crate::text_format::{clip_printable, format_bytes};
use crate::view::BudgetWaitStatus;
use hawkeye_manager::{Machine, Manager};
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// A longer line would wrap, and then it can't be replaced as a whole.
const COLUMNS: usize = 110;

/// Replaces the last text on standard error; does nothing where that is not a terminal.
pub fn show_progress_line(text: &str) {
    if std::io::stderr().is_terminal() {
        // A closed terminal is no reason to stop.
        let text = clip_printable(text, COLUMNS);
        let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
    }
}

/// Shows the state of management, at most once a second.
#[derive(Default)]
pub struct ManagerProgress {
    next: Duration,
}

impl ManagerProgress {
    pub fn draw_if_due<M: Machine>(&mut self, manager: &Manager<M>) {
        let now = manager.machine().now();
        if now < self.next {
            return;
        }
        self.next = now + Duration::from_secs(1);
        let (latest, totals) = (manager.journal().latest_footprint, manager.journal().totals());
        let wait = manager.budget_waits().next();
        let held = match (manager.memory().held.as_ref(), wait) {
            (Some(hold), _) => format!("; promotion held: {hold}"),
            (None, Some(wait)) => format!("; {}", BudgetWaitStatus::new(&wait, now)),
            (None, None) => String::new(),
        };
        let (s, promoted, split) = (now.as_secs_f64(), totals.promoted, totals.split);
        let [rss, huge] = [latest.rss_bytes, latest.huge_bytes].map(format_bytes);
        show_progress_line(&format!(
            "hawkeye {s:>4.0} s  {rss} resident, {huge} huge; promoted {promoted}, split {split}{held}"
        ));
    }
}
