//! Redis in a container: filled, 80 % deleted, filled again with large values. A Redis with bloated
//! memory is killed in the last phase. Alias: `figure-1`, after the HawkEye paper's Figure 1.

use super::memory_cgroup::MemoryCgroup;
use super::prelude::*;
use super::redis_server::{RedisMemoryUse, RedisServer};
use crate::error::BenchError;
use crate::plot::{PlotLine, PlotPanel};
use std::ops::Range;

const SYSTEMS: [HugePageSystem; 5] = [
    HugePageSystem::Base,
    HugePageSystem::ThpShipped,
    HugePageSystem::ThpPaced,
    HugePageSystem::Hawkeye,
    HugePageSystem::HawkeyeHuge,
];
/// Allocated after the first and after the third phase, in per cent of the container's limit.
const FULL_PERCENT: u64 = 90;
const DELETED_PERCENT: u32 = 80;
/// With its header a value fills a base page of Redis' allocator: deletions give pages back.
const SMALL_BYTES: u64 = 4000;
const LARGE_BYTES: u64 = 2_000_000;
/// What Redis' allocator uses for a value and its key.
const SMALL_ALLOCATED_BYTES: u64 = 4210;
const LARGE_ALLOCATED_BYTES: u64 = 2 << 20;
const AT_MOST: Duration = Duration::from_secs(900);

#[derive(Default)]
struct RefillRun {
    /// Time in seconds, and the memory then.
    points: Vec<(f64, RedisMemoryUse)>,
    phases: usize,
    ended: Option<String>,
}

#[derive(Clone, Copy)]
struct RedisRefillSizes {
    limit_mib: u64,
    /// Time between deletion and refill, in which khugepaged can work.
    pause: Duration,
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let sizes = RedisRefillSizes {
        limit_mib: scale.short_or_long(512, 8192),
        pause: scale.short_or_long(Duration::from_secs(1), Duration::from_secs(30)),
    };
    require_available_memory(sizes.limit_mib << 20)?;
    let mut lines = Vec::new();
    for system in SYSTEMS {
        let story = run_refill_under_system(host, system, sizes, report)?;
        add_rows_to_report(system, &story, report);
        let rss = story.points.iter();
        let rss = rss.map(|(at_s, memory)| (*at_s, bytes_to_gib(memory.rss_bytes)));
        lines.push(PlotLine { name: system.name().to_owned(), points: rss.collect() });
    }
    HugePageSystem::Base.prepare_kernel(host)?;
    let title = format!("Redis with a limit of {} MiB", sizes.limit_mib);
    let panel = PlotPanel::lines_over_time(title, "resident (GiB)", lines);
    report.panels.push(panel);
    report.add_note(format!(
        "A container of {} MiB without swap. Redis stores values of {SMALL_BYTES} bytes until it is {FULL_PERCENT} % full; {DELETED_PERCENT} % of them are deleted at random; {} s later Redis stores values of {LARGE_BYTES} bytes until it is as full again. Useful: the share of resident memory that Redis has allocated.",
        sizes.limit_mib,
        sizes.pause.as_secs(),
    ));
    report.add_note(KERNEL_SPLIT_NOTE);
    Ok(())
}

fn bytes_to_gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

fn add_rows_to_report(system: HugePageSystem, story: &RefillRun, report: &mut LiveReport) {
    let last = story.points.last().map(|(_, memory)| *memory);
    let useful = last.map_or(0.0, |memory| memory.useful_percent());
    let rss = story.points.iter().map(|(_, memory)| memory.rss_bytes);
    let highest = rss.max();
    let how = match &story.ended {
        None => "survived".to_owned(),
        Some(why) => format!("{why} in phase {}", story.phases + 1),
    };
    report.add_row(
        format!("{}: useful at the end", system.name()),
        useful,
        "%",
        format!(
            "{how}; {:.2} GiB allocated, {:.2} GiB resident, peak {:.2} GiB",
            last.map_or(0.0, |memory| bytes_to_gib(memory.used_bytes)),
            last.map_or(0.0, |memory| bytes_to_gib(memory.rss_bytes)),
            bytes_to_gib(highest.unwrap_or(0)),
        ),
    );
}

fn run_refill_under_system(
    host: &mut BenchHost,
    system: HugePageSystem,
    sizes: RedisRefillSizes,
    report: &mut LiveReport,
) -> BenchResult<RefillRun> {
    system.prepare_kernel(host)?;
    let limit = sizes.limit_mib << 20;
    let group = MemoryCgroup::new("hawkeye-bench-redis", limit)?;
    let server = RedisServer::start(|command| group.wrap_command(&command))?;
    let pid = server.pid();
    let promoter = system.new_promoter(host)?;
    let phases = || RefillRun::run_on_server(server, &group, sizes);
    Ok(promoter.promote_during(pid, AT_MOST, report, phases)?.0)
}

/// How a run ended that failed with `error`: the cgroup was new, so any kill counts.
fn describe_end(has_ended: bool, oom_kills: u64, error: &BenchError) -> String {
    match (has_ended, oom_kills) {
        (true, 0) => "ended".to_owned(),
        (true, _) => "killed".to_owned(),
        (false, _) => error.to_string(),
    }
}

impl RefillRun {
    fn run_on_server(
        mut server: RedisServer,
        group: &MemoryCgroup,
        sizes: RedisRefillSizes,
    ) -> Self {
        let mut story = Self::default();
        if let Err(error) = story.fill_delete_and_refill(&server, sizes) {
            // Redis' socket may close a moment before the process has ended.
            std::thread::sleep(Duration::from_millis(500));
            let oom_kills = group.count_oom_kills().unwrap_or(0);
            story.ended = Some(describe_end(server.has_ended(), oom_kills, &error));
        }
        story
    }

    fn fill_delete_and_refill(
        &mut self,
        server: &RedisServer,
        sizes: RedisRefillSizes,
    ) -> BenchResult<()> {
        let full = (sizes.limit_mib << 20) / 100 * FULL_PERCENT;
        let keys = full / SMALL_ALLOCATED_BYTES;
        let begun = Instant::now();
        self.store_and_record_memory(server, begun, 0..keys, SMALL_BYTES)?;
        self.phases = 1;
        server.delete_random_keys(keys, DELETED_PERCENT)?;
        let until = Instant::now() + sizes.pause;
        while Instant::now() < until {
            self.record_memory_use(server, begun)?;
            std::thread::sleep(Duration::from_secs(1));
        }
        self.phases = 2;
        let used = self.record_memory_use(server, begun)?.used_bytes;
        let left = full.saturating_sub(used) / LARGE_ALLOCATED_BYTES;
        self.store_and_record_memory(server, begun, keys..keys + left, LARGE_BYTES)?;
        self.phases = 3;
        Ok(())
    }

    fn store_and_record_memory(
        &mut self,
        server: &RedisServer,
        begun: Instant,
        keys: Range<u64>,
        bytes: u64,
    ) -> BenchResult<()> {
        let count = keys.end - keys.start;
        for part in 0..20 {
            let (from, to) = (count * part / 20, count * (part + 1) / 20);
            server.store_values(keys.start + from, keys.start + to, bytes)?;
            self.record_memory_use(server, begun)?;
        }
        Ok(())
    }

    fn record_memory_use(
        &mut self,
        server: &RedisServer,
        begun: Instant,
    ) -> BenchResult<RedisMemoryUse> {
        let memory = server.measure_memory_use()?;
        self.points.push((begun.elapsed().as_secs_f64(), memory));
        Ok(memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(used_gib: u64, rss_gib: u64) -> (f64, RedisMemoryUse) {
        let memory = RedisMemoryUse { used_bytes: used_gib << 30, rss_bytes: rss_gib << 30 };
        (0.0, memory)
    }

    #[test]
    fn only_a_server_that_the_kernel_killed_is_killed() {
        let error = impossible!("Redis did not answer");
        let ends = [(true, 1), (true, 0), (false, 0)]
            .map(|(has_ended, oom_kills)| describe_end(has_ended, oom_kills, &error));
        assert_eq!(ends, ["killed", "ended", "Redis did not answer"]);
    }

    #[test]
    fn a_kill_is_reported_with_its_phase() {
        let mut report = LiveReport::new("redis-refill");
        let story = RefillRun {
            points: vec![point(7, 7), point(2, 8)],
            phases: 2,
            ended: Some("killed".to_owned()),
        };
        add_rows_to_report(HugePageSystem::ThpPaced, &story, &mut report);
        assert_eq!(report.rows[0].value, 25.0);
        assert!(report.rows[0].beside.starts_with("killed in phase 3"));
    }
}
