//! The status as metrics, in the text format of OpenMetrics that Prometheus scrapes.

use super::protocol::{DaemonStatus, PrefaultStatus, PrezeroingStatus};
use crate::view::{
    BudgetWaitStatus, CgroupMemoryStatus, HugePageReserveStatus, ManagerStatus, MemoryStatus,
    ProcessStatus,
};
use hawkeye_manager::JournalTotals;
use hawkeye_policy::BASE_PAGE_BYTES;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Processes (the largest) and cgroups that have series of their own. Each series costs the scraper
/// memory, and those of a process are useless once it has ended.
const MOST_LABELLED: usize = 64;

pub fn render_metrics(status: DaemonStatus) -> Result<String, fmt::Error> {
    // A new registry for each scrape, so that ended processes have no series.
    let mut registry = Registry::with_prefix("hawkeye");
    registry.register_collector(Box::new(StatusCollector(status)));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct StatusCollector(DaemonStatus);

impl Collector for StatusCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let out = &mut MetricEncoder(encoder);
        let DaemonStatus { manager, slow_calls, .. } = &self.0;
        let labels = [("version", &*manager.version), ("policy", &*manager.policy)];
        let help = "Version and policy of the daemon.";
        let encoder = &mut out.0;
        encoder.encode_descriptor("manager", help, None, MetricType::Info)?.encode_info(&labels)?;
        encode_manager(out, manager, *slow_calls)?;
        encode_totals(out, &manager.totals)?;
        encode_reserve(out, &manager.reserve)?;
        if let Some(memory) = &manager.memory {
            encode_memory(out, memory)?;
        }
        if let Some(fill) = &self.0.fill {
            encode_prefault(out, fill)?;
        }
        if let Some(zeroing) = &self.0.prezeroing {
            encode_prezeroing(out, zeroing)?;
        }
        if let Some(journal) = &self.0.journal {
            let help = "Journal entries that could not be written to the journal's file.";
            let lost = ConstCounter::new(journal.lost_entries);
            out.encode_metric("journal_lost_entries", help, lost)?;
        }
        let most = manager.processes.len().min(MOST_LABELLED);
        encode_processes(out, &manager.processes[..most])
    }
}

/// Writes metrics, each with its kind, name with unit, value and help. A plural kind has a series
/// for each pair of labels and value.
macro_rules! write_metrics {
    ($out:ident, $($kind:ident $name:literal = $value:expr, $help:literal;)*) => {{
        $(write_metrics!(@ $kind $out, $name, $help, $value)?;)*
        Ok(())
    }};
    (@ gauge $out:ident, $name:expr, $help:expr, $value:expr) => {
        $out.encode_metric($name, $help, ConstGauge::new($value))
    };
    (@ gauge_if_known $out:ident, $name:expr, $help:expr, $value:expr) => {
        $value.map_or(Ok(()), |value| $out.encode_metric($name, $help, ConstGauge::new(value)))
    };
    (@ counter $out:ident, $name:expr, $help:expr, $value:expr) => {
        $out.encode_metric($name, $help, ConstCounter::new($value))
    };
    (@ gauges $out:ident, $name:expr, $help:expr, $rows:expr) => {
        $out.encode_family($name, $help, $rows.map(|(labels, value)| (labels, ConstGauge::new(value))))
    };
    (@ counters $out:ident, $name:expr, $help:expr, $rows:expr) => {
        $out.encode_family($name, $help, $rows.map(|(labels, value)| (labels, ConstCounter::new(value))))
    };
}

fn encode_manager(out: &mut MetricEncoder<'_>, status: &ManagerStatus, slow: u64) -> fmt::Result {
    let wait = |wait: &BudgetWaitStatus| Some((wait.work.to_string(), wait.continues_in_s?));
    let waits: Vec<_> = status.budget_waits.iter().filter_map(wait).collect();
    let waits = waits.iter().map(|(work, s)| ([("work", &**work)], *s));
    write_metrics! { out,
        gauge "uptime_seconds" = status.uptime_s,
            "Time since the daemon began to manage processes.";
        gauge "paused" = bool_as_metric_value(status.paused),
            "1 while the daemon is paused (`hawkeye pause`) and changes no process.";
        gauge "promotion_held" = bool_as_metric_value(status.held.is_some()),
            "1 while nothing is promoted because memory is short or tasks wait for memory.";
        gauges "budget_wait_seconds" = waits,
            "Time until work that waits for a budget continues.";
        gauge "managed_processes" = status.managed as f64,
            "Processes that the daemon manages.";
        gauge "not_answering_processes" = status.not_answering as f64,
            "Managed processes that have not answered a call for 1 s or longer.";
        gauge "manager_cpu_ratio" = status.manager_cpu_percent / 100.0,
            "CPU time of the manager over the last minute, as a share of one core.";
        gauge "manager_budget_cpu_ratio" = status.budget_cpu_percent / 100.0,
            "The part of that which the CPU budget paid, and not savings or cgroups in danger.";
        gauge "longest_call_seconds" = status.longest_call_ms / 1e3,
            "Longest call into another process since the start; that process cannot map memory during a call.";
        counter "slow_calls" = slow,
            "Calls into other processes that took longer than 30 ms.";
    }
}

fn encode_totals(out: &mut MetricEncoder<'_>, totals: &JournalTotals) -> fmt::Result {
    let errors: Vec<_> = totals.errors.iter().map(|(errno, n)| (errno.to_string(), *n)).collect();
    let errors = errors.iter().map(|(errno, n)| ([("errno", &**errno)], *n));
    write_metrics! { out,
        counter "promoted_regions" = totals.promoted,
            "Regions of 2 MiB promoted to huge pages.";
        counter "split_huge_pages" = totals.split,
            "Huge pages split to recover memory.";
        counter "recovered_bytes" = totals.recovered_bytes,
            "Memory freed by recovery, from zero pages of split huge pages.";
        counter "scanned_huge_pages" = totals.scanned,
            "Huge pages searched for zero pages.";
        counter "freed_candidates" = totals.freed,
            "Candidates for promotion skipped because their process was freeing them.";
        counter "shared_candidates" = totals.shared,
            "Candidates for promotion skipped because other processes share their pages.";
        counter "samples" = totals.samples,
            "Samples taken, one per process and sampling window.";
        counters "refusals" = errors,
            "Calls that the kernel refused, by error (errno).";
    }
}

fn encode_reserve(out: &mut MetricEncoder<'_>, reserve: &HugePageReserveStatus) -> fmt::Result {
    write_metrics! { out,
        gauge "reserve_bytes" = reserve.held_bytes as f64,
            "Memory in the reserve of ready huge pages.";
        counter "reserve_filled_regions" = reserve.filled,
            "Huge pages filled into the reserve.";
        counter "reserve_failed_fills" = reserve.failed,
            "Fills of the reserve for which the kernel had no huge page.";
        counter "reserve_used_regions" = reserve.served,
            "Huge pages of the reserve given to promotions and prefault.";
        gauge "reserve_fill_cpu_seconds" = reserve.fill_cpu_s,
            "CPU time of filling the reserve, at idle priority.";
    }
}

fn encode_prefault(out: &mut MetricEncoder<'_>, fill: &PrefaultStatus) -> fmt::Result {
    write_metrics! { out,
        counter "filled_regions" = fill.filled,
            "Regions of 2 MiB prefaulted: zeroed and mapped before their first touch.";
        counter "refused_fills" = fill.refused,
            "Regions of 2 MiB that could not be prefaulted.";
        gauge "ahead_regions" = fill.ahead as f64,
            "Upper bound of the prefaulted regions that programs have not touched yet.";
        counter "unused_fills" = fill.unused,
            "Upper bound of the regions prefaulted for programs that then stopped growing.";
        gauge "fill_cpu_seconds" = fill.cpu_s,
            "CPU time used by prefault.";
    }
}

fn encode_prezeroing(out: &mut MetricEncoder<'_>, zeroing: &PrezeroingStatus) -> fmt::Result {
    let bytes = |pages: u64| pages.saturating_mul(BASE_PAGE_BYTES);
    write_metrics! { out,
        gauge "prezeroing_active" = bool_as_metric_value(zeroing.active),
            "1 while the kernel zeroes free memory in advance.";
        gauge "free_zeroed_bytes" = zeroing.free_zeroed_bytes as f64,
            "Free memory that the kernel has zeroed in advance.";
        gauge "free_bytes" = zeroing.free_bytes as f64,
            "Free memory of the machine, zeroed or not.";
        counter "prezeroed_bytes" = bytes(zeroing.zeroed_pages),
            "Memory zeroed in advance since the machine started.";
        counter "prezeroed_served_bytes" = bytes(zeroing.served_pages),
            "Memory zeroed in advance and handed out to allocations that needed zeros.";
        counter "prezeroed_passed_over_bytes" = bytes(zeroing.passed_over_pages),
            "Memory zeroed in advance and handed out to allocations that did not need zeros.";
        counter "prezeroed_lost_bytes" = bytes(zeroing.lost_pages),
            "Memory zeroed in advance and no longer known to be zero, for example after a merge with other memory.";
    }
}

fn encode_memory(out: &mut MetricEncoder<'_>, memory: &MemoryStatus) -> fmt::Result {
    let scoped = |machine: f64, of: fn(&CgroupMemoryStatus) -> f64| {
        let groups = memory.groups.iter().take(MOST_LABELLED);
        let groups = groups.map(move |group| ([("scope", &*group.name)], of(group)));
        std::iter::once(([("scope", "machine")], machine)).chain(groups)
    };
    let share = memory.pressure_percent.map(|percent| percent / 100.0);
    write_metrics! { out,
        gauges "memory_used_bytes" =
            scoped(memory.used_bytes as f64, |group| group.used_bytes as f64),
            "Memory in use that is not cheap to reclaim, of the machine and of each cgroup with a limit.";
        gauges "memory_limit_bytes" =
            scoped(memory.total_bytes as f64, |group| group.total_bytes as f64),
            "Memory of the machine, and the memory limit of each cgroup.";
        gauges "memory_growth_bytes_per_second" =
            scoped(memory.growth_bytes_per_s as f64, |group| group.growth_bytes_per_s as f64),
            "Recent growth of memory in use, without what recovery and promotion change, of the machine and of each cgroup with a limit.";
        gauges "unused_huge_bytes" = scoped(memory.bloat.unused_bytes as f64, |group| {
            group.bloat.unused_bytes as f64
        }),
            "Memory in huge pages that was zero-filled when last searched, of all managed processes and of each cgroup with a limit.";
        gauges "never_accessed_huge_bytes" =
            scoped(memory.bloat.never_accessed_bytes as f64, |group| {
                group.bloat.never_accessed_bytes as f64
            }),
            "Huge pages that no sample found accessed, of all managed processes and of each cgroup with a limit.";
        gauges "freed_part_bytes" = scoped(memory.bloat.freed_part_bytes as f64, |group| {
            group.bloat.freed_part_bytes as f64
        }),
            "Memory of huge pages that programs gave back and that stays allocated, of all managed processes and of each cgroup with a limit.";
        gauges "recoverable_bytes" = scoped(memory.bloat.recoverable_bytes as f64, |group| {
            group.bloat.recoverable_bytes as f64
        }),
            "Unused memory and freed parts of huge pages that recovery would give back if memory were short, of all managed processes and of each cgroup with a limit.";
        gauges "recovery_cost_walks_per_second" =
            scoped(memory.bloat.recovery_walks_per_s, |group| group.bloat.recovery_walks_per_s),
            "Page walks per second that giving all of it back is expected to cost.";
        gauge "memory_recovering" = bool_as_metric_value(memory.recovering),
            "1 while recovery takes memory back from bloated huge pages.";
        gauge_if_known "memory_pressure_ratio" = share,
            "Share of the last 10 s in which at least one task waited for memory (PSI, some avg10).";
        gauge_if_known "memory_fragmentation_index" = memory.fmfi,
            "Fragmentation of free memory (FMFI): 0 not fragmented, 1 no free block of the size of a huge page.";
    }
}

fn encode_processes(out: &mut MetricEncoder<'_>, processes: &[ProcessStatus]) -> fmt::Result {
    let pids: Vec<_> = processes.iter().map(|p| p.pid.to_string()).collect();
    let all = || {
        processes.iter().zip(&pids).map(|(process, pid)| {
            let cgroup = process.cgroup.as_deref().unwrap_or_default();
            let name = &*process.name;
            ([("pid", &**pid), ("name", name), ("cgroup", cgroup)], process)
        })
    };
    write_metrics! { out,
        gauges "process_resident_bytes" = all().map(|(labels, p)| (labels, p.rss_bytes as f64)),
            "Resident memory of a managed process (the 64 largest).";
        gauges "process_huge_bytes" = all().map(|(labels, p)| (labels, p.huge_bytes as f64)),
            "Memory of a managed process in huge pages.";
        gauges "process_unused_huge_bytes" = all().map(|(labels, p)| (labels, p.bloat_bytes as f64)),
            "Memory of a managed process in huge pages that was zero-filled when last searched.";
        gauges "process_never_accessed_huge_bytes" =
            all().map(|(labels, p)| (labels, p.never_accessed_huge_bytes as f64)),
            "Huge pages of a managed process that no sample found accessed.";
        gauges "process_freed_part_bytes" =
            all().map(|(labels, p)| (labels, p.freed_part_bytes as f64)),
            "Memory of huge pages that a managed process gave back and that stays allocated.";
        gauges "process_overhead_ratio" =
            all().filter_map(|(labels, p)| Some((labels, p.overhead?.percent / 100.0))),
            "Share of CPU time that a managed process loses to address translation, where it is known.";
        counters "process_promoted_regions" = all().map(|(labels, p)| (labels, p.promoted)),
            "Regions of 2 MiB of a managed process promoted to huge pages.";
        counters "process_recovered_bytes" = all().map(|(labels, p)| (labels, p.recovered_bytes)),
            "Memory of a managed process freed by recovery.";
    }
}

fn bool_as_metric_value(so: bool) -> f64 {
    f64::from(u8::from(so))
}

/// A name without its unit, and the unit. The encoder appends the unit again.
fn split_unit_suffix(name: &str) -> (&str, Option<Unit>) {
    let units = [Unit::Seconds, Unit::Bytes, Unit::Other("ratio".to_owned())];
    let stem = |unit: &Unit| name.strip_suffix(unit.as_str())?.strip_suffix('_');
    let known = |unit| Some((stem(&unit)?, Some(unit)));
    units.into_iter().find_map(known).unwrap_or((name, None))
}

struct MetricEncoder<'a>(DescriptorEncoder<'a>);

impl MetricEncoder<'_> {
    fn encode_metric(&mut self, name: &str, help: &str, metric: impl EncodeMetric) -> fmt::Result {
        let ((name, unit), kind) = (split_unit_suffix(name), metric.metric_type());
        metric.encode(self.0.encode_descriptor(name, help, unit.as_ref(), kind)?)
    }

    fn encode_family<'l, const N: usize, M: EncodeMetric + TypedMetric>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl Iterator<Item = ([(&'l str, &'l str); N], M)>,
    ) -> fmt::Result {
        let (name, unit) = split_unit_suffix(name);
        let mut family = self.0.encode_descriptor(name, help, unit.as_ref(), M::TYPE)?;
        for (labels, metric) in rows {
            metric.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests;
