//! Draws the model.

use super::theme::{HEADING, SELECTED};
use super::top_model::{OpenedProcess, TopModel};
use super::{overview, process_screen, process_table};
use crate::text_format::{clip_printable, wrap_printable};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Text};
use ratatui::widgets::Paragraph;

/// Below this height nothing is readable.
const LEAST_ROWS: u16 = 12;
const LEAST_COLUMNS: u16 = 60;
/// Lines of decisions under the processes, with their head.
const DECISIONS: u16 = 8;

const HELP: &str = "\
OVERHEAD  share of its CPU time that a process spends in address translation,
          estimated or counted; >= means at least: more can't be measured here
GAIN      share of its CPU time that would be saved if all regions that may be
          promoted were huge
RSS       resident memory            HUGE   share of it under huge pages
*         after a NAME: part of its memory is managed shared memory, which other
          processes may map as well; Enter shows how much
BLOAT     memory under huge pages that was empty when they were made or last
          searched for zeros; it may have been used since
PROM/S    regions promoted per second, over the last 10 s
SPL/S     huge pages split per second to recover memory, over the last 10 s

up, down, page up, page down, Home, End    select a process
Enter            open it: its address space, about as many regions per column
left, right, < > choose the column to sort by; in an open process, the column
                 that is described
r                reverse the order
Esc              back                       ?  this help
q, Ctrl-C        quit";

pub fn draw_top_screen(frame: &mut Frame<'_>, model: &TopModel) {
    let area = frame.area();
    if area.height < LEAST_ROWS || area.width < LEAST_COLUMNS {
        let text = format!(
            "Terminal too small: at least {LEAST_COLUMNS} columns and {LEAST_ROWS} lines are needed. q quits."
        );
        let text = wrap_printable(&text, usize::from(area.width), 0);
        return frame.render_widget(Paragraph::new(text), area);
    }
    let [body, foot] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(area);
    let keys = match (&model.open, model.help) {
        (_, true) => "Esc back  q quit",
        (Some(_), _) => "left/right choose a column  Esc back  ? help  q quit",
        (None, _) => "up/down select  Enter open  < > sort by  r reverse  ? help  q quit",
    };
    frame.render_widget(Paragraph::new(keys).style(HEADING), foot);
    if model.help {
        frame.render_widget(Paragraph::new(HELP), body);
    } else if let Some(open) = &model.open {
        draw_process_details(frame, body, model, open);
    } else {
        draw_overview(frame, body, model);
    }
}

fn stale_figures_notice(model: &TopModel) -> Option<Line<'static>> {
    let why = model.last_error.as_ref()?;
    let text = clip_printable(&format!("NO NEW FIGURES: {why}"), 200);
    Some(Line::styled(text, model.theme.warning_style()))
}

fn draw_overview(frame: &mut Frame<'_>, area: Rect, model: &TopModel) {
    let line = |text: &String| Line::from(model.theme.to_displayable(text));
    let mut head: Vec<Line<'_>> = stale_figures_notice(model).into_iter().collect();
    let width = usize::from(area.width);
    head.extend(overview::management_state_lines(&model.status, width).iter().map(line));
    let parts = Layout::vertical([
        Constraint::Length(head.len() as u16 + 1),
        Constraint::Min(3),
        Constraint::Length(DECISIONS),
    ]);
    let [top, middle, bottom] = parts.areas(area);
    frame.render_widget(Paragraph::new(head), top);
    draw_process_table(frame, middle, model);
    let mut lines = vec![Line::styled("Latest decisions", HEADING)];
    let room = usize::from(DECISIONS) - 2;
    lines.extend(overview::decision_lines(&model.status.manager, room, width).iter().map(line));
    frame.render_widget(Paragraph::new(lines), bottom);
}

fn draw_process_table(frame: &mut Frame<'_>, area: Rect, model: &TopModel) {
    let rows = model.sorted_processes();
    let mut lines = vec![Line::styled(process_table::header_line(model.order), HEADING)];
    if rows.is_empty() {
        lines.push(Line::from(" No process is managed."));
    }
    let unlisted = process_table::unlisted_processes_note(&model.status.manager);
    let room = usize::from(area.height).saturating_sub(2 + usize::from(unlisted.is_some()));
    let selected = model.selected_row_index();
    let first = (selected + 1).saturating_sub(room);
    for (n, row) in rows.iter().enumerate().skip(first).take(room) {
        let mut text = model.theme.to_displayable(&process_table::process_row_line(row));
        let mut style = Style::new();
        if n == selected {
            // A terminal without reversed text needs a mark.
            text.replace_range(..1, ">");
            style = SELECTED;
        }
        lines.push(Line::styled(text, style));
    }
    lines.extend(unlisted.map(Line::from));
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_process_details(frame: &mut Frame<'_>, area: Rect, model: &TopModel, open: &OpenedProcess) {
    let mut lines: Vec<Line<'_>> = stale_figures_notice(model).into_iter().collect();
    if let Some(seen) = &open.details {
        let (strip, chosen) = (seen.strip.as_ref(), Some(open.column));
        let text = process_screen::process_screen_lines(&seen.why, strip, chosen, &model.theme);
        // Colour helps with one line: the one that marks huge pages.
        let huge = |line: &str| !line.is_empty() && line.chars().all(|c| "Hh+.".contains(c));
        lines.extend(text.iter().enumerate().map(|(n, line)| {
            let style = match n {
                0 => HEADING,
                _ if huge(line) => model.theme.huge_pages_style(),
                _ => Style::new(),
            };
            Line::styled(model.theme.to_displayable(line), style)
        }));
    } else {
        let pid = open.pid;
        lines.push(Line::from(format!("Process {pid}: asking the daemon.")));
    }
    frame.render_widget(Paragraph::new(Text::from(lines)), area);
}
