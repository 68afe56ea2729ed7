//! Hardware events that count page walks. Those of each processor: `arch`.
//!
//! Nothing in here has run on the hardware it is for: the machine on which it was written has no
//! counters. Encodings are `umask << 8 | event`, plus `cmask << 24` for cycles with at least one
//! walk.

/// Raw codes of hardware events (`config` of `perf_event_attr` with `PERF_TYPE_RAW`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCodeOverrides {
    /// Cycles in page walks for loads.
    pub load_walk_cycles: Option<u64>,
    /// Cycles in page walks for stores.
    pub store_walk_cycles: Option<u64>,
    /// All cycles.
    pub cycles: Option<u64>,
}

/// The events that are counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WalkEventSet {
    /// Their names in the vendor's manuals; empty where the configuration names the events.
    pub name: &'static str,
    /// Raw events for loads and for stores; one event where a processor counts them together.
    pub walks: (u64, Option<u64>),
    /// Cycles per count: 1 where cycles are counted, an estimate where walks are counted.
    pub cycles_per_count: f64,
    /// Raw event for unhalted cycles; `None`: the kernel's generic cycles event.
    pub cycles: Option<u64>,
    /// Name under which the kernel lists the event of walks where the processor has it. `None`:
    /// all processors of the kind have it.
    pub listed_as: Option<&'static str>,
}

/// Assumed cost of a page walk where only walks are counted, in cycles. It lies between a walk from
/// the first-level cache and one from the last-level cache. The low and high estimates are a factor
/// of 2 away from it.
const CYCLES_PER_WALK: f64 = 35.0;

impl WalkEventSet {
    /// Counted cycles, of loads and of stores.
    pub(crate) const fn of_cycles(name: &'static str, loads: u64, stores: u64) -> Self {
        let walks = (loads, Some(stores));
        Self { name, walks, cycles_per_count: 1.0, cycles: None, listed_as: None }
    }

    /// Counted walks, of loads and stores together.
    pub(crate) const fn of_walks(name: &'static str, loads_and_stores: u64) -> Self {
        let walks = (loads_and_stores, None);
        Self { name, walks, cycles_per_count: CYCLES_PER_WALK, cycles: None, listed_as: None }
    }

    /// The same set, if the kernel lists the event of walks by this name.
    pub(crate) const fn if_listed_as(self, listed_as: &'static str) -> Self {
        Self { listed_as: Some(listed_as), ..self }
    }

    /// Whether walks are counted instead of their cycles.
    pub fn is_estimate(&self) -> bool {
        self.cycles_per_count != 1.0
    }
}

/// Sources of events, each a folder with the folder `events`.
pub(crate) const EVENT_DEVICES: &str = "/sys/bus/event_source/devices";

/// Reason why a processor's walks are not counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountersUnavailable {
    /// The processor is not in the table.
    #[error(
        "the events that count page walks on this processor ({0}) are not known; name them in [counters] of the configuration"
    )]
    UnknownProcessor(String),
    /// The configuration overrides only half of the events.
    #[error("[counters] must set load_walk_cycles if it sets store_walk_cycles or cycles")]
    IncompleteOverride,
    /// The kernel lists no such event: the processor, as this machine shows it, lacks it.
    #[error(
        "this processor counts no page walks here: no folder in /sys/bus/event_source/devices lists {0} (most virtual machines show only some of a processor's events)"
    )]
    NotListed(&'static str),
    /// The kernel counts no hardware events here.
    #[error(
        "the kernel cannot count page-walk events here ({0}): most virtual machines have no counters"
    )]
    NotCounted(String),
}
