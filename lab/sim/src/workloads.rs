//! What simulated programs do: processes, their memory, and phases of filling, accessing, freeing
//! and waiting, as data.
//!
//! A workload does not depend on the system that it runs on. The amount of work is given in
//! accesses, or in seconds of the program's own work without translation. Its duration follows from
//! the system.

use serde::{Deserialize, Deserializer, de};
use std::str::FromStr;
use thiserror::Error;

mod recording_replay;
mod spec;
mod trace_workload;

pub use recording_replay::RecordingReplay;
pub(crate) use spec::DEFAULT_CPU_WEIGHT;
pub use spec::{
    AccessStream, Area, AreaPieces, FillContent, GuestSpec, IncludedWorkload, Phase, Process,
    StreamPattern, WorkloadSpec,
};
pub use trace_workload::{TraceReplay, TraceWorkloadError, workload_of_trace};

/// A workload that can't be run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WorkloadSpecError {
    /// No workload has this name.
    #[error(
        "there is no workload {name:?}; there are {known}; to use your own file, give its path (NAME.toml)"
    )]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// The text is not TOML, or has unknown keys or values. The message gives the position.
    #[error("workload {name}: {message}")]
    Parse {
        /// Name of the workload.
        name: String,
        /// The reason, with line and column.
        message: String,
    },
    /// A value out of range.
    #[error("workload {workload}: {place}: {key} must be {allowed}, not {value}")]
    Value {
        /// Name of the workload.
        workload: String,
        /// Which process and phase.
        place: String,
        /// The key.
        key: &'static str,
        /// The values it can have.
        allowed: &'static str,
        /// Its value.
        value: String,
    },
}

/// A size in bytes, written like `4GiB`, `512 MiB` or as a plain number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u32); 4] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a size: write it as 512MiB or 4GiB");
        let unit = UNITS.iter().find(|(unit, _)| text.ends_with(unit));
        let (number, shift) = unit.map_or((text, 0), |(unit, shift)| {
            (text.trim_end_matches(unit), *shift)
        });
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        let bytes = number * (1u64 << shift) as f64;
        // 2^53: the largest integer up to which a float is exact.
        if bytes >= 1.0 && bytes <= (1u64 << 53) as f64 {
            Ok(Self(bytes as u64))
        } else {
            Err(wrong())
        }
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum SizeText {
            Bytes(u64),
            Text(String),
        }
        match SizeText::deserialize(deserializer)? {
            SizeText::Bytes(bytes) => Ok(Self(bytes)),
            SizeText::Text(text) => text.parse().map_err(de::Error::custom),
        }
    }
}

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        /// Name and text of each.
        pub const BUILT_IN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../workloads/", $name, ".toml")))),*];
    };
}

built_in! {
    "random", "sequential", "graph500", "xsbench", "redis", "redis-full", "redis-pressure",
    "redis-2mb", "redis-8kb", "redis-get", "mongodb", "mongodb-get", "mcf", "svm-vm",
    "canneal-vm", "redis-vm", "tunkrank", "nutch", "movierecmd", "olio", "svm", "canneal",
    "sparsehash", "hacc-io", "touch", "jvm-start", "kvm-start", "bt", "sp", "lu", "mg", "cg",
    "ft", "ua", "table-9a", "table-9b", "redis-light", "redis-light-24", "figure-9-host-cg",
    "figure-9-guest-cg", "figure-9-both-cg", "figure-9-host-graph500",
    "figure-9-guest-graph500", "figure-9-both-graph500", "figure-9-host-xsbench",
    "figure-9-guest-xsbench", "figure-9-both-xsbench", "figure-11", "omnetpp", "chunks",
    "islands", "hot-array"
}

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// The workload of that name.
pub fn by_name(name: &str) -> Result<WorkloadSpec, WorkloadSpecError> {
    let found = BUILT_IN.iter().find(|(known, _)| *known == name);
    let (_, text) = found.ok_or_else(|| WorkloadSpecError::Unknown {
        name: name.to_owned(),
        known: names().collect::<Vec<_>>().join(", "),
    })?;
    WorkloadSpec::parse(name, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_written() {
        assert_eq!("4GiB".parse(), Ok(ByteSize(4 << 30)));
        assert_eq!("1.5 MiB".parse(), Ok(ByteSize(3 << 19)));
        assert_eq!("4096".parse(), Ok(ByteSize(4096)));
        for wrong in ["", "GiB", "4GB", "-1KiB", "0", "nan", "9e99TiB"] {
            assert!(wrong.parse::<ByteSize>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn all_are_well_formed_and_named_like_their_files() {
        for name in names() {
            let workload = by_name(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(workload.name, name);
        }
    }

    #[test]
    fn a_virtual_machine_can_run_what_another_workload_does() {
        let text = |name: &str| {
            format!(
                "name = \"w\"\nsource = \"\"\n[[guest]]\nname = \"vm\"\nmemory = \"80GiB\"\ncores = 2\n[[guest.workload]]\nname = {name:?}\nstart_s = 60.0\n"
            )
        };
        let parsed =
            WorkloadSpec::parse("w", &text("cg")).unwrap_or_else(|error| panic!("{error}"));
        let cg = by_name("cg").unwrap_or_else(|error| panic!("{error}"));
        let [guest] = &parsed.guests[..] else {
            panic!("{:?}", parsed.guests)
        };
        assert_eq!(guest.processes[0].phases, cg.processes[0].phases);
        assert_eq!(guest.processes[0].start_s, 60.0);
        let error = WorkloadSpec::parse("w", &text("nobody")).map_err(|error| error.to_string());
        assert!(error.is_err_and(|told| told.contains("no workload \"nobody\"")));
    }
}
