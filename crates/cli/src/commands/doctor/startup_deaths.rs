//! Deaths that no manager can prevent: programs that reach their memory limit before it looks.

use crate::text_format::{WrappedText, clip_printable, format_count};
use hawkeye_linux::machine_lease::thp_settings::{SHRINK_UNDERUSED, THP_DIR};
use hawkeye_linux::memory::oom_kills::OomKills;
use hawkeye_linux::probe::{UnmanagedPageSizes, format_page_size};
use hawkeye_linux::processes::huge_page_context::ThpSettings;
use hawkeye_policy::{BloatThreshold, PAGES_PER_REGION};
use serde::Serialize;

/// Cgroups with kills that the text lists at most; `--json` has all.
const MOST_CGROUPS: usize = 5;

#[derive(Debug, Serialize)]
pub struct StartupDeaths {
    #[serde(flatten)]
    pub oom_kills: OomKills,
    /// Zero-filled base pages above which the kernel splits a huge page in a cgroup at its limit;
    /// `None`: it splits none.
    pub kernel_splits_above_zero_pages: Option<u16>,
    /// What prevents these deaths, a sentence each.
    pub preventions: Vec<String>,
    /// Whether HawkEye can manage programs here at all.
    #[serde(skip)]
    pub is_managed: bool,
}

impl StartupDeaths {
    /// `unmanaged`: the page sizes of a kernel on which nothing is promoted. `is_managed`: a daemon
    /// can give unused memory back.
    pub fn from_kernel_state(
        oom_kills: OomKills,
        settings: &ThpSettings,
        unmanaged: Option<UnmanagedPageSizes>,
        is_managed: bool,
    ) -> Self {
        let pages_per_region = u64::from(PAGES_PER_REGION);
        let pages = unmanaged.map_or(pages_per_region, UnmanagedPageSizes::pages_per_huge_page);
        let shrinks = settings.shrink_underused.as_deref() == Some("1");
        let most_empty = settings.khugepaged_max_ptes_none.as_ref();
        let most_empty: Option<u16> = most_empty.and_then(|text| text.parse().ok());
        let splits_above = most_empty.filter(|most| shrinks && u64::from(*most) + 1 < pages);
        let mut preventions = vec![first_touch_prevention(settings, unmanaged)];
        // As in a region of 2 MiB, by the number of base pages.
        let threshold = u64::from(BloatThreshold::default().zero_pages());
        let split_from = threshold * pages / pages_per_region;
        preventions.extend(kernel_split_prevention(settings, splits_above, split_from, is_managed));
        preventions.push(
            "Exclude a program by MemoryTHP= of its unit, where systemd supports that, or by a wrapper that calls prctl(PR_SET_THP_DISABLE)."
                .to_owned(),
        );
        Self { oom_kills, kernel_splits_above_zero_pages: splits_above, preventions, is_managed }
    }
}

fn first_touch_prevention(settings: &ThpSettings, unmanaged: Option<UnmanagedPageSizes>) -> String {
    let file = &settings.enabled_file;
    match settings.enabled.as_deref() {
        Some("always") => {
            let others = if unmanaged.is_none() {
                " HawkEye promotes the others where that pays."
            } else {
                ""
            };
            format!(
                "Give huge pages only to programs that request them: `echo madvise > {file}`.{others}"
            )
        }
        other => {
            // Smaller pages, which another file switches, may be given there.
            let start = match unmanaged {
                None => "start on base pages".to_owned(),
                Some(sizes) => format!(
                    "get no huge pages of {} without a request",
                    format_page_size(sizes.huge_page_bytes)
                ),
            };
            let other = other.unwrap_or("absent");
            format!("Keep {file} as it is ({other}): new programs then {start}.")
        }
    }
}

/// What the kernel itself does in a cgroup at its limit; `None` before Linux 6.12. `split_from`:
/// zero-filled base pages from which on it should split a huge page.
fn kernel_split_prevention(
    settings: &ThpSettings,
    splits_above: Option<u16>,
    split_from: u64,
    is_managed: bool,
) -> Option<String> {
    let shrinks = settings.shrink_underused.as_ref()?;
    if let Some(above) = splits_above {
        return Some(format!(
            "In force: the kernel splits huge pages with more than {above} zero-filled base pages in a cgroup at its limit, before it kills."
        ));
    }
    let most_empty = settings.khugepaged_max_ptes_none.as_deref().unwrap_or("unknown");
    let above = split_from.saturating_sub(1);
    let by_daemon =
        if is_managed { "`kernel_split = \"on\"` in the daemon's configuration, or " } else { "" };
    Some(format!(
        "Let the kernel split sparse huge pages in a cgroup at its limit, before it kills: {by_daemon}`cd {THP_DIR} && echo 1 > {SHRINK_UNDERUSED} && echo {above} > khugepaged/max_ptes_none`. It holds for every program. It is off now ({SHRINK_UNDERUSED}={shrinks}, max_ptes_none={most_empty})."
    ))
}

pub fn startup_deaths_text(deaths: &StartupDeaths) -> String {
    let mut out = WrappedText::default();
    out.push_sentence("Deaths that no manager can prevent");
    let kills = &deaths.oom_kills;
    let since_boot = kills.oom_kills_since_boot.map_or("unknown".to_owned(), format_count);
    let mut counted = format!("Processes killed for lack of memory since the start: {since_boot}.");
    if !kills.cgroups.is_empty() {
        let first = kills.cgroups.iter().take(MOST_CGROUPS);
        let each = first.map(|group| {
            let cgroup = clip_printable(&group.cgroup, 200);
            format!("{} in {cgroup}", format_count(group.oom_kills))
        });
        let each: Vec<String> = each.collect();
        counted += &format!(" In cgroups that still exist: {}.", each.join(", "));
    }
    out.push_sentence(counted);
    out.push_sentence(if deaths.is_managed {
        "The daemon manages a program once it is over a second old. One that fills its memory limit before is killed, even if its huge pages are mostly empty. What prevents that:"
    } else {
        "A program that fills its memory limit is killed here, even if its huge pages are mostly empty. What prevents that:"
    });
    for prevention in &deaths.preventions {
        out.push_list_item(prevention);
    }
    out.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_linux::memory::oom_kills::CgroupOomKills;

    fn settings(enabled: &str, shrink_underused: Option<&str>, most_empty: &str) -> ThpSettings {
        ThpSettings {
            enabled: Some(enabled.into()),
            enabled_file: "/sys/kernel/mm/transparent_hugepage/enabled".into(),
            khugepaged_max_ptes_none: Some(most_empty.into()),
            shrink_underused: shrink_underused.map(str::to_owned),
            ..ThpSettings::default()
        }
    }

    fn kills() -> OomKills {
        let group = |cgroup: &str, oom_kills| CgroupOomKills { cgroup: cgroup.into(), oom_kills };
        OomKills {
            oom_kills_since_boot: Some(1234),
            cgroups: vec![group("/pods/a", 20), group("/pods/b\n", 1)],
        }
    }

    fn deaths(enabled: &str, shrinks: Option<&str>, most_empty: &str) -> StartupDeaths {
        StartupDeaths::from_kernel_state(
            kills(),
            &settings(enabled, shrinks, most_empty),
            None,
            true,
        )
    }

    #[test]
    fn limits_are_those_of_the_kernels_page_sizes_and_no_manager_is_named_where_none_works() {
        for (base_kib, huge_mib, default, proposed) in
            [(16, 32, "2047", "echo 255 >"), (64, 512, "8191", "echo 1023 >")]
        {
            let sizes = UnmanagedPageSizes {
                base_page_bytes: base_kib << 10,
                huge_page_bytes: huge_mib << 20,
            };
            let found = |enabled, most_empty| {
                let settings = settings(enabled, Some("1"), most_empty);
                StartupDeaths::from_kernel_state(kills(), &settings, Some(sizes), false)
            };
            assert_eq!(found("always", default).kernel_splits_above_zero_pages, None);
            assert_eq!(found("always", "511").kernel_splits_above_zero_pages, Some(511));
            // Programs may get pages of 2 MiB there.
            let first = &found("never", default).preventions[0];
            let expected =
                format!("new programs then get no huge pages of {huge_mib} MiB without a request.");
            assert!(first.ends_with(&expected), "{first}");
            let text = startup_deaths_text(&found("always", default));
            let words: Vec<&str> = text.split_whitespace().collect();
            let words = words.join(" ");
            assert!(words.contains(proposed), "{text}");
            for absent in ["kernel_split", "daemon", "HawkEye"] {
                assert!(!words.contains(absent), "{text}");
            }
        }
    }

    #[test]
    fn the_kernels_own_splitting_is_in_force_only_below_its_default_limit() {
        let splits = |shrinks, most_empty| {
            deaths("always", shrinks, most_empty).kernel_splits_above_zero_pages
        };
        assert_eq!(splits(Some("1"), "63"), Some(63));
        assert_eq!(splits(Some("1"), "511"), None);
        assert_eq!(splits(Some("0"), "63"), None);
        assert_eq!(splits(None, "63"), None);
    }

    #[test]
    fn only_what_this_kernel_has_is_proposed() {
        let proposed = |enabled, shrinks, most_empty, words: &str| {
            let found = deaths(enabled, shrinks, most_empty);
            found.preventions.iter().any(|prevention| prevention.contains(words))
        };
        assert!(proposed("always", Some("1"), "511", "echo 63 > khugepaged/max_ptes_none"));
        assert!(proposed("always", Some("1"), "63", "In force: the kernel splits"));
        assert!(!proposed("always", None, "511", "kernel_split"));
        assert!(proposed("always", None, "511", "echo madvise >"));
        assert!(!proposed("madvise", None, "511", "echo madvise >"));
    }

    #[test]
    fn the_text_counts_kills_and_fits_into_80_columns() {
        let text = startup_deaths_text(&deaths("always", Some("1"), "511"));
        let words: Vec<&str> = text.split_whitespace().collect();
        let words = words.join(" ");
        assert!(words.contains("since the start: 1,234. In cgroups"), "{text}");
        assert!(words.contains("20 in /pods/a, 1 in /pods/b?."), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
