//! Whether the kernel zeroes free memory in advance. This is read, not tried: a try would also
//! count what other programs do meanwhile.

use crate::memory::prezeroing::{KernelPrezeroingState, LOAD_COMMAND, PrezeroingFiles};
use hawkeye_policy::BASE_PAGE_BYTES;
use serde::Serialize;

/// Result of the check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum PrezeroingFacts {
    /// A stock kernel.
    Absent,
    /// The kernel has pre-zeroing; its state.
    There(KernelPrezeroingState),
    /// The state cannot be read.
    Unknown {
        /// The reason.
        why: String,
    },
}

impl PrezeroingFacts {
    /// Reads the state.
    pub fn read(sys: &PrezeroingFiles) -> Self {
        match sys.read_state() {
            Ok(None) => Self::Absent,
            Ok(Some(found)) => Self::There(found),
            Err(error) => Self::Unknown { why: error.to_string() },
        }
    }

    /// Whether free memory is zeroed at the moment.
    pub fn works(&self) -> bool {
        matches!(self, Self::There(found) if found.active)
    }

    /// A description in words.
    pub fn describe(&self) -> String {
        let found = match self {
            Self::Absent => {
                return "absent; prefault zeroes memory ahead of streams instead; see kernel/README.md".into();
            }
            Self::Unknown { why } => return why.clone(),
            Self::There(found) if !found.active => {
                return format!(
                    "the kernel has it, but no module zeroes memory: run `{LOAD_COMMAND}`"
                );
            }
            Self::There(found) => found,
        };
        let mib = (found.total_page_counts().free * BASE_PAGE_BYTES) >> 20;
        let rate = match &found.module {
            None => "by a module other than HawkEye's".into(),
            Some(module) => {
                let idle = if module.idle_only { ", only on idle processors" } else { "" };
                match module.pages_per_second {
                    0 => format!("without a rate limit{idle}"),
                    pages => format!("at most {pages} pages/s{idle}"),
                }
            }
        };
        format!("works, {rate}; {mib} MiB of free memory are zeroed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::prezeroing::{
        ZeroedPageCounts, ZeroingModuleSettings, ZoneZeroedPageCounts,
    };

    fn there(active: bool, pages_per_second: Option<u32>, idle_only: bool) -> PrezeroingFacts {
        let module = pages_per_second
            .map(|pages_per_second| ZeroingModuleSettings { pages_per_second, idle_only });
        let pages = ZeroedPageCounts { free: 512, ..ZeroedPageCounts::default() };
        let zone = "node0-Normal".into();
        let zones = vec![ZoneZeroedPageCounts { zone, pages }; 2];
        PrezeroingFacts::There(KernelPrezeroingState { active, module, zones })
    }

    #[test]
    fn each_state_has_its_text() {
        let absent = PrezeroingFacts::Absent;
        let unloaded = there(false, None, false);
        let unknown = PrezeroingFacts::Unknown { why: "?".into() };
        let streams =
            "absent; prefault zeroes memory ahead of streams instead; see kernel/README.md";
        let nothing = "the kernel has it, but no module zeroes memory: run `modprobe prezero`";
        for (facts, said) in [(&absent, streams), (&unloaded, nothing), (&unknown, "?")] {
            assert_eq!((facts.works(), facts.describe().as_str()), (false, said));
        }
        let idle = "at most 9 pages/s, only on idle processors";
        for (facts, said) in [
            (there(true, Some(0), false), "without a rate limit"),
            (there(true, Some(9), true), idle),
            (there(true, None, false), "by a module other than HawkEye's"),
        ] {
            let said = format!("works, {said}; 4 MiB of free memory are zeroed");
            assert_eq!((facts.works(), facts.describe()), (true, said));
        }
    }

    #[test]
    fn json_has_the_state_and_every_counter() {
        let json = |facts| serde_json::to_value(facts).expect("it is valid JSON");
        assert_eq!(json(PrezeroingFacts::Absent)["state"], "absent");
        let there = json(there(true, Some(9), true));
        assert_eq!(there["state"], "there");
        assert_eq!(there["module"]["pages_per_second"], 9);
        assert_eq!(there["zones"][1]["free"], 512);
    }
}
