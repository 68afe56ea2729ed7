//! The workloads that come with the program: `lab/sim/workloads/`.

use super::WorkloadSpecError;

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        /// Name and text of each.
        pub const BUILT_IN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../workloads/", $name, ".toml")))),*];
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
    "islands", "hot-array", "bloat-and-heat", "equal-bloat", "shared-readers"
}

/// Their names.
pub fn built_in_names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// The text of the workload of that name.
///
/// # Errors
/// None has it.
pub(super) fn text_by_name(name: &str) -> Result<&'static str, WorkloadSpecError> {
    let found = BUILT_IN.iter().find(|(known, _)| *known == name);
    let text = found.map(|(_, text)| *text);
    text.ok_or_else(|| WorkloadSpecError::Unknown {
        name: name.to_owned(),
        known: built_in_names().collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{WorkloadSpec, by_name};
    use super::*;

    #[test]
    fn all_are_well_formed_and_named_like_their_files() {
        for name in built_in_names() {
            let workload = by_name(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(workload.name, name);
        }
    }

    #[test]
    fn guest_runs_an_included_workload() {
        let text = |name: &str| {
            format!(
                "name = \"w\"\nsource = \"\"\n[[guest]]\nname = \"vm\"\nmemory = \"80GiB\"\ncores = 2\n[[guest.workload]]\nname = {name:?}\nstart_s = 60.0\n"
            )
        };
        let parsed =
            WorkloadSpec::parse("w", &text("cg")).unwrap_or_else(|error| panic!("{error}"));
        let cg = by_name("cg").unwrap_or_else(|error| panic!("{error}"));
        let [guest] = &parsed.guests[..] else { panic!("{:?}", parsed.guests) };
        assert_eq!(guest.processes[0].phases, cg.processes[0].phases);
        assert_eq!(guest.processes[0].start_s, 60.0);
        let error = WorkloadSpec::parse("w", &text("nobody")).map_err(|error| error.to_string());
        assert!(error.is_err_and(|told| told.contains("no workload \"nobody\"")));
    }
}
