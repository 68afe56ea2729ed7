//! Findings as sentences.

use super::facts::{
    AdviceFacts, ProcessForecast, RunningHawkeye, TranslationCost, TranslationNotMeasured,
};
use super::finding::{Advice, AdviceVerdict, Finding, Remedy, RemedyEffectTime, WORTH_PERCENT};
use crate::text_format::{
    WrappedText, clip_printable, format_added_range, format_bytes, format_count, format_duration,
};
use hawkeye_linux::processes::program_text::{TextMapping, TextSupport};
use hawkeye_linux::processes::shared_mappings::SharedMapping;
use hawkeye_policy::TranslationOverheadSource;

pub fn advice_text(facts: &AdviceFacts, advice: &Advice) -> String {
    let identity = &facts.surroundings.identity;
    let mut out = WrappedText::default();
    let name = clip_printable(&identity.command, 15);
    let (pid, seconds, verdict) = (facts.pid, facts.seconds, verdict_text(advice.verdict));
    out.push_sentence(format!("Process {pid} ({name}), measured for {seconds:.0} s: {verdict}"));
    for finding in &advice.findings {
        out.push_list_item(clip_printable(&finding_sentence(finding), 2000));
    }
    let end = match advice.verdict {
        _ if !advice.remedies.is_empty() => "Nothing was changed. What you can do:",
        AdviceVerdict::GainsNothing | AdviceVerdict::HasThem => {
            "Nothing was changed, and nothing needs to be."
        }
        AdviceVerdict::Gains | AdviceVerdict::MayGain | AdviceVerdict::Unknown => {
            "Nothing was changed."
        }
    };
    out.push_sentence(end);
    push_remedies(&mut out, &advice.remedies);
    out.0
}

/// The commands that would change something, with their effects.
pub fn push_remedies(out: &mut WrappedText, remedies: &[Remedy]) {
    for remedy in remedies {
        let when = match remedy.takes {
            RemedyEffectTime::AtOnce => "At once",
            RemedyEffectTime::AtNextStart => "From the next start",
        };
        out.push_list_item(format!("{when}: {}:", remedy.does));
        // Not wrapped, so that the user can copy it.
        for line in remedy.command.lines() {
            out.0 += "    ";
            out.0.extend(line.chars().filter(|c| !c.is_control()));
            out.0.push('\n');
        }
    }
}

fn verdict_text(verdict: AdviceVerdict) -> &'static str {
    match verdict {
        AdviceVerdict::Gains => "huge pages would make it faster.",
        AdviceVerdict::MayGain => "huge pages may make it a little faster, but probably not.",
        AdviceVerdict::GainsNothing => "it would gain nothing from huge pages.",
        AdviceVerdict::HasThem => "it already has the huge pages that it gains from.",
        AdviceVerdict::Unknown => "its gain from huge pages is unknown.",
    }
}

pub fn finding_sentence(finding: &Finding) -> String {
    let bytes = |n: &u64| format_bytes(*n);
    let scope = |cgroup: &Option<String>| match cgroup {
        Some(name) => format!("its cgroup {name}"),
        None => "the machine".to_owned(),
    };
    match finding {
        Finding::Costs { cost } => translation_cost_sentence(cost),
        Finding::NotMeasured(TranslationNotMeasured::Idle) => "It used less than 5 % of a core while it was measured, so there is little to save now. Measure it again while it works.".into(),
        Finding::NotMeasured(TranslationNotMeasured::TooSmall) => "It has no 2 MiB of private memory in one piece, so nothing can become huge.".into(),
        Finding::NotMeasured(TranslationNotMeasured::Unseen) => "This kernel shows no access bits, so the cost of address translation can't be measured. `hawkeye doctor` shows what would enable that.".into(),
        Finding::WouldSave { percent, low_percent, high_percent, speedup, regions } => {
            let memory = bytes(&(regions * hawkeye_policy::HUGE_PAGE_BYTES));
            let regions = format_count(*regions);
            let (up_to, so) = match *percent < WORTH_PERCENT {
                true => ("", format!("under {WORTH_PERCENT} % is not worth the promotions")),
                false => ("up to ", format!("{speedup:.2} times as fast where it only computes")),
            };
            format!(
                "Making all of its {regions} regions under base pages ({memory}) huge would save {up_to}{percent:.1} % of its CPU time ({low_percent:.1}-{high_percent:.1}): {so}."
            )
        }
        Finding::Contiguous { regions, of_regions } => format!(
            "Contiguous entries map most of {} of these {} regions: one TLB entry covers 64 KiB there, and accesses are seen by 64 KiB. Huge pages save less there than in regions under base pages.",
            format_count(*regions),
            format_count(*of_regions),
        ),
        Finding::FirstRegions { regions, share_percent, added_bytes } => format!(
            "The hottest {} regions ({}) account for {share_percent:.0} % of that; making them huge would add {}.",
            format_count(*regions),
            bytes(&(regions * hawkeye_policy::HUGE_PAGE_BYTES)),
            bytes(added_bytes),
        ),
        Finding::At { start, end, what, share_percent, base_bytes } => format!(
            "{share_percent:.0} % of that is in {start:#x}-{end:#x} ({what}), {} under base pages.",
            bytes(base_bytes)
        ),
        Finding::WouldAdd { bytes: 0, .. } => "Huge pages would add no memory: all of its regions are full.".into(),
        Finding::WouldAdd { bytes: added, of_bytes } => format!(
            "Making all of its regions huge would add {} that it has not touched: {:.0} % of the {} that are under base pages now.",
            bytes(added),
            *added as f64 * 100.0 / (*of_bytes).max(1) as f64,
            bytes(of_bytes),
        ),
        Finding::Forecast(forecast) => forecast_sentence(forecast),
        Finding::Wastes { searched, huge_regions, zero_percent, bytes: wasted, recoverable_bytes } => {
            let [all, searched] = [*huge_regions, *searched].map(format_count);
            let wasted = bytes(wasted);
            let mut text = format!(
                "It has {all} huge pages. {zero_percent:.1} % of the memory in the {searched} that were searched holds only zeros: about {wasted} are wasted in all."
            );
            if *recoverable_bytes > 0 {
                let back = bytes(recoverable_bytes);
                text += &format!(" Recovery could give back about {back} when memory runs short.");
            }
            text
        }
        Finding::ManagerRuns(RunningHawkeye { holder, manages }) => {
            let looks = match manages {
                Some(true) => "It manages this process. Both read the same access bits: these figures are too low, and those of the manager were disturbed meanwhile.",
                Some(false) => "It does not manage this process.",
                None => "It may manage this process. If so, both read the same access bits, and these figures are too low.",
            };
            format!("Another manager runs: {holder}. {looks}")
        }
        Finding::ThpDisabled => "Huge pages are disabled for it (PR_SET_THP_DISABLE), by itself or by the process that started it. Neither the kernel nor a manager can give it huge pages.".into(),
        Finding::NoHugePage { bytes: refused } => format!(
            "{} of it stay under base pages because the program excludes them (MADV_NOHUGEPAGE). Only the program can change that.",
            bytes(refused)
        ),
        Finding::KernelSaysNever => "The kernel gives huge pages to no program (enabled=never). A manager can nevertheless do so.".into(),
        Finding::KernelSaysMadvise { bytes: silent, advised_bytes } => format!(
            "The kernel gives huge pages only where a program requests them (enabled=madvise). Under base pages are {} without such a request, and {} with one.",
            bytes(silent),
            bytes(advised_bytes),
        ),
        Finding::KernelSaysAlways { bytes: left, khugepaged_s } => {
            let mut text = format!(
                "The kernel gives huge pages to every program (enabled=always), but {} are under base pages. They were touched when no huge page was free, or before that was set.",
                bytes(left)
            );
            if let Some(time) = khugepaged_s.map(format_duration) {
                text += &format!(" At its present pace, khugepaged needs {time} to scan all of it, in address order.");
            }
            text
        }
        Finding::Shared { bytes: shared, shmem_enabled } => format!(
            "{} of it are shared memory, which a manager leaves alone unless --shared-memory is given. The kernel's shmem_enabled is {}. A database can take such memory from the hugetlb pool instead (huge_pages of PostgreSQL, large-pages of MySQL).",
            bytes(shared),
            shmem_enabled.as_deref().unwrap_or("absent"),
        ),
        Finding::SharedBlocked { mapping, mapped_bytes, because, remedy } => {
            let SharedMapping { start, end, file_offset, what, resident_bytes, .. } = mapping;
            let [mapped, resident] = [mapped_bytes, resident_bytes].map(bytes);
            let mut text = format!(
                "Shared memory at {start:#x}-{end:#x} ({what}, from offset {file_offset:#x}), {mapped} with {resident} resident, cannot become huge: {because}."
            );
            if let Some(remedy) = remedy {
                text += &format!(" To change that: {remedy}.");
            }
            text
        }
        Finding::Text { mapping, aligned, windows, windows_if_aligned, support } => {
            let TextMapping { path, file_system, resident_bytes, huge_bytes, .. } = mapping;
            let file_system = file_system.as_deref().unwrap_or("file system not known");
            let [resident, huge] = [resident_bytes, huge_bytes].map(bytes);
            let place = match (aligned, windows) {
                (true, 0) => "no window of 2 MiB is wholly in it, so nothing of it can be huge".to_owned(),
                (false, _) => format!(
                    "none of its {windows_if_aligned} windows of 2 MiB can be huge, because address and file offset are not congruent modulo 2 MiB. Linking it with {TEXT_LINKER_FLAG} would change that"
                ),
                (true, _) => format!("address and file offset allow {windows} huge pages"),
            };
            format!(
                "Program text of {path} ({file_system}), {resident} resident and {huge} of it huge: {place}. {}",
                text_support_sentence(*support)
            )
        }
        Finding::MemoryShort { cgroup, usage, high_percent } => format!(
            "Memory is short: {} uses {:.0} % of {}, and nothing is promoted at {high_percent} % or more.",
            scope(cgroup),
            usage.used_percent(),
            format_bytes(usage.total_bytes),
        ),
        Finding::LimitNear { cgroup, room_bytes } => format!(
            "Not all of that fits: {} has {} left below the high watermark. A manager stops promoting there; the kernel does not.",
            scope(cgroup),
            bytes(room_bytes),
        ),
    }
}

/// Aligns each segment of a program to 2 MiB in memory and in its file.
const TEXT_LINKER_FLAG: &str = "-Wl,-z,max-page-size=0x200000";

fn text_support_sentence(support: TextSupport) -> &'static str {
    match support {
        TextSupport::Tmpfs => {
            "On tmpfs the kernel makes text huge where a program asks for it (MADV_COLLAPSE). `hawkeye text PID` does that, and measures whether it pays."
        }
        TextSupport::ReadOnlyFiles => {
            "This kernel makes text huge where a program asks for it (MADV_COLLAPSE), and by khugepaged. `hawkeye text PID` does that, and measures whether it pays."
        }
        TextSupport::LargeFolios => {
            "This kernel makes text huge on that file system where a program asks for it (MADV_COLLAPSE). `hawkeye text PID` does that, and measures whether it pays."
        }
        TextSupport::NoOption => {
            "This kernel makes no text huge that is on a disk: CONFIG_READ_ONLY_THP_FOR_FS is not set."
        }
        TextSupport::SmallFolios => {
            "This kernel makes no text huge on that file system: it has no folios of 2 MiB."
        }
        TextSupport::Unknown => {
            "It is not known whether this kernel makes text huge on that file system."
        }
    }
}

fn forecast_sentence(forecast: &ProcessForecast) -> String {
    let added = format_bytes(forecast.added_bytes);
    let mut text = format!(
        "With huge pages for every program (enabled=always) it would hold up to {added} more."
    );
    if let Some(group) = &forecast.cgroup {
        let with = |added: String, percent: Option<f64>| {
            format!("{:.0} % ({added})", percent.unwrap_or_default())
        };
        let always = format!("+{}", format_bytes(group.always_added_bytes));
        let always = with(always, group.always_percent_of_limit);
        let guard = format_added_range(group.guard_least_added_bytes, group.guard_added_bytes);
        let guard = with(guard, group.guard_percent_of_limit);
        let limit = format_bytes(group.limit_bytes.unwrap_or_default());
        text += &format!(
            " Its cgroup {} would then use up to {always} of its limit of {limit}, under `guard` up to {guard}.",
            group.cgroup
        );
        if group.always_percent_of_limit >= Some(100.0) {
            text += " At its limit the kernel kills.";
        }
    }
    text
}

fn translation_cost_sentence(cost: &TranslationCost) -> String {
    let overhead = &cost.overhead;
    let method = match overhead.source {
        TranslationOverheadSource::Counters => "counted by the processor",
        TranslationOverheadSource::WalkRate => {
            "estimated from the pages that it touches within milliseconds and the cost of page walks here"
        }
        TranslationOverheadSource::Assumed => "assumed",
    };
    let [lowest, highest] = cost.windows_percent;
    let windows = match cost.windows {
        1 => "one window".to_owned(),
        n => format!("the median of {n} windows, {lowest:.1}-{highest:.1}"),
    };
    let mut text = format!(
        "Address translation costs it {overhead} of the {:.2} cores that it uses: {method}; {windows}.",
        cost.cpu_cores,
    );
    if overhead.at_least {
        text += " It may be more: a hypervisor intercepts first touches here, so higher costs can't be distinguished.";
    }
    let huge = cost.huge_percent;
    if huge >= 0.1 {
        let points = format!("{huge:.1} percentage points");
        text += &format!(" Of that, {points} come from memory that is huge already.");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::findings::advice_from_facts;
    use super::super::findings::tests::{facts, idle, sequential, text_mapping};
    use super::*;

    #[test]
    fn advice_for_a_random_reader_shows_its_gain_and_remedies() {
        let facts = facts();
        insta::assert_snapshot!(advice_text(&facts, &advice_from_facts(&facts)));
    }

    #[test]
    fn text_that_has_no_whole_window_is_not_called_misaligned() {
        let sentence = |aligned, windows| {
            finding_sentence(&Finding::Text {
                mapping: text_mapping(1, 0, 3 << 20, "ext4"),
                aligned,
                windows,
                windows_if_aligned: 1,
                support: TextSupport::Unknown,
            })
        };
        assert!(sentence(true, 0).contains("no window of 2 MiB is wholly in it"));
        assert!(sentence(true, 1).contains("allow 1 huge pages"));
        assert!(sentence(false, 0).contains(TEXT_LINKER_FLAG));
    }

    #[test]
    fn advice_for_a_process_without_gain_proposes_nothing() {
        let facts = sequential();
        let text = advice_text(&facts, &advice_from_facts(&facts));
        let end = "Nothing was changed, and nothing needs to be.\n";
        assert!(text.ends_with(end), "{text}");
        let verdict = "it would gain nothing from huge pages.";
        assert!(text.contains(verdict), "{text}");
    }

    #[test]
    fn advice_for_an_idle_program_claims_nothing() {
        let facts = idle();
        let text = advice_text(&facts, &advice_from_facts(&facts));
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains("its gain from huge pages is unknown."), "{text}");
        assert!(text.ends_with("Nothing was changed.\n"), "{text}");
    }

    #[test]
    fn lines_fit_into_80_columns() {
        let mut facts = facts();
        facts.surroundings.identity.command = "a\x1b[2Jb\nc".into();
        let text = advice_text(&facts, &advice_from_facts(&facts));
        assert!(!text.contains('\x1b'));
        for line in text.lines().filter(|line| !line.starts_with("    ")) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
