//! `hawkeye doctor`: reports what a manager can do on this machine.

use super::client::print_text_or_json;
use anyhow::Result;
use clap::Args;
use hawkeye_linux::LinuxError;
use hawkeye_linux::machine_lease::instance::{ManagerLock, state_dir};
use hawkeye_linux::machine_lease::stop_leftover_damon;
use hawkeye_linux::machine_lease::thp_settings::{KernelSettingsGuard, SHRINK_UNDERUSED, THP_DIR};
use hawkeye_linux::probe::mthp_sizes::SizeFacts;
use hawkeye_linux::probe::{self, KernelCheckResult, KernelDecision, KernelFacts, ProbeExtent};
use serde::Serialize;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// Check what HawkEye can do on this kernel, and what is missing.
///
/// Prints for each capability whether it works, how that was checked, what is lost without it and
/// what would enable it. Each one is tried on a temporary child process. Exit status 0: processes
/// can be managed; 1: they can't.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye doctor
  hawkeye doctor --json")]
pub struct DoctorOptions {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct DoctorReport {
    #[serde(flatten)]
    decision: KernelDecision,
    facts: KernelFacts,
}

impl DoctorOptions {
    pub fn execute(self) -> Result<ExitCode> {
        let facts = gather_kernel_facts()?;
        let mut decision = probe::decide(&facts);
        decision.notes.extend(kernel_split_note());
        let report = DoctorReport { decision, facts };
        print_text_or_json(self.json, &report, DoctorReport::to_string)?;
        Ok(ExitCode::from(u8::from(!report.decision.can_manage)))
    }
}

/// Takes the machine over: one check changes a system-wide setting for a moment, and only the
/// machine's manager may do that.
fn gather_kernel_facts() -> Result<KernelFacts, LinuxError> {
    let state = state_dir();
    match ManagerLock::claim(&state, "doctor") {
        Ok(_instance) => {
            let mut settings = KernelSettingsGuard::start(&state)?;
            stop_leftover_damon();
            probe::gather(ProbeExtent::Everything, Some(&mut settings))
        }
        Err(_) => probe::gather(ProbeExtent::Everything, None),
    }
}

fn kernel_split_note() -> Option<String> {
    let there = Path::new(THP_DIR).join(SHRINK_UNDERUSED).exists();
    there.then(|| {
        "This kernel can split sparse huge pages itself where a cgroup is at its limit. That setting affects every program, excluded ones too. The manager therefore changes it only with your consent: `kernel_split = \"on\"`, or --kernel-split."
            .into()
    })
}

impl fmt::Display for DoctorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { decision, facts } = self;
        writeln!(f, "{}", decision.verdict)?;
        let enabled = facts.host.thp_enabled.as_deref().unwrap_or("none");
        let kernel = &facts.host.kernel;
        writeln!(f, "Linux {kernel}, transparent huge pages: {enabled}\n")?;
        let widths = decision.capabilities.iter().map(|c| c.name.len());
        let width = widths.max().unwrap_or(0);
        for capability in &decision.capabilities {
            let mark = if capability.available { "yes" } else { "no " };
            let (name, found) = (capability.name, &capability.found);
            writeln!(f, "{mark}  {name:width$}  {found}")?;
            writeln!(f, "     {:width$}  checked by: {}", "", capability.how)?;
            if !capability.available {
                let (lost, remedy) = (&capability.lost, &capability.remedy);
                writeln!(f, "     {:width$}  without it you lose: {lost}", "")?;
                writeln!(f, "     {:width$}  to get it: {remedy}", "")?;
            }
        }
        write_page_sizes(f, &facts.small_pages)?;
        for note in &decision.notes {
            writeln!(f, "\n{note}")?;
        }
        Ok(())
    }
}

fn write_page_sizes(f: &mut fmt::Formatter<'_>, sizes: &[SizeFacts]) -> fmt::Result {
    if sizes.is_empty() {
        return Ok(());
    }
    writeln!(f, "\nPage sizes at first touches, besides 4 KiB and 2 MiB:")?;
    for size in sizes {
        let found = &size.found;
        let pages = found.order.pages();
        let tried = match &size.tried {
            KernelCheckResult::Works => format!(
                "works: first touch {:.1} us, all touched after {:.1} us; with {pages} base pages after {:.1} us",
                size.first_touch_ns as f64 / 1e3,
                size.touched_ns as f64 / 1e3,
                size.base_touched_ns as f64 / 1e3
            ),
            KernelCheckResult::Fails(why) => why.clone(),
            KernelCheckResult::NotTried(why) => format!("not tried: {why}"),
        };
        let order = found.order.to_string();
        writeln!(f, "     {order:8} {:8} {tried}", found.setting)?;
    }
    Ok(())
}
