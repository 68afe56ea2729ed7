//! Shared memory: whether the kernel aligns it for huge pages, and which is not aligned.

use crate::text_format::{WrappedText, clip_printable, format_bytes};
use hawkeye_linux::processes::shared_mappings::MisalignedSharedMemory;
use serde::Serialize;

/// Smaller mappings are not listed: they gain little from huge pages.
pub const LEAST_LISTED_BYTES: u64 = 16 << 20;
/// Mappings that the text lists at most; `--json` has all.
const MOST_LISTED: usize = 5;

/// Shared memory on this machine.
#[derive(Debug, Serialize)]
pub struct SharedMemoryReport {
    /// The kernel's setting; `None`: the kernel lacks it.
    pub shmem_enabled: Option<String>,
    /// Whether `memfd`, System V and shared anonymous memory gets aligned addresses from now on,
    /// where programs leave the choice to the kernel.
    pub new_memory_is_aligned: bool,
    /// Shared memory of at least 16 MiB that cannot become huge because it is not aligned.
    pub misaligned: Vec<MisalignedAndRemedy>,
}

/// Misaligned shared memory, and what would align it at the next start of its program.
#[derive(Debug, Serialize)]
pub struct MisalignedAndRemedy {
    #[serde(flatten)]
    pub memory: MisalignedSharedMemory,
    /// As a clause.
    pub remedy: Option<String>,
}

impl SharedMemoryReport {
    pub fn from_machine_state(
        shmem_enabled: Option<String>,
        misaligned: Vec<MisalignedSharedMemory>,
    ) -> Self {
        let setting = shmem_enabled.as_deref();
        let with_remedy = |memory: MisalignedSharedMemory| MisalignedAndRemedy {
            remedy: memory.mapping.remedy(setting),
            memory,
        };
        Self {
            new_memory_is_aligned: !matches!(setting, None | Some("never" | "deny")),
            misaligned: misaligned.into_iter().map(with_remedy).collect(),
            shmem_enabled,
        }
    }
}

pub fn shared_memory_text(report: &SharedMemoryReport) -> String {
    let mut out = WrappedText::default();
    out.push_sentence("Shared memory");
    let setting = report.shmem_enabled.as_deref().unwrap_or("absent");
    out.push_sentence(match setting {
        "deny" => "The setting shmem_enabled is deny: no shared memory can become huge.".to_owned(),
        _ if report.new_memory_is_aligned => format!(
            "The kernel aligns new shared memory for huge pages (shmem_enabled={setting})."
        ),
        _ => format!(
            "The kernel does not align new shared memory for huge pages (shmem_enabled={setting}). `align_shared_memory = \"on\"`, or --align-shared-memory, changes that while a manager runs."
        ),
    });
    for MisalignedAndRemedy { memory, remedy } in report.misaligned.iter().take(MOST_LISTED) {
        let MisalignedSharedMemory { pid, command, processes, mapping } = memory;
        let others = match processes {
            1 => String::new(),
            n => format!(" and {} others", n - 1),
        };
        let mut text = format!(
            "{} of process {pid} ({}){others} cannot become huge: {} at {:#x} from offset {:#x}. The address is {} KiB too high.",
            format_bytes(mapping.mapped_bytes()),
            clip_printable(command, 15),
            clip_printable(&mapping.what, 200),
            mapping.start,
            mapping.file_offset,
            mapping.misaligned_by_bytes() >> 10,
        );
        if let Some(remedy) = remedy {
            text += &format!(" To change that: {remedy}.");
        }
        out.push_list_item(text);
    }
    let left = report.misaligned.len().saturating_sub(MOST_LISTED);
    if left > 0 {
        out.push_list_item(format!("{left} more; --json lists all."));
    }
    out.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_linux::processes::shared_mappings::{
        SharedMapping, SharedMemoryKind, SharedMemoryObstacle,
    };

    fn misaligned(processes: usize) -> MisalignedSharedMemory {
        MisalignedSharedMemory {
            pid: 812,
            command: "postgres".into(),
            processes,
            mapping: SharedMapping {
                start: 0x7f00_0000_5000,
                end: 0x7f00_0000_5000 + (4 << 30),
                file_offset: 0,
                device: (0, 1),
                inode: 7,
                what: "/dev/zero (deleted)".into(),
                kind: SharedMemoryKind::Internal,
                resident_bytes: 0,
                huge_bytes: 0,
                obstacle: Some(SharedMemoryObstacle::Misaligned { by_bytes: 0x5000 }),
            },
        }
    }

    fn words(setting: &str, misaligned: Vec<MisalignedSharedMemory>) -> String {
        let report = SharedMemoryReport::from_machine_state(Some(setting.into()), misaligned);
        let text = shared_memory_text(&report);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_setting_decides_what_is_said_of_new_memory() {
        for (setting, expected) in [
            ("never", "The kernel does not align new shared memory for huge pages"),
            ("advise", "The kernel aligns new shared memory"),
            ("deny", "no shared memory can become huge"),
        ] {
            let text = words(setting, Vec::new());
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn misaligned_memory_is_named_with_its_remedy() {
        let text = words("never", vec![misaligned(15)]);
        for part in [
            "4.0 GiB of process 812 (postgres) and 14 others cannot become huge",
            "/dev/zero (deleted) at 0x7f0000005000 from offset 0x0. The address is 20 KiB too high.",
            "To change that: set shmem_enabled=advise before the program starts",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = words("never", vec![misaligned(1); 7]);
        assert!(text.ends_with("2 more; --json lists all."), "{text}");
    }
}
