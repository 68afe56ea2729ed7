//! Progress of a simulation, on standard error if that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// A progress bar over `runs` runs. For a single run it shows only activity.
pub fn progress_bar(runs: usize) -> ProgressBar {
    // The library hides it if standard error is no terminal.
    let bar = ProgressBar::with_draw_target(Some(runs as u64), ProgressDrawTarget::stderr());
    let template = if runs == 1 {
        "{spinner} simulating, {elapsed}"
    } else {
        "{bar:40} {pos} of {len} runs, {elapsed}, {eta} left"
    };
    // If the template is invalid, the default style will do.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
