//! Which regions of a process's text may be promoted, and why others may not.

use super::error::TextError;
use crate::config::Config;
use hawkeye_linux::LinuxError;
use hawkeye_linux::processes::file_mappers::{FileMappers, find_file_mappers};
use hawkeye_linux::processes::huge_page_context::ThpSettings;
use hawkeye_linux::processes::process;
use hawkeye_linux::processes::profile_requests::read_attributes_with_request;
use hawkeye_linux::processes::program_text::{
    KernelTextRule, TextMapping, TextObstacle, TextSupport, read_text_mappings,
};
use hawkeye_linux::promote::program_text::{TextPages, TextPromoter};
use hawkeye_policy::RegionAddr;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Time for reading the mappings of all processes.
const SCAN_TIME: Duration = Duration::from_secs(20);

/// Why regions are left alone without a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum LeftAlone {
    AlreadyHuge,
    /// A promotion would read the file.
    NothingResident,
    /// Address and file offset are not congruent modulo 2 MiB.
    Misaligned,
    /// `shmem_enabled` is `deny`.
    Denied,
    /// What its process did.
    Obstacle {
        obstacle: String,
    },
    /// A promotion would be final.
    SeveralMappers {
        processes: usize,
    },
    /// Another process may map the file.
    MappersUnknown,
    /// Pages of it are mapped by something that was not found, or twice by the process itself.
    MappedTwice,
}

/// Regions of one file that are left alone for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftRegions {
    pub path: String,
    pub regions: u64,
    #[serde(flatten)]
    pub why: LeftAlone,
}

/// A region to promote, and where it is.
pub struct TextCandidate {
    pub region: RegionAddr,
    pub path: String,
    pub file_system: Option<String>,
    pub support: TextSupport,
}

/// The text of a process.
#[derive(Default)]
pub struct TextCandidates {
    pub candidates: Vec<TextCandidate>,
    pub left: Vec<LeftRegions>,
}

/// Checks what excludes a process from changes, whatever its text is.
pub fn check_process_may_be_changed(pid: u32, config: &Config) -> Result<(), TextError> {
    process::check_thp_not_disabled(pid)?;
    let attributes = read_attributes_with_request(pid, config.profile_requests.clone())?;
    match config.rules.why_excluded_by_name(&attributes) {
        Some(why) => Err(TextError::Excluded { pid, why }),
        None => Ok(()),
    }
}

/// The same for a process that a promotion changes too, but that the user did not name.
fn check_other_mapper(pid: u32, config: &Config) -> Result<(), TextError> {
    let refused = |why: String| TextError::OtherMapperExcluded { pid, why };
    match check_process_may_be_changed(pid, config) {
        Err(TextError::Linux(error)) if error.is_process_gone() => return Ok(()),
        Err(TextError::Excluded { why, .. }) => return Err(refused(why)),
        Err(error @ TextError::Linux(LinuxError::ThpDisabled(_))) => {
            return Err(refused(error.to_string()));
        }
        checked => checked?,
    }
    match process::find_real_time_thread(pid, usize::MAX) {
        Some(thread) => Err(refused(format!("it has real-time threads (thread {thread})"))),
        None => Ok(()),
    }
}

impl TextCandidates {
    /// Those of a process. `for_good`: no call has to take them back.
    pub fn find(
        promoter: &mut TextPromoter,
        for_good: bool,
        config: &Config,
    ) -> Result<Self, TextError> {
        let pid = promoter.process().id.pid;
        let mappings = read_text_mappings(pid)?;
        let rule = KernelTextRule::of_running_kernel();
        let is_denied = ThpSettings::read().shmem_enabled.as_deref() == Some("deny");
        let files = mappings.iter().filter(|text| text.windows() > 0).map(|text| text.file);
        let mappers = find_file_mappers(&files.collect(), Instant::now() + SCAN_TIME)?;
        let mut found = Self::default();
        let mut others = BTreeSet::new();
        for text in mappings {
            let whole = reason_for_mapping(&text, is_denied)
                .or_else(|| reason_by_mappers(&text, pid, &mappers).filter(|_| !for_good));
            if let Some(why) = whole {
                let regions = if why == LeftAlone::Misaligned {
                    text.windows_if_aligned()
                } else {
                    text.windows()
                };
                found.leave(&text.path, regions, why);
                continue;
            }
            for region in text.regions() {
                let pages = match promoter.read_region(region)? {
                    // Base pages of a huge page that another process maps, on 6.1.
                    TextPages::Huge if text.huge_bytes == 0 => TextPages::BaseShared,
                    pages => pages,
                };
                match reason_by_pages(pages, for_good) {
                    Some(why) => found.leave(&text.path, 1, why),
                    None => {
                        others.extend(mappers.of_file(text.file).filter(|other| *other != pid));
                        let file_system = text.file_system.as_deref();
                        found.candidates.push(TextCandidate {
                            region,
                            path: text.path.clone(),
                            support: TextSupport::of_file_system(file_system, rule),
                            file_system: text.file_system.clone(),
                        });
                    }
                }
            }
        }
        others.into_iter().try_for_each(|other| check_other_mapper(other, config))?;
        Ok(found)
    }

    pub fn regions(&self) -> Vec<RegionAddr> {
        self.candidates.iter().map(|candidate| candidate.region).collect()
    }

    fn leave(&mut self, path: &str, regions: u64, why: LeftAlone) {
        match self.left.iter_mut().find(|left| left.path == path && left.why == why) {
            Some(left) => left.regions += regions,
            None if regions > 0 => {
                self.left.push(LeftRegions { path: path.to_owned(), regions, why });
            }
            None => {}
        }
    }
}

/// Why no region of a mapping is promoted, by the mapping itself.
fn reason_for_mapping(text: &TextMapping, is_denied: bool) -> Option<LeftAlone> {
    if let Some(obstacle) = text.obstacle {
        return Some(match obstacle {
            TextObstacle::HugeTlb => LeftAlone::AlreadyHuge,
            _ => LeftAlone::Obstacle { obstacle: obstacle.to_string() },
        });
    }
    if !text.is_aligned() {
        return Some(LeftAlone::Misaligned);
    }
    let is_on_tmpfs = text.file_system.as_deref() == Some("tmpfs");
    (is_denied && is_on_tmpfs).then_some(LeftAlone::Denied)
}

/// Why no call would take a promotion of a file back.
fn reason_by_mappers(text: &TextMapping, pid: u32, mappers: &FileMappers) -> Option<LeftAlone> {
    let processes = mappers.of_file(text.file).count();
    // Files of containers' layers have other inodes in each container.
    let is_hidden = text.file_system.as_deref() == Some("overlay");
    match mappers.is_only_mapper(pid, text.file) {
        _ if processes > 1 => Some(LeftAlone::SeveralMappers { processes }),
        true if !is_hidden => None,
        _ => Some(LeftAlone::MappersUnknown),
    }
}

fn reason_by_pages(pages: TextPages, for_good: bool) -> Option<LeftAlone> {
    match pages {
        TextPages::Huge => Some(LeftAlone::AlreadyHuge),
        TextPages::Absent => Some(LeftAlone::NothingResident),
        TextPages::BaseShared if !for_good => Some(LeftAlone::MappedTwice),
        TextPages::BaseShared | TextPages::Base => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_linux::processes::file_mappers::MappedFile;
    use hawkeye_policy::HUGE_PAGE_BYTES;

    fn text() -> TextMapping {
        TextMapping {
            start: 16 * HUGE_PAGE_BYTES,
            end: 20 * HUGE_PAGE_BYTES,
            file_offset: 0,
            file: MappedFile { device: (0, 27), inode: 77 },
            path: "/run/tool".into(),
            file_system: Some("tmpfs".into()),
            resident_bytes: 8 << 20,
            huge_bytes: 0,
            obstacle: None,
        }
    }

    #[test]
    fn a_mapping_is_left_alone_for_what_is_known_of_it() {
        assert_eq!(reason_for_mapping(&text(), false), None);
        assert_eq!(reason_for_mapping(&text(), true), Some(LeftAlone::Denied));
        let on_disk = TextMapping { file_system: Some("ext4".into()), ..text() };
        assert_eq!(reason_for_mapping(&on_disk, true), None);
        let misaligned = TextMapping { file_offset: 4096, ..text() };
        assert_eq!(reason_for_mapping(&misaligned, true), Some(LeftAlone::Misaligned));
        let hugetlb = TextMapping { obstacle: Some(TextObstacle::HugeTlb), ..text() };
        assert_eq!(reason_for_mapping(&hugetlb, false), Some(LeftAlone::AlreadyHuge));
        let locked = TextMapping { obstacle: Some(TextObstacle::Locked), ..text() };
        let obstacle = "the program locked it (mlock)".to_owned();
        assert_eq!(reason_for_mapping(&locked, false), Some(LeftAlone::Obstacle { obstacle }));
    }

    #[test]
    fn a_file_whose_mappers_are_not_known_has_no_trial() {
        // Nothing was found, not even the process itself.
        let nothing = FileMappers::default();
        assert_eq!(reason_by_mappers(&text(), 7, &nothing), Some(LeftAlone::MappersUnknown));
    }

    #[test]
    fn a_region_is_promoted_for_a_trial_if_its_pages_can_be_taken_back() {
        for (pages, trial, for_good) in [
            (TextPages::Absent, Some(LeftAlone::NothingResident), Some(LeftAlone::NothingResident)),
            (TextPages::Huge, Some(LeftAlone::AlreadyHuge), Some(LeftAlone::AlreadyHuge)),
            (TextPages::BaseShared, Some(LeftAlone::MappedTwice), None),
            (TextPages::Base, None, None),
        ] {
            assert_eq!(reason_by_pages(pages, false), trial);
            assert_eq!(reason_by_pages(pages, true), for_good);
        }
    }

    #[test]
    fn regions_of_one_file_and_reason_are_counted_together() {
        let mut found = TextCandidates::default();
        found.leave("/run/tool", 1, LeftAlone::NothingResident);
        found.leave("/run/tool", 2, LeftAlone::NothingResident);
        found.leave("/run/tool", 0, LeftAlone::Misaligned);
        found.leave("/run/other", 4, LeftAlone::NothingResident);
        let counts: Vec<u64> = found.left.iter().map(|left| left.regions).collect();
        assert_eq!(counts, [3, 4]);
    }
}
