//! Advice on kernels with huge pages that HawkEye does not promote: what is known of a process
//! without a measurement. Pure.

use super::super::unmanaged_kernel::UnmanagedKernel;
use super::advice_text::{finding_sentence, push_remedies};
use super::facts::CgroupFacts;
use super::finding::{Advice, AdviceVerdict, Finding, Remedy};
use super::remedies::{remedies_with_variables, remedy_at_next_start};
use crate::allocator_env_plan::AllocatorEnvPlan;
use crate::text_format::{WrappedText, clip_printable, format_bytes, format_count};
use hawkeye_linux::probe::format_page_size;
use hawkeye_policy::ProcessAttributes;
use serde::Serialize;

/// What was read, without a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct UnmeasuredFacts {
    pub pid: u32,
    pub kernel: UnmanagedKernel,
    pub identity: ProcessAttributes,
    pub thp_disabled: bool,
    pub resident_bytes: u64,
    /// Part of it in huge pages, in bytes.
    pub huge_bytes: u64,
    /// Resident memory for which it requests huge pages (`MADV_HUGEPAGE`), in bytes.
    pub requested_bytes: u64,
    /// Resident memory that it excludes from huge pages (`MADV_NOHUGEPAGE`), in bytes.
    pub excluded_bytes: u64,
    pub first_touch: AllocatorEnvPlan,
    /// The fullest of its cgroups that have a limit.
    pub cgroup: Option<CgroupFacts>,
}

/// As other advice, `--json` has `verdict`, `findings`, `remedies`, `sentences` and `pid`. The
/// other fields are those of [`UnmeasuredFacts`].
#[derive(Clone, Debug, Serialize)]
pub struct UnmeasuredAdvice {
    #[serde(flatten)]
    advice: Advice,
    sentences: Vec<String>,
    #[serde(flatten)]
    facts: UnmeasuredFacts,
}

impl UnmeasuredAdvice {
    pub fn new(facts: UnmeasuredFacts) -> Self {
        let remedies = remedies(&facts);
        let advice = Advice { verdict: AdviceVerdict::Unknown, findings: Vec::new(), remedies };
        Self { advice, sentences: sentences(&facts), facts }
    }
}

pub fn unmeasured_advice_text(report: &UnmeasuredAdvice) -> String {
    let UnmeasuredAdvice { advice, sentences, facts } = report;
    let name = clip_printable(&facts.identity.command, 15);
    let mut out = WrappedText::default();
    let (pid, why) = (facts.pid, &facts.kernel.why);
    out.push_sentence(format!("Process {pid} ({name}) was not measured: {why}."));
    for sentence in sentences {
        out.push_list_item(clip_printable(sentence, 2000));
    }
    out.push_sentence(match advice.remedies.is_empty() {
        true => "Nothing was changed.",
        false => "Nothing was changed. What you can do:",
    });
    push_remedies(&mut out, &advice.remedies);
    out.0
}

fn sentences(facts: &UnmeasuredFacts) -> Vec<String> {
    let left_out = match facts.kernel.guarded {
        true => {
            "Left out are the cost of address translation and the regions that would gain. `hawkeye advise --cgroup PATH` forecasts the memory of its cgroup, also under the profile guard."
        }
        false => {
            "Left out are the cost of address translation, the regions that would gain, unused memory in huge pages, and the forecast: this build of HawkEye counts all of them in regions of another size."
        }
    };
    let mut sentences = vec![left_out.to_owned(), memory_sentence(facts)];
    if facts.thp_disabled {
        sentences.push(finding_sentence(&Finding::ThpDisabled));
    } else {
        sentences.extend(facts.kernel.sentences());
        sentences.extend(allocator_sentences(facts));
    }
    sentences.extend(facts.cgroup.as_ref().map(|cgroup| limit_sentence(facts, cgroup)));
    sentences
}

fn memory_sentence(facts: &UnmeasuredFacts) -> String {
    let [resident, of_huge] = [facts.resident_bytes, facts.huge_bytes].map(format_bytes);
    let huge = facts.kernel.huge_page_size();
    let mut text = format!("It has {resident} resident, {of_huge} of it in huge pages of {huge}.");
    for (bytes, does) in [
        (facts.requested_bytes, "It requests huge pages (MADV_HUGEPAGE) for"),
        (facts.excluded_bytes, "It excludes from huge pages (MADV_NOHUGEPAGE)"),
    ] {
        if bytes > 0 {
            text += &format!(" {does} {} of it.", format_bytes(bytes));
        }
    }
    text
}

/// Why the process is not to request the kernel's huge pages; `None`: it may, or it gets smaller
/// ones.
fn reason_against_requests(facts: &UnmeasuredFacts) -> Option<String> {
    let kernel = &facts.kernel;
    if !kernel.gives_huge_pages() {
        return None;
    }
    let (huge, huge_bytes) = (kernel.huge_page_size(), kernel.sizes.huge_page_bytes);
    if facts.resident_bytes < huge_bytes {
        return Some(format!("a huge page of {huge} would hold more than all of its memory"));
    }
    let cgroup = facts.cgroup.as_ref()?;
    (bytes_left(cgroup) < huge_bytes)
        .then(|| format!("its cgroup's limit leaves no room for a huge page of {huge}"))
}

fn bytes_left(cgroup: &CgroupFacts) -> u64 {
    cgroup.usage.total_bytes.saturating_sub(cgroup.usage.used_bytes)
}

fn allocator_sentences(facts: &UnmeasuredFacts) -> Vec<String> {
    let not_proposed = |why: &str| format!("No switch of its allocator is proposed: {why}.");
    let mut sentences: Vec<String> =
        facts.first_touch.left.iter().map(|why| not_proposed(why)).collect();
    let set = &facts.first_touch.set;
    match reason_against_requests(facts).filter(|_| !set.is_empty()) {
        Some(why) => sentences.push(not_proposed(&why)),
        // malloc/malloc.c: `sysmalloc` and `madvise_thp` take the size from hpage_pmd_size.
        None if set.iter().any(|variable| variable.name == "GLIBC_TUNABLES") => {
            sentences.push(format!(
                "With its switch, glibc 2.35 to 2.42 grows its heap by multiples of the kernel's huge page, {} here, and requests huge pages for no mapping below that size.",
                facts.kernel.huge_page_size()
            ));
        }
        None => {}
    }
    sentences
}

fn limit_sentence(facts: &UnmeasuredFacts, cgroup: &CgroupFacts) -> String {
    let CgroupFacts { name, usage } = cgroup;
    let left = bytes_left(cgroup);
    let mut text = format!(
        "Its cgroup {name} uses {:.0} % of its limit of {}, and {} are left.",
        usage.used_percent(),
        format_bytes(usage.total_bytes),
        format_bytes(left),
    );
    if let Some(page_bytes) = facts.kernel.largest_given_bytes() {
        let pages = format_count(left / page_bytes.max(1));
        text += &format!(" They are room for {pages} pages of {}.", format_page_size(page_bytes));
    }
    text
}

fn remedies(facts: &UnmeasuredFacts) -> Vec<Remedy> {
    if facts.thp_disabled {
        return Vec::new();
    }
    let kernel = &facts.kernel;
    let mut remedies = Vec::new();
    if let Some((does, command)) = kernel.switch_to_smaller_pages() {
        remedies.push(remedy_at_next_start(does, command));
    } else if kernel.settings.enabled.as_deref() == Some("always") {
        let does = format!(
            "let the kernel give huge pages of {} only to programs that request them. This holds for EVERY program, until the machine is booted again",
            kernel.huge_page_size()
        );
        let command = format!("echo madvise > {}", kernel.settings.enabled_file);
        remedies.push(remedy_at_next_start(does, command));
    }
    if reason_against_requests(facts).is_none() {
        let mut switches = remedies_with_variables(&facts.identity, &facts.first_touch.set);
        if let (Some(first), Some(bytes)) = (switches.first_mut(), kernel.largest_given_bytes()) {
            first.does +=
                &format!("; each has {} under the present settings", format_page_size(bytes));
        }
        remedies.extend(switches);
    }
    remedies
}

#[cfg(test)]
mod tests {
    use super::super::super::unmanaged_kernel::SmallerPages;
    use super::super::super::unmanaged_kernel::tests::kernel;
    use super::*;
    use crate::allocator_env_plan::glibc_plan;
    use hawkeye_linux::page_sizes::ThpMode;
    use hawkeye_policy::MemoryUse;

    /// A program of 1 GiB under `madvise`, with glibc's malloc.
    fn facts(base_kib: u64, huge_mib: u64) -> UnmeasuredFacts {
        let mut kernel = kernel(base_kib, huge_mib);
        kernel.settings.enabled = Some("madvise".into());
        UnmeasuredFacts {
            pid: 4711,
            kernel,
            identity: ProcessAttributes {
                command: "reader".into(),
                ..ProcessAttributes::default()
            },
            thp_disabled: false,
            resident_bytes: 1 << 30,
            huge_bytes: 512 << 20,
            requested_bytes: 600 << 20,
            excluded_bytes: 0,
            first_touch: glibc_plan(),
            cgroup: Some(CgroupFacts {
                name: "/system.slice/reader.service".into(),
                usage: MemoryUse { used_bytes: 1200 << 20, total_bytes: 2 << 30 },
            }),
        }
    }

    /// The text as one line.
    fn words(facts: UnmeasuredFacts) -> String {
        let text = unmeasured_advice_text(&UnmeasuredAdvice::new(facts));
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_text_says_what_is_known_what_is_left_out_and_what_fits() {
        let words = words(facts(16, 32));
        for expected in [
            "Process 4711 (reader) was not measured: this kernel's base pages have 16 KiB and its huge pages 32 MiB.",
            "- Left out are the cost of address translation,",
            "- It has 1.0 GiB resident, 512 MiB of it in huge pages of 32 MiB. It requests huge pages (MADV_HUGEPAGE) for 600 MiB of it.",
            "only where a program requests them (enabled=madvise). The first touch in such a page takes all of it, 16 times as much as 2 MiB.",
            "- With its switch, glibc 2.35 to 2.42 grows its heap by multiples of the kernel's huge page, 32 MiB here,",
            "- Its cgroup /system.slice/reader.service uses 59 % of its limit of 2.0 GiB, and 848 MiB are left. They are room for 26 pages of 32 MiB.",
            "Nothing was changed. What you can do: - From the next start: let the kernel give pages of 2 MiB in place of 32 MiB",
            "echo madvise > hugepages-2048kB/enabled echo never > hugepages-32768kB/enabled",
            "used or not; each has 32 MiB under the present settings: GLIBC_TUNABLES=glibc.malloc.hugetlb=1 reader ...",
            "kubectl patch deployment NAME",
        ] {
            assert!(words.contains(expected), "{expected}\n{words}");
        }
        assert!(!words.contains("attach"), "{words}");
    }

    #[test]
    fn where_guard_works_the_text_says_so() {
        let mut facts = facts(16, 32);
        facts.kernel.guarded = true;
        let words = words(facts);
        for expected in ["also under the profile guard", "The profile guard takes the unused part"]
        {
            assert!(words.contains(expected), "{expected}\n{words}");
        }
        assert!(!words.contains("can't take"), "{words}");
    }

    #[test]
    fn lines_fit_into_80_columns_and_names_are_made_printable() {
        let mut facts = facts(64, 512);
        facts.identity.command = "a\x1b[2Jb\nc".into();
        let text = unmeasured_advice_text(&UnmeasuredAdvice::new(facts));
        assert!(!text.contains('\x1b'));
        for line in text.lines().filter(|line| !line.starts_with("    ")) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn no_switch_is_proposed_where_one_huge_page_is_more_than_all_memory() {
        let mut small = facts(64, 512);
        small.resident_bytes = 100 << 20;
        let words_of_small = words(small.clone());
        let why = "No switch of its allocator is proposed: a huge page of 512 MiB would hold more than all of its memory.";
        assert!(words_of_small.contains(why), "{words_of_small}");
        assert!(!words_of_small.contains("GLIBC_TUNABLES=glibc"), "{words_of_small}");
        // Where huge pages are off, requests get smaller pages.
        small.kernel.settings.enabled = Some("never".into());
        small.kernel.smaller_pages = Some(SmallerPages {
            page_bytes: 2 << 20,
            setting: "madvise".into(),
            given_to: Some(ThpMode::Madvise),
        });
        let words_of_small = words(small.clone());
        let room = "and 848 MiB are left. They are room for 424 pages of 2 MiB.";
        assert!(words_of_small.contains(room), "{words_of_small}");
        let switch = "each has 2 MiB under the present settings: GLIBC_TUNABLES=glibc";
        assert!(words_of_small.contains(switch), "{words_of_small}");
        assert!(!words_of_small.contains("echo"), "{words_of_small}");
        // Where both are off, there is room for neither.
        small.kernel.smaller_pages = None;
        let words_of_small = words(small);
        assert!(words_of_small.contains("and 848 MiB are left. Nothing"), "{words_of_small}");
    }

    #[test]
    fn no_switch_is_proposed_where_the_cgroup_has_no_room_for_a_huge_page() {
        let mut full = facts(16, 32);
        let why = "No switch of its allocator is proposed: its cgroup's limit leaves no room for a huge page of 32 MiB.";
        for (left_mib, is_proposed) in [(32, true), (31, false)] {
            let usage = MemoryUse { used_bytes: (2048 - left_mib) << 20, total_bytes: 2 << 30 };
            full.cgroup = full.cgroup.map(|cgroup| CgroupFacts { usage, ..cgroup });
            let words = words(full.clone());
            assert_eq!(words.contains("GLIBC_TUNABLES=glibc"), is_proposed, "{words}");
            assert_eq!(words.contains(why), !is_proposed, "{words}");
        }
    }

    #[test]
    fn a_kernel_without_smaller_pages_is_left_to_the_programs_that_request_huge_ones() {
        let mut facts = facts(16, 32);
        facts.kernel.smaller_pages = None;
        facts.kernel.settings.enabled = Some("always".into());
        facts.first_touch = AllocatorEnvPlan {
            set: Vec::new(),
            left: vec!["the kernel gives huge pages to every program already (always)".into()],
        };
        let words = words(facts);
        let command = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
        assert!(words.contains(command) && !words.contains("hugepages-2048kB"), "{words}");
        let left =
            "No switch of its allocator is proposed: the kernel gives huge pages to every program";
        assert!(words.contains(left), "{words}");
    }

    #[test]
    fn nothing_is_proposed_for_a_program_with_huge_pages_disabled() {
        let mut facts = facts(16, 32);
        facts.thp_disabled = true;
        let words = words(facts);
        assert!(words.contains("PR_SET_THP_DISABLE"), "{words}");
        assert!(words.ends_with("Nothing was changed."), "{words}");
    }

    #[test]
    fn json_has_the_fields_of_other_advice_and_the_sizes() {
        let report = UnmeasuredAdvice::new(facts(16, 32));
        let json = serde_json::to_value(report).expect("it serializes");
        assert_eq!(json["verdict"], "unknown");
        assert_eq!(json["kernel"]["huge_page_bytes"].as_u64(), Some(32 << 20));
        assert_eq!(json["kernel"]["smaller_pages"]["setting"], "never");
        assert!(json["sentences"].as_array().is_some_and(|all| all.len() >= 5), "{json}");
        assert!(json["remedies"].as_array().is_some_and(|all| all.len() == 4), "{json}");
    }
}
