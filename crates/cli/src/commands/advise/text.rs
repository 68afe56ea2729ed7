//! Findings as sentences.

use super::facts::{Cost, Facts, NotMeasured, RunningManager};
use super::finding::{Advice, Finding, Takes, Verdict, WORTH_PERCENT};
use crate::words::{self, say};
use hawkeye_policy::OverheadSource;

/// The whole advice as text.
pub fn text(facts: &Facts, advice: &Advice) -> String {
    let who = &facts.surroundings.identity;
    let mut out = String::new();
    let name = words::clipped(&who.command, 15);
    let (pid, seconds, verdict) = (facts.pid, facts.seconds, verdict(advice.verdict));
    let whole = format!("Process {pid} ({name}), measured for {seconds:.0} s: {verdict}");
    say(&mut out, &whole, 0);
    for finding in &advice.findings {
        let line = format!("- {}", sentence(finding));
        say(&mut out, &words::clipped(&line, 2000), 2);
    }
    if advice.remedies.is_empty() {
        let end = match advice.verdict {
            Verdict::GainsNothing | Verdict::HasThem => {
                "Nothing was changed, and nothing needs to be."
            }
            Verdict::Gains | Verdict::MayGain | Verdict::Unknown => "Nothing was changed.",
        };
        say(&mut out, end, 0);
        return out;
    }
    say(&mut out, "Nothing was changed. What would change it:", 0);
    for remedy in &advice.remedies {
        let when = match remedy.takes {
            Takes::AtOnce => "At once",
            Takes::AtNextStart => "From its next start",
        };
        say(&mut out, &format!("- {when}: {}:", remedy.does), 2);
        // Not wrapped, so that the user can copy it.
        for line in remedy.command.lines() {
            out.push_str("    ");
            out.extend(line.chars().filter(|c| !c.is_control()));
            out.push('\n');
        }
    }
    out
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Gains => "huge pages would make it faster.",
        Verdict::MayGain => "huge pages may make it a little faster, more likely not.",
        Verdict::GainsNothing => "huge pages would bring it nothing.",
        Verdict::HasThem => "it has the huge pages that it gains from.",
        Verdict::Unknown => "what huge pages would bring it can't be told.",
    }
}

/// One finding as a sentence.
pub fn sentence(finding: &Finding) -> String {
    let bytes = |n: &u64| words::bytes(*n);
    let whose = |cgroup: &Option<String>| match cgroup {
        Some(name) => format!("its cgroup {name}"),
        None => "the machine".to_owned(),
    };
    match finding {
        Finding::Costs { cost } => costs(cost),
        Finding::NotMeasured(NotMeasured::Idle) => {
            "It used less than 5 % of a core while it was measured: whatever translation costs it, there is little to save now; measure it when it works.".into()
        }
        Finding::NotMeasured(NotMeasured::TooSmall) => {
            "It has no 2 MiB of private memory in one piece: there is nothing to be made huge.".into()
        }
        Finding::NotMeasured(NotMeasured::Unseen) => {
            "This kernel shows no access bits, so what translation costs can't be seen: `hawkeye doctor` says what would bring that.".into()
        }
        Finding::WouldSave {
            percent,
            low_percent,
            high_percent,
            speedup,
            regions,
        } => {
            let memory = bytes(&(regions * hawkeye_policy::HUGE_PAGE_BYTES));
            let regions = words::count(*regions);
            let (up_to, so) = match *percent < WORTH_PERCENT {
                true => ("", format!("under {WORTH_PERCENT} % is not worth the promotions")),
                false => ("up to ", format!("{speedup:.2} times as fast where it only computes")),
            };
            format!(
                "Making all of its {regions} regions under base pages ({memory}) huge would save {up_to}{percent:.1} % of its CPU time ({low_percent:.1}-{high_percent:.1}): {so}."
            )
        }
        Finding::FirstRegions {
            regions,
            share_percent,
            added_bytes,
        } => format!(
            "The first {} regions ({}) have {share_percent:.0} % of that; making them huge would add {}.",
            words::count(*regions),
            bytes(&(regions * hawkeye_policy::HUGE_PAGE_BYTES)),
            bytes(added_bytes),
        ),
        Finding::At {
            start,
            end,
            what,
            share_percent,
            base_bytes,
        } => format!(
            "{share_percent:.0} % of that is in {start:#x}-{end:#x} ({what}), {} under base pages.",
            bytes(base_bytes)
        ),
        Finding::WouldAdd { bytes: 0, .. } => {
            "Huge pages would add no memory: all of its regions are full.".into()
        }
        Finding::WouldAdd { bytes: added, of_bytes } => format!(
            "Huge pages everywhere would add {}, {:.0} % of the {} that are under base pages now: pages that it has not touched.",
            bytes(added),
            *added as f64 * 100.0 / (*of_bytes).max(1) as f64,
            bytes(of_bytes),
        ),
        Finding::Wastes {
            searched,
            huge_regions,
            zero_percent,
            bytes: wasted,
            recoverable_bytes,
        } => {
            let [all, searched] = [*huge_regions, *searched].map(words::count);
            let wasted = bytes(wasted);
            let mut text = format!(
                "It has {all} huge pages; of the {searched} that were searched, {zero_percent:.1} % holds nothing but zeros: {wasted} wasted."
            );
            if *recoverable_bytes > 0 {
                let back = bytes(recoverable_bytes);
                text += &format!(" Recovery could give back about {back} when memory runs short.");
            }
            text
        }
        Finding::ManagerRuns(RunningManager { holder, manages }) => {
            let looks = match manages {
                Some(true) => "manages it, and both look at the same access bits: these figures are low, and its own were disturbed while this measured.",
                Some(false) => "does not manage it.",
                None => "may manage it; then both look at the same access bits, and these figures are low.",
            };
            format!("Another manager runs, {holder}, which {looks}")
        }
        Finding::ThpDisabled => {
            "It was told PR_SET_THP_DISABLE, by itself or by who started it: neither the kernel nor a manager can give it huge pages.".into()
        }
        Finding::NoHugePage { bytes: refused } => format!(
            "{} of it stay under base pages because it said MADV_NOHUGEPAGE; only the program can change that.",
            bytes(refused)
        ),
        Finding::KernelSaysNever => {
            "The kernel is set to give huge pages to nobody (enabled=never); a manager can all the same.".into()
        }
        Finding::KernelSaysMadvise {
            bytes: silent,
            advised_bytes,
        } => format!(
            "The kernel gives huge pages to memory that asks for them (enabled=madvise): {} under base pages do not ask, {} do.",
            bytes(silent),
            bytes(advised_bytes),
        ),
        Finding::KernelSaysAlways {
            bytes: left,
            khugepaged_s,
        } => {
            let mut text = format!(
                "The kernel gives huge pages to everybody (enabled=always), and yet {} are under base pages: touched when none were free, or before that was set.",
                bytes(left)
            );
            if let Some(time) = khugepaged_s.map(words::duration) {
                text += &format!(
                    " khugepaged at its pace takes {time} to come by all of it, in the order of addresses."
                );
            }
            text
        }
        Finding::Shared {
            bytes: shared,
            shmem_enabled,
        } => format!(
            "{} of it is shared memory, which a manager leaves alone; the kernel's shmem_enabled is {}, and a database may take it from the hugetlb pool (huge_pages of PostgreSQL, large-pages of MySQL).",
            bytes(shared),
            shmem_enabled.as_deref().unwrap_or("not there"),
        ),
        Finding::MemoryShort {
            cgroup,
            usage,
            high_percent,
        } => format!(
            "Memory is short: {} uses {:.0} % of {}, and nothing is promoted from {high_percent} % on.",
            whose(cgroup),
            usage.percent(),
            words::bytes(usage.total_bytes),
        ),
        Finding::LimitNear { cgroup, room_bytes } => format!(
            "Not all of that fits: {} has {} left until nothing is promoted any more. A manager stops there; the kernel's own huge pages do not.",
            whose(cgroup),
            bytes(room_bytes),
        ),
    }
}

fn costs(cost: &Cost) -> String {
    let overhead = &cost.overhead;
    let method = match overhead.source {
        OverheadSource::Counters => "counted by the processor",
        OverheadSource::RunRate => {
            "estimated from the pages it touches in milliseconds and what walks cost here"
        }
        OverheadSource::Assumed => "assumed",
    };
    let [lowest, highest] = cost.windows_percent;
    let windows = match cost.windows {
        1 => "one window".to_owned(),
        n => format!("the middle of {n} windows, {lowest:.1}-{highest:.1}"),
    };
    let mut text = format!(
        "Address translation costs it {overhead} of the {:.2} cores that it uses: {method}; {windows}.",
        cost.cpu_cores,
    );
    if overhead.at_least {
        text += " First touches are intercepted by a hypervisor here, so faster programs than that can't be told apart: it may be more.";
    }
    let huge = cost.huge_percent;
    if huge >= 0.1 {
        text += &format!(" {huge:.1} % of that comes from memory that is huge already.");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::findings::advise;
    use super::super::findings::tests::{facts, idle, sequential};
    use super::*;

    #[test]
    fn a_random_reader_is_told_what_it_gains_and_how() {
        let facts = facts();
        insta::assert_snapshot!(text(&facts, &advise(&facts)));
    }

    #[test]
    fn who_gains_nothing_is_told_so_and_nothing_else() {
        let facts = sequential();
        let text = text(&facts, &advise(&facts));
        let end = "Nothing was changed, and nothing needs to be.\n";
        assert!(text.ends_with(end), "{text}");
        let verdict = "huge pages would bring it nothing.";
        assert!(text.contains(verdict), "{text}");
    }

    #[test]
    fn of_an_idle_program_nothing_is_claimed() {
        let facts = idle();
        let text = text(&facts, &advise(&facts));
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains("can't be told."), "{text}");
        assert!(text.ends_with("Nothing was changed.\n"), "{text}");
    }

    #[test]
    fn lines_fit_into_80_columns() {
        let mut facts = facts();
        facts.surroundings.identity.command = "a\x1b[2Jb\nc".into();
        let text = text(&facts, &advise(&facts));
        assert!(!text.contains('\x1b'));
        for line in text.lines().filter(|line| !line.starts_with("    ")) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
