//! `hawkeye doctor`: reports what a manager can do on this machine, and which deaths it can't
//! prevent.

mod startup_deaths;

use super::client_options::print_text_or_json;
use super::unmanaged_kernel::UnmanagedKernel;
use crate::text_format::format_count;
use anyhow::Result;
use clap::Args;
use hawkeye_linux::LinuxError;
use hawkeye_linux::machine_lease::manager_lock::{ManagerLock, state_dir};
use hawkeye_linux::machine_lease::stop_leftover_damon_session;
use hawkeye_linux::machine_lease::thp_settings::{
    KernelSettingsGuard, SHRINK_UNDERUSED, THP_DIR, restore_leftover_settings,
};
use hawkeye_linux::memory::oom_kills::read_oom_kills;
use hawkeye_linux::probe::{self, KernelCheckResult, KernelDecision, KernelFacts, ProbeExtent};
use hawkeye_linux::processes::huge_page_context::ThpSettings;
use hawkeye_linux::processes::profile_requests;
use hawkeye_linux::stop_signals::StopSignals;
use hawkeye_policy::PageOrder;
use serde::Serialize;
use startup_deaths::{StartupDeaths, startup_deaths_text};
use std::path::Path;
use std::process::ExitCode;

/// Check what HawkEye can do on this kernel, and what is missing.
///
/// Prints for each capability whether it works, how that was checked, what is lost without it and
/// what would enable it. Each one is tried on a temporary child process. Then come the processes
/// that were killed for lack of memory, and what prevents the deaths that a manager can't prevent.
/// Exit status 0: processes can be managed; 1: they can't.
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
    startup_deaths: StartupDeaths,
    #[serde(skip_serializing_if = "Option::is_none")]
    unmanaged_kernel: Option<UnmanagedKernel>,
}

impl DoctorOptions {
    pub fn execute(self) -> Result<ExitCode> {
        // First: a signal during a check would leave that check's setting changed.
        let signals = StopSignals::take_over()?;
        let facts = claim_and_gather_kernel_facts()?;
        // The settings are put back.
        if let Some(signal) = signals.signal_so_far() {
            return Ok(ExitCode::from(128 + signal as u8));
        }
        drop(signals);
        let mut decision = probe::decide_with_best_sampler(&facts);
        let settings = ThpSettings::read();
        let can_guard = decision.can_manage && decision.cannot_guard.is_none();
        let unmanaged_kernel = UnmanagedKernel::of_this_machine()
            .map(|kernel| UnmanagedKernel { guarded: kernel.guarded && can_guard, ..kernel });
        if let Some(kernel) = &unmanaged_kernel {
            decision.notes.extend(unmanaged_kernel_notes(kernel));
        }
        if decision.can_manage || unmanaged_kernel.is_none() {
            decision.notes.extend(kernel_split_note());
            decision.notes.extend(container_runtime_notes());
            decision.notes.extend(shared_memory_note(settings.shmem_enabled.as_deref()));
        }
        let sizes = unmanaged_kernel.as_ref().map(|kernel| kernel.sizes);
        let is_managed = unmanaged_kernel.as_ref().is_none_or(|kernel| kernel.guarded);
        let startup_deaths =
            StartupDeaths::from_kernel_state(read_oom_kills(), &settings, sizes, is_managed);
        let report = DoctorReport { decision, facts, startup_deaths, unmanaged_kernel };
        print_text_or_json(self.json, &report, doctor_text)?;
        Ok(ExitCode::from(u8::from(!report.decision.can_manage)))
    }
}

/// Takes the machine over, because one check changes a system-wide setting for a moment.
fn claim_and_gather_kernel_facts() -> Result<KernelFacts, LinuxError> {
    let state = state_dir();
    match ManagerLock::claim(&state, "doctor") {
        Ok(_instance) => {
            stop_leftover_damon_session();
            // A start sets an unusable record aside. This must leave it to `hawkeye restore`.
            let restored = restore_leftover_settings(&state);
            let settings =
                restored.and_then(|_| KernelSettingsGuard::restore_leftovers_and_start(&state));
            if let Err(error) = &settings {
                tracing::warn!("checks that change settings are left out: {error}");
            }
            probe::gather_kernel_facts(ProbeExtent::Everything, settings.ok().as_mut())
        }
        Err(_) => probe::gather_kernel_facts(ProbeExtent::Everything, None),
    }
    .map(|probed| probed.facts)
}

fn kernel_split_note() -> Option<String> {
    Path::new(THP_DIR).join(SHRINK_UNDERUSED).exists().then(|| {
        "This kernel can split sparse huge pages itself where a cgroup is at its limit. That setting affects every program, excluded ones too. The manager therefore changes it only with your consent: `kernel_split = \"on\"`, or --kernel-split."
            .into()
    })
}

/// Where to look for shared memory that is not aligned. This command reads no other process.
fn shared_memory_note(shmem_enabled: Option<&str>) -> Option<String> {
    let setting = shmem_enabled.filter(|setting| ["never", "deny"].contains(setting))?;
    Some(format!(
        "The kernel does not align shared memory for huge pages (shmem_enabled={setting}). `hawkeye advise --shared-memory` lists what cannot become huge therefore."
    ))
}

/// Whether annotations of pods can be read from the container runtimes of this machine.
fn container_runtime_notes() -> impl Iterator<Item = String> {
    const SOCKETS: [&str; 3] = [
        "/run/containerd/containerd.sock",
        "/run/k3s/containerd/containerd.sock",
        "/run/crio/crio.sock",
    ];
    SOCKETS.into_iter().filter(|socket| Path::new(socket).exists()).map(|socket| {
        match profile_requests::count_pods(Path::new(socket)) {
            Ok((pods, asking)) => format!(
                "{socket} reports {pods} pods; {asking} of them ask for a profile by the annotation {}. The daemon follows them where the key cri_socket of [workload_profiles] names this socket.",
                profile_requests::ANNOTATION
            ),
            Err(error) => format!("Annotations of pods can't be read from {socket}: {error}"),
        }
    })
}

/// What to do on a kernel on which nothing is promoted, besides another kernel.
fn unmanaged_kernel_notes(kernel: &UnmanagedKernel) -> Vec<String> {
    let mut notes = kernel.sentences();
    if let Some((does, command)) = kernel.switch_to_smaller_pages() {
        notes.push(format!("You can {does}: `{}`", command.replace('\n', " && ")));
    }
    notes
}

/// The commands that work on such a kernel, and those that refuse.
fn unmanaged_kernel_text(kernel: &UnmanagedKernel) -> String {
    let UnmanagedKernel { sizes, why, guarded, .. } = kernel;
    let works = match guarded {
        true => {
            "yes  guarding   the profile guard of daemon, attach and run\n\
             yes  measuring  advise --all, advise --cgroup, status --forecast\n\
             no   promoting  refused: other profiles and policies, prefault, demo, record, text\n"
        }
        false => {
            "no   measuring  refused: the rest of advise, status --forecast, record\n\
             no   managing   refused: run, attach, daemon, demo, text\n"
        }
    };
    format!(
        "yes  advice     hawkeye advise PID: memory and huge pages of a process, the switch of its allocator, its limit\n\
         {works}     \
         why: {why}; a huge page has {} base pages here\n",
        format_count(sizes.pages_per_huge_page())
    )
}

fn doctor_text(report: &DoctorReport) -> String {
    let DoctorReport { decision, facts, startup_deaths, unmanaged_kernel } = report;
    let enabled = facts.host.thp_enabled.as_deref().unwrap_or("none");
    let (verdict, kernel) = (&decision.verdict, &facts.host.kernel);
    let mut out = format!("{verdict}\nLinux {kernel}, transparent huge pages: {enabled}\n\n");
    match unmanaged_kernel {
        Some(kernel) if kernel.guarded => {
            let capabilities = capabilities_text(decision, facts);
            out += &format!("{}\n{capabilities}", unmanaged_kernel_text(kernel));
        }
        Some(kernel) => out += &unmanaged_kernel_text(kernel),
        None => out += &capabilities_text(decision, facts),
    }
    for note in &decision.notes {
        out += &format!("\n{note}\n");
    }
    out + "\n" + &startup_deaths_text(startup_deaths)
}

fn capabilities_text(decision: &KernelDecision, facts: &KernelFacts) -> String {
    let mut out = String::new();
    let width = decision.capabilities.iter().map(|c| c.name.len()).max().unwrap_or(0);
    for capability in &decision.capabilities {
        let mark = if capability.available { "yes" } else { "no " };
        let (name, found) = (capability.name, &capability.found);
        out += &format!("{mark}  {name:width$}  {found}\n");
        let mut line = |text: String| out += &format!("     {:width$}  {text}\n", "");
        line(format!("checked by: {}", capability.how));
        if !capability.available {
            line(format!("without it you lose: {}", capability.lost));
            line(format!("to get it: {}", capability.remedy));
        }
    }
    if !facts.small_pages.is_empty() {
        let [base, huge] = [PageOrder::BASE, PageOrder::HUGE];
        out += &format!("\nPage sizes at first touches, besides {base} and {huge}:\n");
    }
    for size in &facts.small_pages {
        let (order, setting) = (size.found.order.to_string(), &size.found.setting);
        let us = |ns: u64| ns as f64 / 1e3;
        let tried = match &size.tried {
            KernelCheckResult::Works => format!(
                "works: first touch {:.1} us, all touched after {:.1} us; with {} base pages after {:.1} us",
                us(size.first_touch_ns),
                us(size.touched_ns),
                size.found.order.pages(),
                us(size.base_touched_ns)
            ),
            tried => tried.to_string(),
        };
        out += &format!("     {order:8} {setting:8} {tried}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::unmanaged_kernel::tests::kernel;
    use super::{
        UnmanagedKernel, shared_memory_note, unmanaged_kernel_notes, unmanaged_kernel_text,
    };

    #[test]
    fn a_kernel_with_other_page_sizes_has_what_works_what_is_refused_and_what_to_do() {
        let kernel = kernel(64, 512);
        let text = unmanaged_kernel_text(&kernel);
        for expected in [
            "yes  advice     hawkeye advise PID",
            "\nno   managing   refused: run, attach, daemon",
            "\n     why: this kernel's base pages have 64 KiB and its huge pages 512 MiB; a huge page has 8,192 base pages here\n",
        ] {
            assert!(text.contains(expected), "{text}");
        }
        let guarded = UnmanagedKernel { guarded: true, ..kernel.clone() };
        let text = unmanaged_kernel_text(&guarded);
        for expected in
            ["\nyes  guarding ", "\nyes  measuring ", "\nno   promoting ", "\n     why: "]
        {
            assert!(text.contains(expected), "{text}");
        }
        let notes = unmanaged_kernel_notes(&kernel);
        assert_eq!(notes.len(), 3, "{notes:?}");
        let command = "`cd /sys/kernel/mm/transparent_hugepage && echo always > hugepages-2048kB/enabled && echo never > hugepages-524288kB/enabled`";
        assert!(notes[2].starts_with("You can let the kernel give pages of 2 MiB"), "{notes:?}");
        assert!(notes[2].ends_with(command), "{notes:?}");
    }

    #[test]
    fn the_list_of_shared_memory_is_named_where_the_kernel_does_not_align_it() {
        for setting in ["never", "deny"] {
            let note = shared_memory_note(Some(setting)).expect("there is a note");
            assert!(note.contains("hawkeye advise --shared-memory"), "{note}");
        }
        for setting in [Some("advise"), Some("always"), Some("force"), None] {
            assert_eq!(shared_memory_note(setting), None);
        }
    }
}
