//! Takes the terminal over, reads its keys, and restores it in every case.

use super::daemon_poller::DaemonPoller;
use super::draw::draw_top_screen;
use super::top_model::{KeyEffect, TopModel};
use crate::commands::client_options::ClientOptions;
use anyhow::{Context, Result};
use hawkeye_linux::stop_signals::{StopSignals, WaitResult};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::io::{IsTerminal, stdin, stdout};
use std::time::{Duration, Instant};

const REQUEST_INTERVAL: Duration = Duration::from_secs(2);
/// The longest delay of a key, an answer or a signal.
const TICK: Duration = Duration::from_millis(100);

pub fn terminal_unsupported_reason() -> Option<&'static str> {
    if !stdin().is_terminal() || !stdout().is_terminal() {
        return Some("standard input or output is not a terminal");
    }
    match std::env::var("TERM").as_deref() {
        Ok("dumb" | "") | Err(_) => {
            Some("can't draw on this terminal (TERM is unset, empty or dumb)")
        }
        Ok(_) => None,
    }
}

/// Restores the terminal, on errors and panics too (`ratatui::try_init` installs a hook for these).
struct TerminalGuard;

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

pub fn run_top_screen(mut model: TopModel, options: ClientOptions) -> Result<()> {
    // Before the first thread starts, because threads inherit the mask of blocked signals.
    let signals = StopSignals::take_over_with_reload()?;
    let mut poller = DaemonPoller::start(options)?;
    let mut terminal = ratatui::try_init().context("can't set up the terminal")?;
    let _taken = TerminalGuard;
    let mut due = Instant::now() + REQUEST_INTERVAL;
    loop {
        terminal.draw(|frame| draw_top_screen(frame, &model))?;
        let mut ask = Instant::now() >= due;
        if event::poll(TICK)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match model.handle_key(key)
                {
                    KeyEffect::Quit => return Ok(()),
                    KeyEffect::Ask => ask = true,
                    KeyEffect::Draw => {}
                },
                Event::Resize(..) => ask = true,
                _ => {}
            }
        }
        if matches!(signals.wait(&[], Duration::ZERO), WaitResult::Signal(_)) {
            return Ok(());
        }
        if ask {
            let pid = model.open.as_ref().map(|open| open.pid);
            poller.ask_unless_waiting((pid, terminal.size()?.width));
            due = Instant::now() + REQUEST_INTERVAL;
        }
        if let Some(answer) = poller.take_arrived_answer() {
            model.apply_daemon_answer(answer);
        }
    }
}
