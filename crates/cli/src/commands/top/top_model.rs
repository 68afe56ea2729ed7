//! The state of the screen, and how keys change it. Pure.

use super::daemon_poller::{ProcessDetails, TopData};
use super::process_table::neighbour_column;
use super::sort_order::{self, SortOrder};
use super::theme::Theme;
use crate::daemon::protocol::DaemonStatus;
use crate::view::ProcessStatus;
use anyhow::Result;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What the caller does after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEffect {
    Draw,
    /// Ask the daemon at once, because something else is shown now.
    Ask,
    Quit,
}

#[derive(Default)]
pub struct TopModel {
    pub theme: Theme,
    pub order: SortOrder,
    pub status: Box<DaemonStatus>,
    /// Why the figures are old, if they are.
    pub last_error: Option<String>,
    pub selected: Option<u32>,
    pub open: Option<OpenedProcess>,
    pub help: bool,
}

pub struct OpenedProcess {
    pub pid: u32,
    pub details: Option<ProcessDetails>,
    pub column: usize,
}

const ROWS_PER_PAGE_KEY: isize = 10;

impl TopModel {
    pub fn new(look: Theme) -> Self {
        Self { theme: look, ..Self::default() }
    }

    pub fn sorted_processes(&self) -> Vec<&ProcessStatus> {
        sort_order::sorted_processes(&self.status.manager.processes, self.order)
    }

    /// Index of the chosen row; 0 where the chosen process is gone.
    pub fn selected_row_index(&self) -> usize {
        self.sorted_processes().iter().position(|row| Some(row.pid) == self.selected).unwrap_or(0)
    }

    pub fn open_process(&mut self, pid: u32) {
        self.open = Some(OpenedProcess { pid, details: None, column: 0 });
    }

    pub fn apply_daemon_answer(&mut self, answer: Result<TopData>) {
        match answer {
            Ok(answer) => {
                self.last_error = None;
                self.status = answer.status;
                // Meanwhile the user may have closed this process or opened another one.
                if let (Some(open), Some(seen)) = (&mut self.open, answer.opened) {
                    if seen.pid() == open.pid {
                        open.details = Some(seen);
                    }
                }
            }
            Err(error) => self.last_error = Some(format!("{error:#}")),
        }
    }

    pub fn handle_key(&mut self, key: KeyEvent) -> KeyEffect {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return KeyEffect::Quit,
            KeyCode::Char('q') => return KeyEffect::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.help = !self.help,
            KeyCode::Esc | KeyCode::Backspace if self.help => self.help = false,
            _ if self.help => {}
            code if self.open.is_some() => self.handle_process_key(code),
            code => return self.handle_overview_key(code),
        }
        KeyEffect::Draw
    }

    fn handle_overview_key(&mut self, code: KeyCode) -> KeyEffect {
        let by = self.order.by;
        match code {
            KeyCode::Up | KeyCode::Char('k') => self.move_selection(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_selection(1),
            KeyCode::PageUp => self.move_selection(-ROWS_PER_PAGE_KEY),
            KeyCode::PageDown => self.move_selection(ROWS_PER_PAGE_KEY),
            KeyCode::Home => self.move_selection(isize::MIN),
            KeyCode::End => self.move_selection(isize::MAX),
            KeyCode::Left | KeyCode::Char('<') => self.order.by = neighbour_column(by, -1),
            KeyCode::Right | KeyCode::Char('>') => self.order.by = neighbour_column(by, 1),
            KeyCode::Char('r') => self.order.descending = !self.order.descending,
            KeyCode::Enter => {
                let rows = self.sorted_processes();
                if let Some(pid) = rows.get(self.selected_row_index()).map(|row| row.pid) {
                    self.selected = Some(pid);
                    self.open_process(pid);
                    return KeyEffect::Ask;
                }
            }
            _ => {}
        }
        KeyEffect::Draw
    }

    fn move_selection(&mut self, by: isize) {
        let rows = self.sorted_processes();
        let last = rows.len().saturating_sub(1);
        let row = self.selected_row_index().saturating_add_signed(by).min(last);
        self.selected = rows.get(row).map(|row| row.pid);
    }

    fn handle_process_key(&mut self, code: KeyCode) {
        let Some(open) = &mut self.open else { return };
        let strip = open.details.as_ref().and_then(|seen| seen.strip.as_ref());
        let last = strip.map_or(0, |strip| strip.columns.len().saturating_sub(1));
        let column = match code {
            KeyCode::Left | KeyCode::Char('<') => open.column.saturating_sub(1),
            KeyCode::Right | KeyCode::Char('>') => open.column + 1,
            KeyCode::Home => 0,
            KeyCode::End => last,
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Enter => {
                self.open = None;
                return;
            }
            _ => return,
        };
        open.column = column.min(last);
    }
}
