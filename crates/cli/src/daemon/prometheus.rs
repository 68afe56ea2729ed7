//! The status as metrics, in the text format of OpenMetrics that Prometheus scrapes.

use super::protocol::{DaemonStatus, FillStatus, PrezeroingStatus};
use crate::view::{MemoryStatus, ProcessStatus};
use hawkeye_policy::BASE_PAGE_BYTES;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

/// What a scrape is answered with.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Processes (the largest) and cgroups that have series of their own: each costs the scraper memory,
/// and those of a process are of no more use once it is gone.
const MOST_LABELLED: usize = 64;

/// Renders a status.
///
/// # Errors
/// A value that can't be written as text.
pub fn render(status: DaemonStatus) -> Result<String, fmt::Error> {
    // A registry of its own for each scrape: what is gone has no series any more.
    let mut registry = Registry::with_prefix("hawkeye");
    registry.register_collector(Box::new(Snapshot(status)));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct Snapshot(DaemonStatus);

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut metrics = Metrics(encoder);
        let status = &self.0.manager;
        metrics.info(
            "manager",
            "What manages this machine.",
            &[("version", &status.version), ("policy", &status.policy)],
        )?;
        metrics.gauge(
            ("uptime", Some(Unit::Seconds)),
            "Time since management began.",
            status.uptime_s,
        )?;
        metrics.gauge(
            ("paused", None),
            "1 while nothing is done to any process because somebody asked for that.",
            one_if(status.paused),
        )?;
        metrics.gauge(
            ("promotion_held", None),
            "1 while nothing is promoted for the sake of memory.",
            one_if(status.held.is_some()),
        )?;
        metrics.gauge(
            ("managed_processes", None),
            "Processes under management.",
            status.managed as f64,
        )?;
        metrics.gauge(
            ("not_answering_processes", None),
            "Managed processes that have not answered a call for a second or more.",
            status.not_answering as f64,
        )?;
        metrics.gauge(
            ("manager_cpu", ratio()),
            "The manager's own CPU time over the last minute, as a share of one core.",
            status.manager_cpu_percent / 100.0,
        )?;
        metrics.gauge(
            ("longest_call", Some(Unit::Seconds)),
            "The longest call into another process so far.",
            status.longest_call_ms / 1e3,
        )?;
        metrics.counter(
            ("slow_calls", None),
            "Calls into another process that took longer than 30 ms.",
            self.0.slow_calls,
        )?;
        self.totals(&mut metrics)?;
        if let Some(memory) = &status.memory {
            encode_memory(&mut metrics, memory)?;
        }
        if let Some(fill) = &self.0.fill {
            encode_fill(&mut metrics, fill)?;
        }
        if let Some(zeroing) = &self.0.prezeroing {
            encode_prezeroing(&mut metrics, zeroing)?;
        }
        if let Some(journal) = &self.0.journal {
            metrics.counter(
                ("journal_lost_entries", None),
                "Entries that could not be written to the journal's file.",
                journal.lost_entries,
            )?;
        }
        let most = status.processes.len().min(MOST_LABELLED);
        encode_processes(&mut metrics, &status.processes[..most])
    }
}

impl Snapshot {
    fn totals(&self, metrics: &mut Metrics) -> fmt::Result {
        let totals = &self.0.manager.totals;
        metrics.counter(
            ("promoted_regions", None),
            "Regions of 2 MiB made huge.",
            totals.promoted,
        )?;
        metrics.counter(
            ("split_huge_pages", None),
            "Huge pages split to recover memory.",
            totals.split,
        )?;
        metrics.counter(
            ("recovered", Some(Unit::Bytes)),
            "Memory given back by recovery.",
            totals.recovered_bytes,
        )?;
        metrics.counter(
            ("scanned_huge_pages", None),
            "Huge pages searched for zero pages.",
            totals.scanned,
        )?;
        metrics.counter(
            ("freed_candidates", None),
            "Candidates passed over because their owner was freeing them.",
            totals.freed,
        )?;
        metrics.counter(
            ("shared_candidates", None),
            "Candidates passed over because other processes share their pages.",
            totals.shared,
        )?;
        metrics.counter(
            ("samples", None),
            "Samples of processes read.",
            totals.samples,
        )?;
        metrics.counters(
            ("refusals", None),
            "Calls that the kernel refused, by error.",
            totals
                .errors
                .iter()
                .map(|(errno, n)| ([("errno", errno.as_str())], *n)),
        )
    }
}

fn encode_fill(metrics: &mut Metrics, fill: &FillStatus) -> fmt::Result {
    metrics.counter(
        ("filled_regions", None),
        "Regions of 2 MiB zeroed and mapped before they were touched.",
        fill.filled,
    )?;
    metrics.counter(
        ("refused_fills", None),
        "Regions that could not be filled ahead.",
        fill.refused,
    )?;
    metrics.gauge(
        ("ahead_regions", None),
        "Regions filled ahead of programs that were not there yet, at the most.",
        fill.ahead as f64,
    )?;
    metrics.counter(
        ("unused_fills", None),
        "Regions filled ahead of programs that then stopped growing, at the most.",
        fill.unused,
    )?;
    metrics.gauge(
        ("fill_cpu", Some(Unit::Seconds)),
        "CPU time that filling ahead took.",
        fill.cpu_s,
    )
}

fn encode_prezeroing(metrics: &mut Metrics, zeroing: &PrezeroingStatus) -> fmt::Result {
    metrics.gauge(
        ("prezeroing_active", None),
        "1 while the kernel zeroes free memory in advance.",
        one_if(zeroing.active),
    )?;
    metrics.gauge(
        ("free_zeroed", Some(Unit::Bytes)),
        "Free memory that the kernel has zeroed in advance.",
        zeroing.free_zeroed_bytes as f64,
    )?;
    metrics.gauge(
        ("free", Some(Unit::Bytes)),
        "Free memory.",
        zeroing.free_bytes as f64,
    )?;
    let bytes = |pages: u64| pages.saturating_mul(BASE_PAGE_BYTES);
    metrics.counter(
        ("prezeroed", Some(Unit::Bytes)),
        "Memory zeroed in advance.",
        bytes(zeroing.zeroed_pages),
    )?;
    metrics.counter(
        ("prezeroed_served", Some(Unit::Bytes)),
        "Memory zeroed in advance and handed out to who wanted zeros.",
        bytes(zeroing.served_pages),
    )?;
    metrics.counter(
        ("prezeroed_passed_over", Some(Unit::Bytes)),
        "Memory zeroed in advance and handed out to who did not want zeros.",
        bytes(zeroing.passed_over_pages),
    )?;
    metrics.counter(
        ("prezeroed_lost", Some(Unit::Bytes)),
        "Memory zeroed in advance and no longer known to be zero.",
        bytes(zeroing.lost_pages),
    )
}

fn encode_memory(metrics: &mut Metrics, memory: &MemoryStatus) -> fmt::Result {
    let groups = || memory.groups.iter().take(MOST_LABELLED);
    let machine = |value: u64| std::iter::once(([("scope", "machine")], value as f64));
    metrics.gauges(
        ("memory_used", Some(Unit::Bytes)),
        "Memory allocated and not cheaply reclaimable, of the machine and of each cgroup with a limit.",
        machine(memory.used_bytes)
            .chain(groups().map(|g| ([("scope", g.name.as_str())], g.used_bytes as f64))),
    )?;
    metrics.gauges(
        ("memory_limit", Some(Unit::Bytes)),
        "Memory of the machine, and the limit of each cgroup.",
        machine(memory.total_bytes)
            .chain(groups().map(|g| ([("scope", g.name.as_str())], g.total_bytes as f64))),
    )?;
    metrics.gauge(
        ("memory_recovering", None),
        "1 while memory is taken back from bloated huge pages.",
        one_if(memory.recovering),
    )?;
    if let Some(percent) = memory.pressure_percent {
        metrics.gauge(
            ("memory_pressure", ratio()),
            "Share of the last 10 s in which some task waited for memory.",
            percent / 100.0,
        )?;
    }
    if let Some(fmfi) = memory.fmfi {
        metrics.gauge(
            ("memory_fragmentation_index", None),
            "Free memory fragmentation index for huge pages, 0 to 1.",
            fmfi,
        )?;
    }
    Ok(())
}

fn encode_processes(metrics: &mut Metrics, processes: &[ProcessStatus]) -> fmt::Result {
    let labels: Vec<_> = processes.iter().map(|p| p.pid.to_string()).collect();
    let all = || {
        processes.iter().zip(&labels).map(|(process, pid)| {
            let cgroup = process.cgroup.as_deref().unwrap_or_default();
            let labels = [
                ("pid", pid.as_str()),
                ("name", process.name.as_str()),
                ("cgroup", cgroup),
            ];
            (labels, process)
        })
    };
    metrics.gauges(
        ("process_resident", Some(Unit::Bytes)),
        "Resident memory of the largest managed processes.",
        all().map(|(labels, p)| (labels, p.rss_bytes as f64)),
    )?;
    metrics.gauges(
        ("process_huge", Some(Unit::Bytes)),
        "Their memory under huge pages.",
        all().map(|(labels, p)| (labels, p.huge_bytes as f64)),
    )?;
    metrics.gauges(
        ("process_overhead", ratio()),
        "Share of their CPU time spent in address translation, where it is known.",
        all().filter_map(|(labels, p)| Some((labels, p.overhead?.percent / 100.0))),
    )?;
    metrics.counters(
        ("process_promoted_regions", None),
        "Their regions made huge.",
        all().map(|(labels, p)| (labels, p.promoted)),
    )?;
    metrics.counters(
        ("process_recovered", Some(Unit::Bytes)),
        "Their memory given back by recovery.",
        all().map(|(labels, p)| (labels, p.recovered_bytes)),
    )
}

fn one_if(so: bool) -> f64 {
    f64::from(u8::from(so))
}

fn ratio() -> Option<Unit> {
    Some(Unit::Other("ratio".to_owned()))
}

/// A name without prefix and unit, and the unit.
type Name = (&'static str, Option<Unit>);

struct Metrics<'a>(DescriptorEncoder<'a>);

impl Metrics<'_> {
    fn info(&mut self, name: &str, help: &str, labels: &[(&str, &str)]) -> fmt::Result {
        self.0
            .encode_descriptor(name, help, None, MetricType::Info)?
            .encode_info(&labels)
    }

    fn gauge(&mut self, (name, unit): Name, help: &str, value: f64) -> fmt::Result {
        let metric = ConstGauge::new(value);
        let kind = metric.metric_type();
        metric.encode(self.0.encode_descriptor(name, help, unit.as_ref(), kind)?)
    }

    fn counter(&mut self, (name, unit): Name, help: &str, value: u64) -> fmt::Result {
        let metric = ConstCounter::new(value);
        let kind = metric.metric_type();
        metric.encode(self.0.encode_descriptor(name, help, unit.as_ref(), kind)?)
    }

    fn gauges<'l, const N: usize>(
        &mut self,
        (name, unit): Name,
        help: &str,
        rows: impl Iterator<Item = ([(&'l str, &'l str); N], f64)>,
    ) -> fmt::Result {
        let kind = MetricType::Gauge;
        let mut family = self.0.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, value) in rows {
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn counters<'l, const N: usize>(
        &mut self,
        (name, unit): Name,
        help: &str,
        rows: impl Iterator<Item = ([(&'l str, &'l str); N], u64)>,
    ) -> fmt::Result {
        let kind = MetricType::Counter;
        let mut family = self.0.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, value) in rows {
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
