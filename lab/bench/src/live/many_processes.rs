//! What looking after a whole machine costs while processes come and go.

use super::Scale;
use super::host::{Host, need_bytes};
use super::report::Report;
use crate::error::BenchError;
use hawkeye_linux::processes::process::own_cpu;
use hawkeye_linux::stop::StopSignals;
use hawkeye_linux::{LinuxMachine, Scope};
use hawkeye_manager::{Machine, Manager, Settings, Wake};
use hawkeye_policy::policies::{HawkeyeG, HawkeyeGSettings};
use hawkeye_policy::{Action, Conditions, Rule, Rules, Selection, Terms, Unmatched};
use std::time::Duration;

/// Small processes, a tenth of which end and are replaced each second; then larger ones, all managed.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let (small, managed, length) = match scale {
        Scale::Quick => (200, 50, Duration::from_secs(4)),
        Scale::Full => (2000, 500, Duration::from_secs(60)),
    };
    need_bytes(2 << 30)?;
    let mut report = Report::new("many-processes");
    let per_s = small / 10;
    let found = manage_crowd(
        host,
        &format!("crowd --processes {small} --per-s {per_s} --mib 4"),
        Selection::default(),
        length,
    )?;
    let who = format!("{small} small processes, {per_s} replaced a second");
    found.add_to(&mut report, &who, "goal: at most 2");
    // Little memory each, so that it is their number that counts.
    let selection = Selection::new(2 << 20, Selection::default().look_every(), managed)?;
    let found = manage_crowd(
        host,
        &format!("crowd --processes {managed} --per-s 0 --each-kib 3072 --mib 4"),
        selection,
        length,
    )?;
    found.add_to(&mut report, &format!("{managed} managed processes"), "");
    report
        .note("The manager's CPU includes everything it does: sweeps, looks at memory, sampling.");
    Ok(report)
}

/// The figures should not depend on what else this machine runs.
fn crowd_only(host: &Host) -> Result<Rules, BenchError> {
    let name = host.program().file_name().unwrap_or_default();
    let command = name.to_string_lossy().parse();
    let command = command.map_err(|error| {
        BenchError::Impossible(format!("the program's own name is no pattern: {error}"))
    })?;
    let rule = Rule {
        name: "crowd".into(),
        conditions: Conditions {
            command: Some(command),
            ..Conditions::default()
        },
        action: Action::Include(Terms::default()),
    };
    Ok(Rules::new(vec![rule], Unmatched::Exclude))
}

struct Found {
    cpu: Duration,
    wall: Duration,
    /// Until every process had joined: the first look.
    joining: Duration,
    members: usize,
    descriptors: usize,
    sweeps: hawkeye_linux::processes::roster::SweepCosts,
}

impl Found {
    fn add_to(&self, report: &mut Report, who: &str, goal: &str) {
        let share = self.cpu.as_secs_f64() * 100.0 / self.wall.as_secs_f64();
        report.row(format!("{who}: manager"), share, "% core", goal);
        let mean = self.sweeps.cpu.as_secs_f64() * 1e3 / self.sweeps.sweeps.max(1) as f64;
        let seen = format!("{} processes", self.sweeps.processes);
        report.row(format!("{who}: one sweep"), mean, "ms", seen);
        let joining = self.joining.as_secs_f64() * 1e3;
        let members = format!("{} managed at the end", self.members);
        report.row(format!("{who}: first step"), joining, "ms", members);
        report.row(
            format!("{who}: open files"),
            self.descriptors as f64,
            "",
            "",
        );
    }
}

fn manage_crowd(
    host: &Host,
    words: &str,
    selection: Selection,
    length: Duration,
) -> Result<Found, BenchError> {
    let mut crowd = host.start(words)?;
    crowd.wait_ready()?;
    // Who was started this second is not looked at yet.
    std::thread::sleep(Duration::from_secs(2));
    let (scope, _bell) = Scope::machine(crowd_only(host)?, selection)?;
    let machine = LinuxMachine::new(host.means()?, scope, StopSignals::left_alone());
    let settings = Settings::default();
    let average = settings.average;
    let policy = Box::new(HawkeyeG::new(HawkeyeGSettings { average }));
    let mut manager = Manager::new(machine, policy, settings)?;
    let (cpu_before, began) = (own_cpu(), manager.machine().now());
    let mut first_step = None;
    while manager.step() != Wake::Stop && manager.machine().now() < began + length {
        first_step.get_or_insert_with(|| own_cpu().saturating_sub(cpu_before));
    }
    let machine = manager.machine();
    Ok(Found {
        cpu: own_cpu().saturating_sub(cpu_before),
        wall: machine.now().saturating_sub(began),
        joining: first_step.unwrap_or_default(),
        members: machine.members().len(),
        descriptors: std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
        sweeps: machine.sweep_costs().unwrap_or_default(),
    })
}
