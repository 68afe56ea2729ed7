//! Redis in a container: filled, 80 % deleted, filled again with large values (after the paper's Figure 1). Whose memory is bloated by then
//! is killed.

use super::Scale;
use super::cgroup::MemoryCgroup;
use super::host::{Host, need_bytes};
use super::redis_server::{RedisMemory, RedisServer};
use super::report::Report;
use super::systems::{Pace, System};
use crate::error::BenchError;
use crate::plot::{Content, Line, Panel};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const SYSTEMS: [System; 5] = [
    System::Base,
    System::ThpShipped,
    System::ThpPaced,
    System::Hawkeye,
    System::HawkeyeHuge,
];
/// How full the container is after the first and after the third phase, by what Redis has allocated, in per cent.
const FULL_PERCENT: u64 = 90;
const DELETED_PERCENT: u32 = 80;
/// With its header a base page for Redis' allocator: what is deleted can be given back.
const SMALL_BYTES: u64 = 4000;
const LARGE_BYTES: u64 = 2_000_000;
/// What a value costs Redis' allocator, its key included.
const SMALL_ALLOCATED_BYTES: u64 = 4210;
const LARGE_ALLOCATED_BYTES: u64 = 2 << 20;
const AT_MOST: Duration = Duration::from_secs(900);

/// How it went so far.
#[derive(Default)]
struct Story {
    /// Seconds and memory.
    points: Vec<(f64, RedisMemory)>,
    /// Reached the end of so many phases.
    phases: usize,
    /// What went wrong, where something did.
    ended: Option<String>,
}

#[derive(Clone, Copy)]
struct Sizes {
    limit_mib: u64,
    /// Between deleting and filling again: khugepaged has so long.
    pause: Duration,
}

/// A limit of 8 GiB.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let sizes = match scale {
        Scale::Quick => Sizes {
            limit_mib: 512,
            pause: Duration::from_secs(1),
        },
        Scale::Full => Sizes {
            limit_mib: 8192,
            pause: Duration::from_secs(30),
        },
    };
    need_bytes(sizes.limit_mib << 20)?;
    let mut report = Report::new("figure-1");
    let mut lines = Vec::new();
    for system in SYSTEMS {
        let story = tell(host, system, sizes, &mut report)?;
        describe(system, &story, &mut report);
        let rss = story.points.iter();
        lines.push(Line {
            name: system.name().to_owned(),
            points: rss
                .map(|(at_s, memory)| (*at_s, gib(memory.rss_bytes)))
                .collect(),
        });
    }
    System::Base.prepare(host)?;
    report.panels.push(Panel {
        title: format!("Redis with a limit of {} MiB", sizes.limit_mib),
        y_label: "resident (GiB)".to_owned(),
        content: Content::Lines {
            x_label: "time (s)".to_owned(),
            lines,
        },
    });
    report.note(format!(
        "A container of {} MiB without swap: values of {SMALL_BYTES} bytes until it is {FULL_PERCENT} % full, {DELETED_PERCENT} % of them deleted at random, {} s later values of {LARGE_BYTES} bytes until it is as full again. Useful: what Redis has allocated, of what is resident.",
        sizes.limit_mib,
        sizes.pause.as_secs(),
    ));
    Ok(report)
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

fn describe(system: System, story: &Story, report: &mut Report) {
    let last = story.points.last().map(|(_, memory)| *memory);
    let useful = last.map_or(0.0, |memory| memory.useful_percent());
    let highest = story
        .points
        .iter()
        .map(|(_, memory)| memory.rss_bytes)
        .max();
    let how = match &story.ended {
        None => "lived".to_owned(),
        Some(why) => format!("{why} in phase {}", story.phases + 1),
    };
    report.row(
        format!("{}: useful at the end", system.name()),
        useful,
        "%",
        format!(
            "{how}; {:.2} GiB allocated, {:.2} GiB resident, {:.2} GiB at most",
            last.map_or(0.0, |memory| gib(memory.used_bytes)),
            last.map_or(0.0, |memory| gib(memory.rss_bytes)),
            gib(highest.unwrap_or(0)),
        ),
    );
}

/// One run: Redis goes through its phases while the system does what it does.
fn tell(
    host: &mut Host,
    system: System,
    sizes: Sizes,
    report: &mut Report,
) -> Result<Story, BenchError> {
    system.prepare(host)?;
    let limit = sizes.limit_mib << 20;
    let group = MemoryCgroup::new("hawkeye-bench-figure-1", limit)?;
    let server = RedisServer::start("figure-1", |command| group.around(&command))?;
    let pid = server.pid();
    let story = Mutex::new(Story::default());
    let promoter = system.promoter(host)?;
    std::thread::scope(|scope| {
        let phases = scope.spawn(|| phases(server, sizes, &story));
        let enough = || phases.is_finished();
        let promoting = promoter.promote(pid, Pace::Own, AT_MOST, enough)?;
        if system.policy().is_some() {
            report.managed(promoting.cpu, promoting.wall);
        }
        phases
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok::<_, BenchError>(())
    })?;
    let story = story.into_inner();
    Ok(story.unwrap_or_else(|lock| lock.into_inner()))
}

fn phases(mut server: RedisServer, sizes: Sizes, story: &Mutex<Story>) {
    let begun = Instant::now();
    let note = |change: &dyn Fn(&mut Story)| {
        let mut story = story.lock().unwrap_or_else(|lock| lock.into_inner());
        change(&mut story);
    };
    let look = |server: &RedisServer| -> Result<RedisMemory, BenchError> {
        let memory = server.memory()?;
        note(&|story| story.points.push((begun.elapsed().as_secs_f64(), memory)));
        Ok(memory)
    };
    let full = (sizes.limit_mib << 20) / 100 * FULL_PERCENT;
    let through = |server: &RedisServer| -> Result<(), BenchError> {
        let keys = full / SMALL_ALLOCATED_BYTES;
        for part in 0..20 {
            server.fill(keys * part / 20, keys * (part + 1) / 20, SMALL_BYTES)?;
            look(server)?;
        }
        note(&|story| story.phases = 1);
        server.delete(keys, DELETED_PERCENT)?;
        let until = Instant::now() + sizes.pause;
        while Instant::now() < until {
            look(server)?;
            std::thread::sleep(Duration::from_secs(1));
        }
        note(&|story| story.phases = 2);
        let left = full.saturating_sub(look(server)?.used_bytes) / LARGE_ALLOCATED_BYTES;
        for part in 0..20 {
            let range = keys + left * part / 20..keys + left * (part + 1) / 20;
            server.fill(range.start, range.end, LARGE_BYTES)?;
            look(server)?;
        }
        note(&|story| story.phases = 3);
        Ok(())
    };
    if let Err(error) = through(&server) {
        // Its socket may close a moment before it has ended.
        std::thread::sleep(Duration::from_millis(500));
        let why = if server.is_gone() {
            "killed".to_owned()
        } else {
            error.to_string()
        };
        note(&|story| story.ended = Some(why.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(used_gib: u64, rss_gib: u64) -> (f64, RedisMemory) {
        let memory = RedisMemory {
            used_bytes: used_gib << 30,
            rss_bytes: rss_gib << 30,
        };
        (0.0, memory)
    }

    #[test]
    fn what_was_killed_is_said_with_its_phase() {
        let mut report = Report::new("figure-1");
        let story = Story {
            points: vec![point(7, 7), point(2, 8)],
            phases: 2,
            ended: Some("killed".to_owned()),
        };
        describe(System::ThpPaced, &story, &mut report);
        assert_eq!(report.rows[0].value, 25.0);
        assert!(report.rows[0].beside.starts_with("killed in phase 3"));
    }
}
