//! The list of `hawkeye advise --shared-memory`: shared memory of the whole machine.

use super::super::forecast::clip_start_printable;
use crate::text_format::{WrappedText, clip_printable, format_bytes, format_count};
use hawkeye_linux::processes::shared_mappings::{SharedMemoryKind, SharedMemoryObstacle};
use hawkeye_linux::sample::shared_memory_survey::{SharedMemoryFile, SharedMemorySurvey};
use serde::Serialize;
use std::collections::BTreeSet;

/// Files that the text lists at most; `--json` has all.
const MOST_ROWS: usize = 20;
const COLUMNS: usize = 80;
/// Least width of a file's name.
const LEAST_NAME_COLUMNS: usize = 12;

#[derive(Serialize)]
pub struct SharedMemoryList {
    /// The kernel's setting of that name; `None`: the kernel lacks it.
    shmem_enabled: Option<String>,
    #[serde(flatten)]
    survey: SharedMemorySurvey,
    /// Why files can't become huge and what would change that, once for each obstacle and kind.
    explanations: Vec<String>,
}

impl SharedMemoryList {
    pub fn new(survey: SharedMemorySurvey, shmem_enabled: Option<String>) -> Self {
        let explanations = explanations_of(&survey.files, shmem_enabled.as_deref());
        Self { shmem_enabled, survey, explanations }
    }
}

pub fn shared_memory_text(list: &SharedMemoryList) -> String {
    let survey = &list.survey;
    let mut out = WrappedText::default();
    let read = format_count(survey.coverage.read as u64);
    let setting = list.shmem_enabled.as_deref().unwrap_or("absent");
    if survey.files.is_empty() {
        out.push_sentence(format!("None of {read} processes maps 2 MiB of shared memory."));
    } else {
        let files = format_count(survey.files.len() as u64);
        out.push_sentence(format!(
            "Shared memory that is mapped in pieces of at least 2 MiB: {files} files in the {read} processes that were read, most resident memory first (shmem_enabled={setting})."
        ));
        let (resident, mapped, procs) = ("RESIDENT", "MAPPED", "PROCS");
        out.0 += &format!(
            "\n{resident:>9} {mapped:>8} {procs:>5}  {:<18} {:<14} FILE\n",
            "MOST IN", "CAN BE HUGE"
        );
    }
    for file in survey.files.iter().take(MOST_ROWS) {
        out.0 += &file_row(file);
    }
    let rest = survey.files.get(MOST_ROWS..).unwrap_or_default();
    if !rest.is_empty() {
        let bytes = rest.iter().fold(0, |sum: u64, file| sum.saturating_add(file.resident_bytes));
        let count = format_count(rest.len() as u64);
        out.0 += &format!("and {count} more files with {} resident\n", format_bytes(bytes));
    }
    if !list.explanations.is_empty() {
        out.0.push('\n');
    }
    for explanation in &list.explanations {
        out.push_list_item(explanation);
    }
    let warnings = warnings_of(list);
    if !warnings.is_empty() {
        out.0.push('\n');
    }
    for warning in warnings {
        out.push_sentence(warning);
    }
    out.0
}

fn file_row(file: &SharedMemoryFile) -> String {
    let bound = if file.resident_is_upper_bound { "<" } else { "" };
    let resident = format!("{bound}{}", format_bytes(file.resident_bytes));
    let mapped = format_bytes(file.mapped_bytes);
    let command = clip_printable(&file.largest_command, 12);
    let largest = format!("{} {command}", file.largest_pid);
    let row = format!(
        "{resident:>9} {mapped:>8} {:>5}  {largest:<18} {:<14} ",
        file.processes,
        answer_of(file)
    );
    let left = COLUMNS.saturating_sub(row.chars().count());
    row + name_of(file, left.max(LEAST_NAME_COLUMNS)).trim_end() + "\n"
}

/// Whether a file can become huge, in one or two words.
fn answer_of(file: &SharedMemoryFile) -> String {
    match file.obstacle.map(word_for) {
        None => "yes".to_owned(),
        Some(word) if file.blocked_mappings == file.mappings => format!("no: {word}"),
        Some(word) => format!("in {}: {word}", file.mappings - file.blocked_mappings),
    }
}

fn word_for(obstacle: SharedMemoryObstacle) -> &'static str {
    match obstacle {
        SharedMemoryObstacle::HugeTlb => "hugetlb",
        SharedMemoryObstacle::ThpDisabled => "disabled",
        SharedMemoryObstacle::Userfaultfd => "watched",
        SharedMemoryObstacle::NoHugePage => "excluded",
        SharedMemoryObstacle::Misaligned { .. } => "misaligned",
        SharedMemoryObstacle::TooSmall => "too small",
    }
}

fn name_of(file: &SharedMemoryFile, width: usize) -> String {
    if file.kind == SharedMemoryKind::TmpfsFile {
        return clip_start_printable(&file.what, width);
    }
    let name = file.what.strip_suffix(" (deleted)").unwrap_or(&file.what);
    let name = match (name.strip_prefix("System V segment, key "), name) {
        // Of a private segment.
        (Some("0x0"), _) => format!("SysV id {}", file.inode),
        (Some(key), _) => format!("SysV key {key}"),
        (None, "/dev/zero") => "shared anonymous".to_owned(),
        (None, name) => name.strip_prefix('/').unwrap_or(name).to_owned(),
    };
    clip_printable(&name, width)
}

fn explanations_of(files: &[SharedMemoryFile], shmem_enabled: Option<&str>) -> Vec<String> {
    let mut explained = BTreeSet::new();
    let mut explanations = Vec::new();
    for file in files {
        let Some(obstacle) = file.obstacle else { continue };
        let word = word_for(obstacle);
        if explained.insert((word, None)) {
            explanations.push(format!("{word}: {}.", cause_of(obstacle)));
        }
        let Some(remedy) = obstacle.remedy(file.kind, shmem_enabled) else { continue };
        let kind = match file.kind {
            SharedMemoryKind::TmpfsFile => "files on a tmpfs",
            _ => "memfd, System V and shared anonymous memory",
        };
        if explained.insert((word, Some(kind))) {
            explanations.push(format!("To align {kind}: {remedy}."));
        }
    }
    let in_part = |file: &SharedMemoryFile| (1..file.mappings).contains(&file.blocked_mappings);
    if files.iter().any(in_part) {
        explanations.push(
            "\"in N\": only N of its mappings can become huge. Where they do, the other mappings map base pages of the huge pages."
                .to_owned(),
        );
    }
    explanations
}

/// As a clause. The distance of misaligned mappings differs between processes.
fn cause_of(obstacle: SharedMemoryObstacle) -> String {
    match obstacle {
        SharedMemoryObstacle::Misaligned { .. } => {
            "address and file offset are not congruent modulo 2 MiB".to_owned()
        }
        other => other.to_string(),
    }
}

fn warnings_of(list: &SharedMemoryList) -> Vec<String> {
    let survey = &list.survey;
    let mut warnings = Vec::new();
    let count = |number: usize| format_count(number as u64);
    if list.shmem_enabled.as_deref() == Some("deny") && !survey.files.is_empty() {
        warnings.push(
            "While shmem_enabled is deny, none of it can become huge, whatever its alignment."
                .to_owned(),
        );
    }
    if survey.read_in_part > 0 {
        warnings.push(format!(
            "Large processes, read only in part: {}. Their resident memory is an upper bound (<), and their advice (MADV_NOHUGEPAGE) and userfaultfd are unknown. `hawkeye advise PID` reads all of one process.",
            count(survey.read_in_part)
        ));
    }
    if survey.files_dropped > 0 {
        warnings.push(format!(
            "Left out, because there are too many: {} files with less resident memory.",
            count(survey.files_dropped)
        ));
    }
    if survey.coverage.left_out > 0 {
        warnings.push(format!(
            "Left out, because they could not be read or were not reached in time: {} processes.",
            count(survey.coverage.left_out)
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_linux::sample::population_survey::SurveyCoverage;

    const MIB: u64 = 1 << 20;
    const MISALIGNED: Option<SharedMemoryObstacle> =
        Some(SharedMemoryObstacle::Misaligned { by_bytes: 0x3000 });

    fn file(what: &str, mib: u64, obstacle: Option<SharedMemoryObstacle>) -> SharedMemoryFile {
        SharedMemoryFile {
            what: what.into(),
            kind: SharedMemoryKind::Internal,
            device: (0, 1),
            inode: 32_769,
            mapped_bytes: 2 * mib * MIB,
            resident_bytes: mib * MIB,
            resident_is_upper_bound: false,
            huge_bytes: Some(0),
            processes: 3,
            largest_pid: 4711,
            largest_command: "postgres".into(),
            mappings: 3,
            blocked_mappings: if obstacle.is_some() { 3 } else { 0 },
            obstacle,
        }
    }

    fn list(files: Vec<SharedMemoryFile>, shmem_enabled: &str) -> SharedMemoryList {
        let survey = SharedMemorySurvey {
            coverage: SurveyCoverage { read: 41, left_out: 2 },
            read_in_part: 1,
            files_dropped: 0,
            files,
        };
        SharedMemoryList::new(survey, Some(shmem_enabled.into()))
    }

    fn files() -> Vec<SharedMemoryFile> {
        let tmpfs = SharedMemoryFile {
            kind: SharedMemoryKind::TmpfsFile,
            resident_is_upper_bound: true,
            ..file("/dev/shm/PostgreSQL.1234", 900, MISALIGNED)
        };
        vec![
            file("/dev/zero (deleted)", 70_000, None),
            tmpfs,
            SharedMemoryFile {
                blocked_mappings: 1,
                ..file("/memfd:guest (deleted)", 512, MISALIGNED)
            },
            file("System V segment, key 0x5f1c", 64, Some(SharedMemoryObstacle::NoHugePage)),
        ]
    }

    #[test]
    fn the_list_names_each_file_its_obstacle_and_the_remedies() {
        insta::assert_snapshot!(shared_memory_text(&list(files(), "never")));
    }

    #[test]
    fn lines_fit_into_80_columns_and_names_are_made_printable() {
        let hostile = SharedMemoryFile {
            largest_command: "\x1b[2J\n\u{9b}evil-command".into(),
            largest_pid: 4_194_304,
            resident_is_upper_bound: true,
            ..file("/memfd:\x1b]0;x\x07 with a long name\n", 1000, MISALIGNED)
        };
        let text = shared_memory_text(&list(vec![hostile; 30], "deny"));
        assert!(text.contains("and 10 more files with 9.8 GiB resident"), "{text}");
        assert!(text.contains("shmem_enabled is deny"), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
            assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
        }
    }

    #[test]
    fn the_answer_tells_mappings_of_one_file_apart() {
        let answer = |blocked_mappings, obstacle| {
            answer_of(&SharedMemoryFile { blocked_mappings, ..file("/memfd:x", 4, obstacle) })
        };
        assert_eq!(answer(0, None), "yes");
        assert_eq!(answer(3, MISALIGNED), "no: misaligned");
        assert_eq!(answer(1, MISALIGNED), "in 2: misaligned");
    }

    #[test]
    fn a_machine_without_shared_memory_has_no_table() {
        let text = shared_memory_text(&list(Vec::new(), "never"));
        assert!(text.starts_with("None of 41 processes"), "{text}");
        assert!(!text.contains("FILE"), "{text}");
    }

    #[test]
    fn json_has_all_files_with_their_obstacles() {
        let json = serde_json::to_value(list(files(), "never")).expect("it serializes");
        assert_eq!(json["processes_read"], 41);
        let file = &json["files"][1];
        let fields = ["kind", "obstacle", "by_bytes", "resident_bytes"].map(|name| &file[name]);
        assert_eq!(fields[0], "tmpfs-file");
        assert_eq!(fields[1], "misaligned");
        assert_eq!((fields[2].as_u64(), fields[3].as_u64()), (Some(0x3000), Some(900 * MIB)));
        assert!(json["files"][0].get("obstacle").is_none());
    }
}
