//! How a simulation goes on, on a terminal's standard error; elsewhere nothing is shown.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// A bar over so many runs. A single one shows only that it goes on.
pub fn over(runs: usize) -> ProgressBar {
    // Hidden by the library where standard error is no terminal.
    let bar = ProgressBar::with_draw_target(Some(runs as u64), ProgressDrawTarget::stderr());
    let template = if runs == 1 {
        "{spinner} simulating, {elapsed}"
    } else {
        "{bar:40} {pos} of {len} runs, {elapsed}, {eta} left"
    };
    // The template is right, or the default is as good.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
