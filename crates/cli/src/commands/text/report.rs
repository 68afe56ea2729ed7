//! What `hawkeye text` did, as text and as JSON.

use super::candidates::{LeftAlone, LeftRegions, TextCandidates};
use super::rate_source::RateUnit;
use super::trial::MeasuredTrial;
use crate::text_format::{WrappedText, clip_printable, format_bytes, format_count};
use hawkeye_linux::processes::program_text::TextSupport;
use hawkeye_policy::text_trial::{LEAST_GAIN_PERCENT, TextTrialDecision};
use hawkeye_policy::{HUGE_PAGE_BYTES, RegionAddr};
use nix::errno::Errno;
use serde::Serialize;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TextOutcome {
    /// All that could be huge was huge before.
    HugeAlready,
    /// Promoted and kept, by the trial or without one.
    Kept,
    /// The trial gave it base pages again.
    Reverted,
    /// The kernel refused everything.
    Refused,
    /// There was nothing to promote.
    NothingToPromote,
}

impl TextOutcome {
    pub fn is_success(self) -> bool {
        matches!(self, Self::HugeAlready | Self::Kept | Self::Reverted)
    }
}

/// Regions that the kernel refused with the same answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedRegions {
    pub path: String,
    pub file_system: Option<String>,
    pub regions: u64,
    /// The kernel's answer, by its name.
    pub errno: String,
    /// What that means there.
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TextReport {
    pub pid: u32,
    pub outcome: TextOutcome,
    /// Regions that could be promoted.
    pub regions: usize,
    /// Those of them that are huge now.
    pub promoted: usize,
    pub refused: Vec<RefusedRegions>,
    pub left_alone: Vec<LeftRegions>,
    pub trial: Option<MeasuredTrial>,
}

impl TextReport {
    /// `huge`: promoted regions that are huge now. `refused`: by the kernel, with its answers.
    pub fn new(
        pid: u32,
        found: TextCandidates,
        huge: &[RegionAddr],
        refused: &[(RegionAddr, Errno)],
        trial: Option<MeasuredTrial>,
    ) -> Self {
        let is_huge_already = found.left.iter().any(|left| left.why == LeftAlone::AlreadyHuge);
        let outcome = match trial.as_ref().map(|trial| trial.decision) {
            Some(TextTrialDecision::Keep) => TextOutcome::Kept,
            Some(TextTrialDecision::Revert) => TextOutcome::Reverted,
            None if !huge.is_empty() => TextOutcome::Kept,
            None if !found.candidates.is_empty() => TextOutcome::Refused,
            None if is_huge_already => TextOutcome::HugeAlready,
            None => TextOutcome::NothingToPromote,
        };
        let mut report = Self {
            pid,
            outcome,
            regions: found.candidates.len(),
            promoted: huge.len(),
            refused: Vec::new(),
            left_alone: Vec::new(),
            trial,
        };
        for (region, errno) in refused {
            let candidate = found.candidates.iter().find(|it| it.region == *region);
            let Some(candidate) = candidate else { continue };
            let (path, errno_name) = (&candidate.path, format!("{errno:?}"));
            let same = |it: &&mut RefusedRegions| it.path == *path && it.errno == errno_name;
            match report.refused.iter_mut().find(same) {
                Some(known) => known.regions += 1,
                None => report.refused.push(RefusedRegions {
                    path: path.clone(),
                    file_system: candidate.file_system.clone(),
                    regions: 1,
                    why: reason_for_refusal(*errno, candidate.support).to_owned(),
                    errno: errno_name,
                }),
            }
        }
        report.left_alone = found.left;
        report
    }
}

/// What an answer of the kernel means on a file system.
fn reason_for_refusal(errno: Errno, support: TextSupport) -> &'static str {
    match (errno, support) {
        (Errno::ENOMEM, _) => {
            "the kernel found no free huge page, or the text was unmapped meanwhile"
        }
        (Errno::EBUSY, _) => "its cgroup is at its memory limit",
        (Errno::EAGAIN, _) => "pages of it were in use for 3 s",
        (Errno::EINVAL, TextSupport::NoOption) => {
            "this kernel makes no text of that file system huge: until 7.1 it must be built with CONFIG_READ_ONLY_THP_FOR_FS, and from 7.2 on ext4 and XFS need nothing; on tmpfs text can be huge on every kernel from 6.1 on"
        }
        (Errno::EINVAL, TextSupport::SmallFolios) => {
            "that file system has no folios of 2 MiB, which this kernel needs; ext4, XFS and tmpfs have"
        }
        (Errno::EINVAL, TextSupport::ReadOnlyFiles) => {
            "a process has the file open for writing, pages of it are not written back, or a debugger has a breakpoint there"
        }
        (Errno::EINVAL, TextSupport::Tmpfs | TextSupport::LargeFolios) => {
            "pages of it are the process's own, as by a debugger's breakpoint, or the mapping has changed"
        }
        (Errno::EINVAL, TextSupport::Unknown) => {
            "it is not known whether this kernel makes text of that file system huge; on tmpfs every kernel from 6.1 on does"
        }
        _ => "the kernel refused it",
    }
}

fn reason_for_leaving(why: &LeftAlone) -> String {
    match why {
        LeftAlone::AlreadyHuge => "huge already".into(),
        LeftAlone::NothingResident => "nothing of it is in memory, so a promotion would read the file".into(),
        LeftAlone::Misaligned => "address and file offset are not congruent modulo 2 MiB; linking with -Wl,-z,max-page-size=0x200000 changes that".into(),
        LeftAlone::Denied => "shmem_enabled is deny, which forbids huge pages on tmpfs".into(),
        LeftAlone::Obstacle { obstacle } => obstacle.clone(),
        LeftAlone::SeveralMappers { processes } => format!("{processes} processes map the file, and no call takes huge pages back from them, so there is no trial; --keep promotes it without one"),
        LeftAlone::MappersUnknown => "another process may map the file, and no call would take huge pages back from it, so there is no trial; --keep promotes it without one".into(),
        LeftAlone::MappedTwice => "pages of it are mapped twice, and no call would take a huge page back, so there is no trial; --keep promotes it without one".into(),
    }
}

pub fn text_report(report: &TextReport) -> String {
    let mut out = WrappedText::default();
    let pid = report.pid;
    let what = match report.outcome {
        TextOutcome::HugeAlready => "all of its text that can be huge is huge already",
        TextOutcome::Kept => "its text is huge until it ends",
        TextOutcome::Reverted => "its text has base pages again",
        TextOutcome::Refused => "its text can't be huge here",
        TextOutcome::NothingToPromote => "it has no text to promote",
    };
    out.push_sentence(format!("Process {pid}: {what}."));
    if report.promoted > 0 {
        let bytes = format_bytes(report.promoted as u64 * HUGE_PAGE_BYTES);
        let (huge, all) = (report.promoted, report.regions);
        out.push_list_item(format!("{huge} of {all} regions of 2 MiB are huge ({bytes})."));
    }
    if let Some(trial) = &report.trial {
        out.push_list_item(trial_sentence(trial));
    }
    for refused in &report.refused {
        let (count, path) = (format_count(refused.regions), clip_printable(&refused.path, 200));
        let file_system = refused.file_system.as_deref().unwrap_or("unknown");
        let file_system = clip_printable(file_system, 20);
        let (errno, why) = (&refused.errno, &refused.why);
        out.push_list_item(format!(
            "Refused: {count} regions of {path} (file system {file_system}; {errno}): {why}."
        ));
    }
    for left in &report.left_alone {
        let (count, path) = (format_count(left.regions), clip_printable(&left.path, 200));
        let why = reason_for_leaving(&left.why);
        out.push_list_item(format!("Left alone: {count} regions of {path}: {why}."));
    }
    out.0
}

fn trial_sentence(trial: &MeasuredTrial) -> String {
    let unit = match trial.unit {
        RateUnit::InstructionsPerCycle => "instructions per cycle",
        RateUnit::CountsPerSecond => "the rate command's number",
    };
    let (gain, pairs) = (&trial.gain, trial.plan.pairs);
    let decided = match trial.decision {
        TextTrialDecision::Keep => format!("at least {LEAST_GAIN_PERCENT} %"),
        TextTrialDecision::Revert if gain.median_percent < LEAST_GAIN_PERCENT => {
            format!("less than {LEAST_GAIN_PERCENT} %")
        }
        TextTrialDecision::Revert => "which may be chance".to_owned(),
    };
    format!(
        "Huge pages changed its rate by {:+.1} % ({:+.1} to {:+.1}; {unit}, the median of {pairs} pairs of windows of {:.1} s), and made {} of the pairs faster: {decided}.",
        gain.median_percent,
        gain.lowest_percent,
        gain.highest_percent,
        trial.window_s,
        gain.faster_pairs
    )
}

#[cfg(test)]
mod tests {
    use super::super::candidates::TextCandidate;
    use super::*;
    use hawkeye_policy::text_trial::{TextTrialGain, TextTrialPlan};
    use std::time::Duration;

    fn region(n: u64) -> RegionAddr {
        RegionAddr::containing(n * HUGE_PAGE_BYTES)
    }

    fn found(candidates: u64, left: &[LeftAlone]) -> TextCandidates {
        let candidate = |n| TextCandidate {
            region: region(n),
            path: "/usr/bin/tool".into(),
            file_system: Some("ext4".into()),
            support: TextSupport::NoOption,
        };
        let left = left.iter().map(|why| LeftRegions {
            path: "/usr/lib/x".into(),
            regions: 3,
            why: why.clone(),
        });
        TextCandidates {
            candidates: (0..candidates).map(candidate).collect(),
            left: left.collect(),
        }
    }

    fn trial(huge_rate: f64) -> MeasuredTrial {
        let plan = TextTrialPlan::for_duration(Duration::from_secs(7));
        let rates: Vec<f64> =
            plan.windows().map(|huge| if huge { huge_rate } else { 100.0 }).collect();
        let gain = TextTrialGain::from_rates_in_turn(&rates).expect("rates");
        MeasuredTrial {
            unit: RateUnit::CountsPerSecond,
            window_s: plan.window.as_secs_f64(),
            plan,
            rates,
            decision: gain.decision(),
            gain,
        }
    }

    #[test]
    fn the_outcome_follows_from_what_is_huge_and_from_the_trial() {
        let outcome =
            |found, huge: &[RegionAddr], trial| TextReport::new(7, found, huge, &[], trial).outcome;
        let both = [region(0), region(1)];
        assert_eq!(outcome(found(2, &[]), &both, None), TextOutcome::Kept);
        assert_eq!(outcome(found(2, &[]), &both, Some(trial(110.0))), TextOutcome::Kept);
        assert_eq!(outcome(found(2, &[]), &[], Some(trial(100.0))), TextOutcome::Reverted);
        assert_eq!(outcome(found(2, &[]), &[], None), TextOutcome::Refused);
        let huge = [LeftAlone::AlreadyHuge];
        assert_eq!(outcome(found(0, &huge), &[], None), TextOutcome::HugeAlready);
        assert_eq!(outcome(found(0, &[]), &[], None), TextOutcome::NothingToPromote);
        assert!(TextOutcome::Reverted.is_success() && !TextOutcome::Refused.is_success());
    }

    #[test]
    fn a_trial_that_ends_with_base_pages_says_why() {
        let mut reverted = trial(100.5);
        let less = trial_sentence(&reverted);
        assert!(less.ends_with("made 9 of the pairs faster: less than 1 %."), "{less}");
        (reverted.gain.median_percent, reverted.gain.faster_pairs) = (1.5, 6);
        let chance = trial_sentence(&reverted);
        assert!(chance.ends_with("made 6 of the pairs faster: which may be chance."), "{chance}");
    }

    #[test]
    fn a_refusal_says_what_the_kernel_needs() {
        let refused = [(region(0), Errno::EINVAL), (region(1), Errno::EINVAL)];
        let report = TextReport::new(7, found(2, &[]), &[], &refused, None);
        let text = text_report(&report);
        let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(joined.contains("2 regions of /usr/bin/tool (file system ext4; EINVAL)"), "{text}");
        assert!(joined.contains("CONFIG_READ_ONLY_THP_FOR_FS"), "{text}");
    }

    #[test]
    fn text_and_json_have_the_trial() {
        let report = TextReport::new(
            7,
            found(2, &[LeftAlone::SeveralMappers { processes: 4 }]),
            &[region(0), region(1)],
            &[],
            Some(trial(104.0)),
        );
        let text = text_report(&report);
        let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(joined.starts_with("Process 7: its text is huge until it ends."), "{text}");
        assert!(joined.contains("+4.0 % (+4.0 to +4.0; the rate command's number"), "{text}");
        assert!(joined.contains("made 9 of the pairs faster: at least 1 %."), "{text}");
        assert!(joined.contains("4 processes map the file"), "{text}");
        let json = serde_json::to_value(&report).expect("it is JSON");
        assert_eq!(json["outcome"], "kept");
        assert_eq!(json["trial"]["decision"], "keep");
        assert_eq!(json["trial"]["rates"].as_array().map(Vec::len), Some(19));
        assert_eq!(json["trial"]["faster_pairs"], 9);
        assert_eq!(json["left_alone"][0]["why"], "several-mappers");
    }
}
