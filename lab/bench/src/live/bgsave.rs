//! Redis saves its data from a forked child (BGSAVE) in a nearly full container: is it killed, with
//! and without a manager?

use super::cgroup::MemoryCgroup;
use super::prelude::*;
use super::redis_server::RedisServer;

/// Share of the container's limit in use when the save begins.
const FULL_PERCENT: u64 = 85;
/// Size of a value, and the memory that it uses with its key.
const VALUE_BYTES: u64 = 4000;
const ALLOCATED_BYTES: u64 = 4210;
/// Number of values that are rewritten during a save.
const WRITTEN: u64 = 500;
const POLICY: &str = "hawkeye-g";
const AT_MOST: Duration = Duration::from_secs(120);

#[derive(Clone, Copy)]
struct Sizes {
    limit_mib: u64,
    runs: usize,
    save: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    lived: bool,
    /// Share of the limit in use before the save, in per cent.
    full_percent: f64,
    peak_bytes: u64,
    promoted: u64,
    /// Regions that the manager skipped because the child shares them.
    shared: u64,
}

/// Runs 20 saves of 4 s on each side, with a limit of 256 MiB.
pub fn run(host: &mut Host, scale: Scale, report: &mut Report) -> Result<()> {
    let sizes = Sizes {
        limit_mib: scale.pick(128, 256),
        runs: scale.pick(1, 20),
        save: scale.pick(Duration::from_secs(2), Duration::from_secs(4)),
    };
    need_bytes(sizes.limit_mib << 20)?;
    let (mut alone, mut managed) = (Vec::new(), Vec::new());
    for _ in 0..sizes.runs {
        alone.push(trial(host, sizes, false)?);
        managed.push(trial(host, sizes, true)?);
    }
    for (name, trials) in [("no manager", &alone), (POLICY, &managed)] {
        let lived = trials.iter().filter(|trial| trial.lived).count();
        report.row(
            format!("{name}: lived"),
            lived as f64,
            "runs",
            format!(
                "of {}; {:.0} % full before, at most {:.1} MiB; promoted {:.0} regions, passed over {:.0} times (medians)",
                trials.len(),
                median_of(trials, |trial| trial.full_percent),
                median_of(trials, |trial| trial.peak_bytes as f64) / f64::from(1 << 20),
                median_of(trials, |trial| trial.promoted as f64),
                median_of(trials, |trial| trial.shared as f64),
            ),
        );
    }
    let peak = |trial: &Trial| trial.peak_bytes as f64;
    let most = |trials: &[Trial]| trials.iter().map(peak).fold(0.0, f64::max);
    report.row(
        "peak memory of the container, managed over not",
        median_of(&managed, peak) / median_of(&alone, peak),
        "times",
        format!("medians; the highest: {:.3}", most(&managed) / most(&alone)),
    );
    report.note(format!(
        "Redis fills {FULL_PERCENT} % of a limit of {} MiB, and writes {WRITTEN} values during the save.",
        sizes.limit_mib
    ));
    report.note("The manager may use memory up to 99 % and all of a core, and looks every second: nothing but shared pages holds it back.");
    Ok(())
}

fn settings() -> Result<Settings> {
    Ok(Settings {
        period: Duration::from_secs(1),
        window: Duration::from_millis(200),
        cpu: CpuBudget::new(100.0)?,
        watermarks: Watermarks::new(99.0, 98.0)?,
        ..Settings::default()
    })
}

fn trial(host: &Host, sizes: Sizes, managed: bool) -> Result<Trial> {
    let limit_bytes = sizes.limit_mib << 20;
    let group = MemoryCgroup::new("hawkeye-bench-bgsave", limit_bytes)?;
    let folder = std::env::temp_dir();
    let file = format!("hawkeye-bench-{}.rdb", std::process::id());
    let mut server = RedisServer::start("bgsave", |mut command| {
        command.arg("--dir").arg(&folder);
        command.args(["--dbfilename", &file]);
        group.around(&command)
    })?;
    let wanted_bytes = limit_bytes * FULL_PERCENT / 100;
    let mut keys = 0;
    while group.used_bytes()? < wanted_bytes {
        let missing = wanted_bytes.saturating_sub(group.used_bytes()?);
        let more = (missing / ALLOCATED_BYTES).max(100);
        server.fill(keys, keys + more, VALUE_BYTES)?;
        keys += more;
    }
    let delay_us = sizes.save.as_micros() as u64 / keys.max(1);
    server.configure("rdb-key-save-delay", &delay_us.to_string())?;
    let mut trial = Trial {
        full_percent: group.used_bytes()? as f64 * 100.0 / limit_bytes as f64,
        ..Trial::default()
    };
    let pid = server.pid();
    let saved = std::thread::scope(|scope| {
        let saving = scope.spawn(|| save(&mut server));
        if managed {
            let done = |_: &_| saving.is_finished();
            let managed = manage(host.means()?, pid, POLICY, settings()?, AT_MOST, done)?;
            trial.promoted = managed.journal.totals().promoted;
            trial.shared = managed.journal.totals().shared;
        }
        joined(saving)
    });
    trial.lived = saved? && !server.is_gone();
    trial.peak_bytes = group.peak_bytes()?;
    drop(server);
    let _ = std::fs::remove_file(folder.join(file));
    Ok(trial)
}

/// Saves once and writes a few values meanwhile; returns whether the save succeeded.
fn save(server: &mut RedisServer) -> Result<bool> {
    server.begin_save()?;
    let begun = Instant::now();
    while server.is_saving()? && begun.elapsed() < AT_MOST {
        if server.is_gone() || server.fill(0, WRITTEN, VALUE_BYTES).is_err() {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(!server.is_gone() && server.last_save_succeeded()?)
}
