//! Whether the kernel zeroes free memory in advance: read, not tried, as what others do at the same time would count as well.

use crate::memory::prezeroing::{LOAD, Prezeroed, Prezeroing};
use hawkeye_policy::BASE_PAGE_BYTES;
use serde::Serialize;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum PrezeroingFacts {
    /// A stock kernel.
    Absent,
    /// The kernel has it; as it stands.
    There(Prezeroed),
    /// It can't be told.
    Unknown {
        /// Why.
        why: String,
    },
}

impl PrezeroingFacts {
    /// Looks.
    pub fn read(sys: &Prezeroing) -> Self {
        match sys.read() {
            Ok(None) => Self::Absent,
            Ok(Some(found)) => Self::There(found),
            Err(error) => Self::Unknown {
                why: error.to_string(),
            },
        }
    }

    /// Whether free memory is zeroed at the moment.
    pub fn works(&self) -> bool {
        matches!(self, Self::There(found) if found.active)
    }

    /// In words.
    pub fn describe(&self) -> String {
        let found = match self {
            Self::Absent => {
                return "absent; fault-ahead does it for streams; see kernel/README.md".into();
            }
            Self::Unknown { why } => return why.clone(),
            Self::There(found) if !found.active => {
                return format!("the kernel has it, but nothing zeroes: `{LOAD}`");
            }
            Self::There(found) => found,
        };
        let mib = (found.pages().free * BASE_PAGE_BYTES) >> 20;
        let rate = match &found.module {
            None => "by another module than ours".into(),
            Some(module) => {
                let idle = if module.idle_only {
                    ", only on idle processors"
                } else {
                    ""
                };
                match module.pages_per_second {
                    0 => format!("as fast as it goes{idle}"),
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
    use crate::memory::prezeroing::{ZeroedPages, ZeroingModule, ZoneZeroed};

    fn there(active: bool, pages_per_second: Option<u32>, idle_only: bool) -> PrezeroingFacts {
        let module = pages_per_second.map(|pages_per_second| ZeroingModule {
            pages_per_second,
            idle_only,
        });
        let pages = ZeroedPages {
            free: 512,
            ..ZeroedPages::default()
        };
        let zone = ZoneZeroed {
            zone: "node0-Normal".into(),
            pages,
        };
        PrezeroingFacts::There(Prezeroed {
            active,
            module,
            zones: vec![zone.clone(), zone],
        })
    }

    #[test]
    fn each_state_has_its_sentence() {
        let absent = PrezeroingFacts::Absent;
        let unloaded = there(false, None, false);
        let unknown = PrezeroingFacts::Unknown { why: "?".into() };
        for (facts, said) in [
            (
                &absent,
                "absent; fault-ahead does it for streams; see kernel/README.md",
            ),
            (
                &unloaded,
                "the kernel has it, but nothing zeroes: `modprobe prezero`",
            ),
            (&unknown, "?"),
        ] {
            assert_eq!((facts.works(), facts.describe().as_str()), (false, said));
        }
        for (facts, said) in [
            (there(true, Some(0), false), "as fast as it goes"),
            (
                there(true, Some(9), true),
                "at most 9 pages/s, only on idle processors",
            ),
            (there(true, None, false), "by another module than ours"),
        ] {
            let said = format!("works, {said}; 4 MiB of free memory are zeroed");
            assert_eq!((facts.works(), facts.describe()), (true, said));
        }
    }

    #[test]
    fn programs_are_told_the_state_and_every_counter() {
        let json = |facts| serde_json::to_value(facts).expect("is JSON");
        assert_eq!(json(PrezeroingFacts::Absent)["state"], "absent");
        let there = json(there(true, Some(9), true));
        assert_eq!(there["state"], "there");
        assert_eq!(there["module"]["pages_per_second"], 9);
        assert_eq!(there["zones"][1]["free"], 512);
    }
}
