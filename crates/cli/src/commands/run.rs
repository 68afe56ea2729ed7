//! `hawkeye run`: starts a program under management.

use super::session::{PreparedSession, why_page_sizes_refuse};
use crate::allocator_env_plan::{self, AllocatorEnvPlan, HugePageSources};
use crate::options::{ManageOptions, keyword_parser};
use crate::output::{print_to_stderr, print_to_stdout};
use crate::program_resource_use;
use anyhow::{Context, Result};
use clap::Args;
use hawkeye_linux::ManagedTarget;
use hawkeye_linux::machine_lease::thp_settings;
use hawkeye_linux::probe::read_host_facts;
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::processes::program_allocator;
use hawkeye_linux::stop_signals::unblock_signals_in_child;
use hawkeye_policy::SettingsProfile;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Start a program under management, and print a summary at its end.
///
/// The program keeps standard input and output; HawkEye writes to standard error only. The exit
/// status of the program is passed on.
#[derive(Args)]
#[command(
    after_help = "\
Example: hawkeye run --policy hawkeye-g -- redis-server --port 6380
`hawkeye help run` describes all options in full, and also --average,
--promotion-return, --first-touch, --kernel-split, --shared-memory,
--align-shared-memory, --fill-rate and --fill-threads.",
    after_long_help = "\
Example: hawkeye run --policy hawkeye-g -- redis-server --port 6380"
)]
pub struct RunOptions {
    #[command(flatten)]
    options: ManageOptions,

    /// Prefault SIZE at the start, for example 8GiB.
    ///
    /// Prefaults that much of the memory that the program touches first, at once. For programs that
    /// touch all of their memory at the start (a virtual machine, a JVM with AlwaysPreTouch).
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = crate::options::parse_bytes)]
    warm: u64,

    /// Let the program's allocator request huge pages: on or off [default: by the profile].
    ///
    /// Sets the documented variable of its allocator or runtime in the program's environment: of
    /// glibc, jemalloc, mimalloc, Java, PHP. Never replaces what is set there already. The default
    /// is on with the profile speed, off with others.
    #[arg(long, value_name = "MODE", hide_short_help = true, value_parser = keyword_parser::<bool>())]
    first_touch: Option<bool>,

    /// Show what would be done, and start nothing.
    #[arg(long)]
    dry_run: bool,

    /// The program and its arguments, after --.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The profile of `run` where none is named.
const USUAL_PROFILE: SettingsProfile = SettingsProfile::Speed;

impl RunOptions {
    pub fn execute(self) -> Result<ExitCode> {
        let name = self.command[0].to_string_lossy().into_owned();
        let first_touch = self.allocator_env_plan()?;
        if self.dry_run {
            let (host, usual) = (read_host_facts(), USUAL_PROFILE);
            let refusal = why_page_sizes_refuse(&host, &self.options, usual, self.warm)?;
            print_to_stdout(&self.dry_run_text(&first_touch, refusal.as_deref()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let (usual, purpose) = (USUAL_PROFILE, format!("run {name}"));
        let session =
            PreparedSession::for_run_or_attach(&self.options, usual, self.warm, &purpose)?;
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        for variable in &first_touch.set {
            command.env(&variable.name, &variable.value);
            print_to_stderr(&format!("hawkeye: {variable}; --first-touch off leaves it out\n"));
        }
        unblock_signals_in_child(&mut command);
        if let Some(signal) = session.signal_so_far() {
            // There was no program yet that the terminal could have sent it to.
            return Ok(ExitCode::from(128 + signal as u8));
        }
        let child = command.spawn().with_context(|| format!("can't start {name}"))?;
        let root = ProcessHandle::open_child(child.id())?;
        let mut managed = session.manage_until_end(ManagedTarget::Family(root), |_| true)?;
        let waited = program_resource_use::wait_for_child(child.id());
        let (status, used) = waited.context("can't wait for the program")?;
        let code = program_resource_use::exit_code_of_status(status);
        let summary = &mut managed.summary;
        summary.subject = name;
        summary.exit_status = Some(code);
        summary.first_touch = first_touch;
        summary.program.add_usage(used);
        if let Err(error) = managed.print_summary_and_save_files() {
            // The caller waits for the program's status, so an error of ours does not replace it.
            print_to_stderr(&format!("hawkeye: {error:#}\n"));
        }
        Ok(ExitCode::from(code))
    }

    fn profile(&self) -> SettingsProfile {
        self.options.profile.unwrap_or(USUAL_PROFILE)
    }

    fn allocator_env_plan(&self) -> Result<AllocatorEnvPlan> {
        if !self.first_touch.unwrap_or_else(|| self.profile().wants_huge_first_touch()) {
            return Ok(AllocatorEnvPlan::default());
        }
        let command = Path::new(&self.command[0]);
        let program = program_allocator::inspect_program(command, inherited_variable)
            .with_context(|| format!("can't start {}", self.command[0].to_string_lossy()))?;
        let variable = |name: &str| Some(inherited_variable(name)?.to_string_lossy().into_owned());
        let text = |argument: &OsString| argument.to_string_lossy().into_owned();
        let arguments: Vec<String> = self.command[1..].iter().map(text).collect();
        let enabled = thp_settings::read_setting(&thp_settings::enabled_file()).ok();
        let sources = HugePageSources::of_machine(enabled.as_deref());
        let allocator = &program.allocator;
        Ok(allocator_env_plan::env_plan_for_allocator(allocator, variable, &arguments, sources))
    }

    fn dry_run_text(&self, first_touch: &AllocatorEnvPlan, refusal: Option<&str>) -> String {
        let words = self.command.iter().map(|word| word.to_string_lossy());
        let command = words.collect::<Vec<_>>().join(" ");
        let profile = self.profile();
        let policy = self.options.policy_name(profile);
        let mut text = format!("command      {command}\nprofile      {profile}, policy {policy}\n");
        for variable in &first_touch.set {
            text += &format!("first touch  {variable}\n");
        }
        for why in &first_touch.left {
            text += &format!("first touch  nothing is set: {why}\n");
        }
        if let Some(why) = refusal {
            text += &format!("start        refused: {why}\n");
        }
        text
    }
}

/// A variable of the environment that the program inherits.
fn inherited_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}
