//! Kernels with huge pages of another size than 2 MiB, of which HawkEye promotes none: what these
//! mean for programs, and which settings fit there. For `doctor` and `advise`.

use hawkeye_linux::arch::contiguous_bytes_of_this_machine;
use hawkeye_linux::machine_lease::thp_settings::THP_DIR;
use hawkeye_linux::page_sizes::{ThpMode, read_page_size_setting};
use hawkeye_linux::probe::{UnmanagedPageSizes, format_page_size, read_host_facts};
use hawkeye_linux::processes::huge_page_context::ThpSettings;
use hawkeye_policy::PageOrder;
use serde::Serialize;
use std::path::Path;

/// Huge pages of kernels with base pages of 4 KiB.
const USUAL_HUGE_PAGE_BYTES: u64 = 2 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnmanagedKernel {
    #[serde(flatten)]
    pub sizes: UnmanagedPageSizes,
    /// Why nothing is promoted, as a clause.
    pub why: String,
    /// Whether this build knows these sizes: forecasts work, and the profile `guard` does where the
    /// kernel gives memory back.
    pub guarded: bool,
    /// `None`: this kernel has no switch for such pages.
    pub smaller_pages: Option<SmallerPages>,
    pub settings: ThpSettings,
}

/// Pages below a huge page that one TLB entry can hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SmallerPages {
    pub page_bytes: u64,
    /// The value of their switch: `always`, `inherit`, `madvise` or `never`.
    pub setting: String,
    /// The memory that gets them by that setting, where known.
    pub given_to: Option<ThpMode>,
}

impl UnmanagedKernel {
    /// This machine's kernel; `None`: its huge pages are promoted, or the sizes are unknown.
    pub fn of_this_machine() -> Option<Self> {
        let host = read_host_facts();
        let (sizes, why) = (host.unmanaged_page_sizes()?, host.why_nothing_promoted()?);
        let guarded = host.unsupported_page_sizes().is_none();
        let order = contiguous_bytes_of_this_machine().and_then(PageOrder::from_bytes);
        let setting = order.and_then(|order| read_page_size_setting(Path::new(THP_DIR), order));
        let smaller_pages = setting.map(|found| SmallerPages {
            page_bytes: found.page_bytes,
            setting: found.setting,
            given_to: found.given_to,
        });
        Some(Self { sizes, why, guarded, smaller_pages, settings: ThpSettings::read() })
    }

    pub fn huge_page_size(&self) -> String {
        format_page_size(self.sizes.huge_page_bytes)
    }

    /// Whether first touches of some programs get huge pages.
    pub fn gives_huge_pages(&self) -> bool {
        !matches!(self.settings.enabled.as_deref(), None | Some("never"))
    }

    /// Which programs get huge or smaller pages at first touches: `always`, `madvise`, `never`.
    pub fn first_touch_mode(&self) -> Option<&str> {
        let enabled = self.settings.enabled.as_deref();
        let smaller = self.smaller_pages.as_ref().and_then(|pages| pages.given_to);
        match smaller {
            Some(mode) if !self.gives_huge_pages() => Some(mode.into()),
            _ => enabled,
        }
    }

    /// The largest pages that first touches of some programs get; `None`: base pages alone.
    pub fn largest_given_bytes(&self) -> Option<u64> {
        if self.gives_huge_pages() {
            return Some(self.sizes.huge_page_bytes);
        }
        let pages = self.smaller_pages.as_ref()?;
        matches!(pages.given_to, Some(ThpMode::Madvise | ThpMode::Always))
            .then_some(pages.page_bytes)
    }

    /// What first touches get now, and what that means.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = vec![self.huge_page_sentence()];
        sentences.extend(self.smaller_pages.as_ref().map(|pages| self.smaller_sentence(pages)));
        sentences
    }

    fn huge_page_sentence(&self) -> String {
        let huge = self.huge_page_size();
        let given = match self.settings.enabled.as_deref() {
            Some("always") => "to every program (enabled=always)",
            Some("madvise") => "only where a program requests them (enabled=madvise)",
            _ => {
                return format!(
                    "The kernel gives huge pages of {huge} to no program (enabled=never)."
                );
            }
        };
        let times = self.sizes.huge_page_bytes / USUAL_HUGE_PAGE_BYTES;
        let unused = match self.guarded {
            true => {
                "The profile guard takes the unused part back, if `hawkeye doctor` says that this kernel can."
            }
            false => "HawkEye can't take the unused part back here.",
        };
        format!(
            "The kernel gives huge pages of {huge} {given}. The first touch in such a page takes all of it, {times} times as much as {}. {unused}",
            format_page_size(USUAL_HUGE_PAGE_BYTES)
        )
    }

    fn smaller_sentence(&self, pages: &SmallerPages) -> String {
        let (size, setting) = (format_page_size(pages.page_bytes), &pages.setting);
        let given = match pages.given_to {
            Some(ThpMode::Always) => "to every program",
            Some(ThpMode::Madvise) => "only where a program requests huge pages",
            Some(ThpMode::Never) => "to no program",
            None => "to programs as its setting says",
        };
        let mut text = format!(
            "The kernel gives pages of {size}, which one TLB entry can hold, {given} ({}={setting}).",
            switch_name(pages.page_bytes)
        );
        if self.gives_huge_pages() && !matches!(pages.given_to, None | Some(ThpMode::Never)) {
            text += &format!(
                " It tries {} first, and {size} where that does not fit.",
                self.huge_page_size()
            );
        }
        text
    }

    /// Gives smaller pages to the programs that get huge pages now, with a shell's command; `None`
    /// where no program gets huge pages, or the kernel has no smaller ones.
    pub fn switch_to_smaller_pages(&self) -> Option<(String, String)> {
        let pages = self.smaller_pages.as_ref().filter(|_| self.gives_huge_pages())?;
        let mode = match pages.given_to {
            // Programs that get them without a request keep them.
            Some(ThpMode::Always) => "always",
            _ => self.settings.enabled.as_deref()?,
        };
        let size = format_page_size(pages.page_bytes);
        let does = format!(
            "let the kernel give pages of {size} in place of {} to the programs that get those now. This holds for EVERY program, until the machine is booted again",
            self.huge_page_size()
        );
        let [smaller, huge] = [pages.page_bytes, self.sizes.huge_page_bytes].map(switch_name);
        let command = format!("cd {THP_DIR}\necho {mode} > {smaller}\necho never > {huge}");
        Some((does, command))
    }
}

/// The switch of a size, in the kernel's folder of these settings.
fn switch_name(bytes: u64) -> String {
    format!("hugepages-{}kB/enabled", bytes >> 10)
}

#[cfg(test)]
pub(in crate::commands) mod tests {
    use super::*;

    pub(in crate::commands) fn kernel(base_kib: u64, huge_mib: u64) -> UnmanagedKernel {
        UnmanagedKernel {
            sizes: UnmanagedPageSizes {
                base_page_bytes: base_kib << 10,
                huge_page_bytes: huge_mib << 20,
            },
            why: format!(
                "this kernel's base pages have {base_kib} KiB and its huge pages {huge_mib} MiB"
            ),
            guarded: false,
            smaller_pages: Some(SmallerPages {
                page_bytes: 2 << 20,
                setting: "never".into(),
                given_to: Some(ThpMode::Never),
            }),
            settings: ThpSettings {
                enabled: Some("always".into()),
                enabled_file: format!("{THP_DIR}/enabled"),
                khugepaged_max_ptes_none: Some(((huge_mib << 10) / base_kib - 1).to_string()),
                shrink_underused: Some("1".into()),
                ..ThpSettings::default()
            },
        }
    }

    #[test]
    fn the_sizes_and_settings_are_explained() {
        let [huge, smaller] = &kernel(16, 32).sentences()[..] else { panic!("two sentences") };
        let expected = "The kernel gives huge pages of 32 MiB to every program (enabled=always). The first touch in such a page takes all of it, 16 times as much as 2 MiB.";
        assert!(huge.starts_with(expected), "{huge}");
        let expected = "pages of 2 MiB, which one TLB entry can hold, to no program (hugepages-2048kB/enabled=never).";
        assert!(smaller.ends_with(expected), "{smaller}");
        assert!(huge.ends_with("HawkEye can't take the unused part back here."), "{huge}");
        assert!(kernel(64, 512).sentences()[0].contains("256 times as much"));
        let guarded = UnmanagedKernel { guarded: true, ..kernel(16, 32) };
        let huge = &guarded.sentences()[0];
        assert!(huge.contains("The profile guard takes the unused part back"), "{huge}");

        let mut both = kernel(16, 32);
        both.smaller_pages = both.smaller_pages.map(|pages| SmallerPages {
            setting: "inherit".into(),
            given_to: Some(ThpMode::Always),
            ..pages
        });
        assert!(
            both.sentences()[1].ends_with("tries 32 MiB first, and 2 MiB where that does not fit.")
        );
    }

    #[test]
    fn smaller_pages_are_proposed_for_the_programs_that_get_huge_ones() {
        let mut kernel = kernel(16, 32);
        for mode in ["always", "madvise"] {
            kernel.settings.enabled = Some(mode.into());
            let (_, command) = kernel.switch_to_smaller_pages().expect("a switch");
            let expected = format!(
                "cd /sys/kernel/mm/transparent_hugepage\necho {mode} > hugepages-2048kB/enabled\necho never > hugepages-32768kB/enabled"
            );
            assert_eq!(command, expected);
        }
        // What is given already is not taken away.
        kernel.settings.enabled = Some("madvise".into());
        kernel.smaller_pages = kernel.smaller_pages.map(|pages| SmallerPages {
            setting: "always".into(),
            given_to: Some(ThpMode::Always),
            ..pages
        });
        let (_, command) = kernel.switch_to_smaller_pages().expect("a switch");
        assert!(command.contains("echo always > hugepages-2048kB/enabled"), "{command}");
        // What the operator has switched off stays off.
        kernel.settings.enabled = Some("never".into());
        assert_eq!(kernel.switch_to_smaller_pages(), None);
        kernel.settings.enabled = Some("always".into());
        kernel.smaller_pages = None;
        assert_eq!(kernel.switch_to_smaller_pages(), None);
    }

    #[test]
    fn allocators_may_request_smaller_pages_where_huge_ones_are_off() {
        let mut kernel = kernel(16, 32);
        assert_eq!(kernel.first_touch_mode(), Some("always"));
        assert_eq!(kernel.largest_given_bytes(), Some(32 << 20));
        kernel.settings.enabled = Some("never".into());
        assert_eq!(kernel.first_touch_mode(), Some("never"));
        assert_eq!(kernel.largest_given_bytes(), None);
        kernel.smaller_pages = kernel.smaller_pages.map(|pages| SmallerPages {
            setting: "madvise".into(),
            given_to: Some(ThpMode::Madvise),
            ..pages
        });
        assert_eq!(kernel.first_touch_mode(), Some("madvise"));
        assert_eq!(kernel.largest_given_bytes(), Some(2 << 20));
        kernel.smaller_pages = None;
        assert_eq!(kernel.first_touch_mode(), Some("never"));
    }
}
