//! Range checks of a workload's values; errors name the value and its place.

use super::{
    AccessStream, Area, AreaPieces, GuestSpec, Phase, Process, StreamPattern, WorkloadSpec,
};
use crate::workloads::{ByteSize, TraceReplay, WorkloadSpecError};
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

impl WorkloadSpec {
    pub(in crate::workloads) fn check(&self) -> Result<(), WorkloadSpecError> {
        let top = ValueChecker { workload: &self.name, place: "workload".to_owned() };
        let some = !self.processes.is_empty() || !self.guests.is_empty();
        top.require("process", some, "given at least once, or a guest", 0)?;
        check_files(&self.name, &self.processes)?;
        for guest in &self.guests {
            guest.check(&self.name)?;
            check_files(&self.name, &guest.processes)?;
        }
        for process in &self.processes {
            process.check(&self.name, "process")?;
        }
        Ok(())
    }
}

/// Areas of one file have one size, and no process has two of them.
fn check_files(workload: &str, processes: &[Process]) -> Result<(), WorkloadSpecError> {
    let mut regions: BTreeMap<&str, u64> = BTreeMap::new();
    for process in processes {
        let mut mapped = BTreeSet::new();
        for area in &process.areas {
            let Some(file) = area.file.as_deref() else {
                continue;
            };
            let place = format!("process {}, area {}", process.name, area.name);
            let at = ValueChecker { workload, place };
            at.require(
                "file",
                mapped.insert(file),
                "another one for each area of a process",
                file,
            )?;
            let same = *regions.entry(file).or_insert(area.regions()) == area.regions();
            at.require("size", same, "the same in all areas of a file", area.size.0)?;
        }
    }
    Ok(())
}

impl GuestSpec {
    fn check(&self, workload: &str) -> Result<(), WorkloadSpecError> {
        let at = ValueChecker { workload, place: format!("guest {}", self.name) };
        at.require_count(self.count)?;
        at.require("cores", self.cores > 0, "1 or more", self.cores)?;
        let range = HUGE_PAGE_BYTES..=1 << 40;
        at.require_range("memory", self.memory.0, range, "2 MiB to 1 TiB")?;
        let some = !self.processes.is_empty();
        at.require("process", some, "given at least once", 0)?;
        let place = format!("guest {}, process", self.name);
        self.processes.iter().try_for_each(|process| process.check(workload, &place))
    }
}

struct ValueChecker<'a> {
    workload: &'a str,
    place: String,
}

impl ValueChecker<'_> {
    fn require(
        &self,
        key: &'static str,
        holds: bool,
        allowed: &'static str,
        value: impl ToString,
    ) -> Result<(), WorkloadSpecError> {
        holds.then_some(()).ok_or_else(|| WorkloadSpecError::Value {
            workload: self.workload.to_owned(),
            place: self.place.clone(),
            key,
            allowed,
            value: value.to_string(),
        })
    }

    fn require_range<T: PartialOrd + ToString>(
        &self,
        key: &'static str,
        value: T,
        range: RangeInclusive<T>,
        allowed: &'static str,
    ) -> Result<(), WorkloadSpecError> {
        self.require(key, range.contains(&value), allowed, value)
    }

    /// Each one has an address space of its own, which takes memory before it runs.
    fn require_count(&self, count: u32) -> Result<(), WorkloadSpecError> {
        self.require_range("count", count, 1..=1024, "1 to 1024")
    }

    fn require_time(&self, key: &'static str, value: f64) -> Result<(), WorkloadSpecError> {
        self.require_range(key, value, 0.0..=1e9, "at least 0 and at most 1e9")
    }

    fn require_percent(&self, key: &'static str, value: f64) -> Result<(), WorkloadSpecError> {
        self.require_range(key, value, 0.0..=100.0, "0 to 100")
    }

    fn require_share_range(&self, [from, to]: [f64; 2]) -> Result<(), WorkloadSpecError> {
        let fits = from >= 0.0 && from < to && to <= 1.0;
        let shown = format!("{from} to {to}");
        self.require("part", fits, "two shares of 0-1 in ascending order", shown)
    }
}

impl Process {
    fn check(&self, workload: &str, kind: &str) -> Result<(), WorkloadSpecError> {
        let mut at = ValueChecker { workload, place: format!("{kind} {}", self.name) };
        at.require_count(self.count)?;
        at.require("repeat", self.repeat > 0, "1 or more", self.repeat)?;
        at.require_range("threads", self.threads, 1..=1024, "1 to 1024")?;
        at.require_range("cpu_weight", self.cpu_weight, 1..=10_000, "1 to 10000")?;
        at.require_time("start_s", self.start_s)?;
        at.require("area", !self.areas.is_empty(), "given at least once", 0)?;
        let bytes: u128 = self.areas.iter().map(|a| u128::from(a.size.0)).sum();
        at.require("size", bytes <= 1 << 40, "at most 1 TiB in total", bytes)?;
        for area in &self.areas {
            at.place = format!("{kind} {}, area {}", self.name, area.name);
            area.check(&at)?;
        }
        at.place = format!("{kind} {}", self.name);
        at.require("phase", !self.phases.is_empty(), "given at least once", 0)?;
        for (number, phase) in (1..).zip(&self.phases) {
            at.place = format!("{kind} {}, phase {number}", self.name);
            self.check_phase(&at, phase)?;
        }
        Ok(())
    }

    fn check_phase(&self, at: &ValueChecker, phase: &Phase) -> Result<(), WorkloadSpecError> {
        let area = |name: &String| {
            let there = self.areas.iter().any(|area| area.name == *name);
            at.require("area", there, "one of the process's areas", name)
        };
        match phase {
            Phase::Fill {
                area: name,
                part,
                pages_per_region,
                pages_per_run,
                page_ns,
                waited_percent,
                ..
            } => {
                area(name)?;
                at.require_share_range(*part)?;
                at.require_percent("waited_percent", *waited_percent)?;
                let all = 1..=PAGES_PER_REGION;
                at.require_range("pages_per_region", *pages_per_region, all, "1 to 512")?;
                let run = *pages_per_run;
                let fits = run.is_power_of_two() && pages_per_region % run == 0;
                let allowed = "a power of two, and a divisor of pages_per_region";
                at.require("pages_per_run", fits, allowed, run)?;
                at.require_time("page_ns", *page_ns)
            }
            Phase::Access { ideal_s, accesses, idle_ns, streams } => {
                at.require_time("idle_ns", *idle_ns)?;
                let given = ideal_s.is_some() != accesses.is_some();
                at.require("ideal_s", given, "given, or else accesses", "both or none")?;
                at.require_time("ideal_s", ideal_s.unwrap_or(0.0))?;
                let count = accesses.unwrap_or(0.0);
                let allowed = "at least 0 and at most 1e15";
                at.require_range("accesses", count, 0.0..=1e15, allowed)?;
                at.require("stream", !streams.is_empty(), "given at least once", 0)?;
                for stream in streams {
                    area(&stream.area)?;
                    stream.check(at)?;
                }
                Ok(())
            }
            Phase::Free { area: name, share, rounds, page_ns } => {
                area(name)?;
                let private = |area: &Area| area.name != *name || area.file.is_none();
                let allowed = "private memory: pages of a file stay in the file";
                at.require("area", self.areas.iter().all(private), allowed, name)?;
                at.require("rounds", *rounds > 0, "1 or more", rounds)?;
                let fits = *share > 0.0 && *share <= 1.0;
                at.require("share", fits, "over 0 and at most 1", share)?;
                at.require_time("page_ns", *page_ns)
            }
            Phase::Wait { seconds } => at.require_time("seconds", *seconds),
            Phase::Play(tape) => tape.check(at),
        }
    }
}

impl Area {
    fn check(&self, at: &ValueChecker) -> Result<(), WorkloadSpecError> {
        at.require("size", self.size.0 > 0, "over 0", self.size.0)?;
        let Some(AreaPieces { size, hole }) = self.pieces else {
            return Ok(());
        };
        at.require("pieces", self.file.is_none(), "left out where a file is mapped", "given")?;
        let whole = |size: ByteSize| size.0 % BASE_PAGE_BYTES == 0;
        let each = size.0.saturating_add(hole.0);
        let fits = size.0 > 0 && whole(size) && whole(hole) && HUGE_PAGE_BYTES % each == 0;
        let allowed = "of whole base pages, with their holes a power of two up to 2 MiB";
        at.require("pieces", fits, allowed, each)
    }
}

impl TraceReplay {
    fn check(&self, at: &ValueChecker) -> Result<(), WorkloadSpecError> {
        for (key, cycles) in [
            ("cycles_per_instruction", self.cycles_per_instruction),
            ("cycles_per_access", self.cycles_per_access),
        ] {
            at.require_range(key, cycles, 0.01..=1e6, "0.01 to 1e6")?;
        }
        at.require_range("scale", self.scale, 1.0..=1e9, "1 to 1e9")?;
        at.require_percent("waited_percent", self.waited_percent)
    }
}

impl AccessStream {
    fn check(&self, at: &ValueChecker) -> Result<(), WorkloadSpecError> {
        at.require_share_range(self.part)?;
        let weight = self.weight > 0.0 && self.weight.is_finite();
        at.require("weight", weight, "over 0 and finite", self.weight)?;
        at.require_range("cycles", self.cycles, 1.0..=1e6, "1 to 1e6")?;
        at.require_percent("stores_percent", self.stores_percent)?;
        at.require_percent("waited_percent", self.waited_percent)?;
        match self.pattern {
            StreamPattern::Random => Ok(()),
            StreamPattern::Zipf(theta) => {
                at.require_range("pattern.zipf", theta, 0.0..=10.0, "0 to 10")
            }
            StreamPattern::Stride(bytes) => {
                at.require("pattern.stride", bytes > 0, "1 or more", bytes)
            }
        }
    }
}
