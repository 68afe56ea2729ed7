//! The lines above and below the processes.

use crate::daemon::protocol::DaemonStatus;
use crate::text_format::{
    clip_printable, format_bytes, format_count, format_duration, format_shared_memory,
    wrap_printable,
};
use crate::view::{DecisionView, ManagerStatus};

/// The state of management, in three lines of 80 columns, and a fourth one if shared memory is
/// managed.
pub fn management_state_lines(status: &DaemonStatus) -> Vec<String> {
    let manager = &status.manager;
    let held = match (&manager.held, manager.promotion_wait()) {
        _ if manager.paused => "PAUSED; `hawkeye resume` resumes it".to_owned(),
        (Some(held), _) => format!("promotion held: {held}"),
        (None, Some(wait)) => wait.to_string(),
        (None, None) => "promotion active".to_owned(),
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
    // Programs and users choose the names of cgroups.
    let mut lines = vec![first, second, third];
    if manager.shared_memory.files > 0 {
        lines.push(format!("shared memory {}", format_shared_memory(&manager.shared_memory)));
    }
    lines.iter().map(|line| clip_printable(line, 1000)).collect()
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
