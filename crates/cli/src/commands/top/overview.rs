//! The lines above and below the processes.

use crate::daemon::protocol::DaemonStatus;
use crate::text_format::{
    clip_printable, format_bytes, format_count, format_duration, format_shared_memory,
    wrap_printable,
};
use crate::view::{DecisionView, ManagerStatus};

/// The state of management, in lines of `width` columns.
pub fn management_state_lines(status: &DaemonStatus, width: usize) -> Vec<String> {
    let manager = &status.manager;
    let held = match &manager.held {
        _ if manager.paused => "PAUSED; `hawkeye resume` resumes it".to_owned(),
        Some(held) => format!("promotion held: {held}"),
        None => format!("promotion {}", manager.promotion_pace_text()),
    };
    let stuck = match manager.not_answering {
        0 => String::new(),
        some => format!(", {some} not answering"),
    };
    let (version, policy) = (&manager.version, &manager.policy);
    let cpu = manager.manager_cpu_percent;
    let up = format_duration(manager.uptime_s);
    let managed = format_count(manager.managed as u64);
    let first = format!(
        "hawkeye {version}, policy {policy}, up {up}; {managed} managed{stuck}; {cpu:.1} % of a core"
    );
    let second = match &manager.memory {
        Some(memory) => {
            let percent = memory.used_bytes as f64 * 100.0 / memory.total_bytes.max(1) as f64;
            let (total, high) = (format_bytes(memory.total_bytes), memory.high_percent);
            format!(
                "memory {percent:.1} % of {total} in use, recovery starts over {high} %; {held}"
            )
        }
        None => held,
    };
    let (totals, pace) = (&manager.totals, &manager.pace);
    let [promoted, split] = [totals.promoted, totals.split].map(format_count);
    let recovered = [totals.recovered_bytes, pace.recovered_bytes_per_s as u64].map(format_bytes);
    let third = format!(
        "promoted {promoted} ({:.1}/s), split {split} ({:.1}/s), recovered {} ({}/s)",
        pace.promoted_per_s, pace.split_per_s, recovered[0], recovered[1]
    );
    let mut lines = vec![first, second];
    lines.extend(manager.budget_waits.iter().map(|wait| format!("waits: {wait}")));
    lines.push(third);
    if manager.shared_memory.files > 0 {
        lines.push(format!("shared memory {}", format_shared_memory(&manager.shared_memory)));
    }
    // Programs and users choose the names of cgroups.
    let wrapped = lines.iter().map(|line| wrap_printable(&clip_printable(line, 1000), width, 2));
    wrapped.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The latest decisions, newest first, in at most `room` lines. Only the last one may be cut.
pub fn decision_lines(status: &ManagerStatus, room: usize, width: usize) -> Vec<String> {
    if status.latest.is_empty() {
        return vec!["  none yet".to_owned()];
    }
    let mut lines = Vec::new();
    for decision in status.latest.iter().rev() {
        let text = clip_printable(&decision_line(decision, status.uptime_s), 1000);
        let text = wrap_printable(&text, width, 2);
        if !lines.is_empty() && lines.len() + text.lines().count() > room {
            break;
        }
        lines.extend(text.lines().map(str::to_owned));
    }
    lines.truncate(room);
    lines
}

fn decision_line(decision: &DecisionView, uptime_s: f64) -> String {
    let ago = format_duration(uptime_s - decision.at_s);
    let process = match (&decision.name, decision.pid) {
        (Some(name), Some(pid)) => format!("{name} ({pid}) "),
        (None, Some(pid)) => format!("{pid} "),
        (_, None) => String::new(),
    };
    format!("{ago} ago: {process}{}", decision.text)
}
