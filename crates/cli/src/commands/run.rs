//! `hawkeye run`: starts a program under management.

use super::session::PreparedSession;
use crate::options::ManageOptions;
use crate::program_use;
use anyhow::{Context, Result};
use clap::Args;
use hawkeye_linux::ManagedTarget;
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::stop::unblock_signals;
use hawkeye_policy::Profile;
use std::ffi::OsString;
use std::process::{Command, ExitCode};

/// Start a program under management, and print a summary at its end.
///
/// The program keeps standard input and output; HawkEye writes to standard error only. The exit
/// status of the program is passed on.
#[derive(Args)]
#[command(
    after_help = "\
Example: hawkeye run --policy hawkeye-g -- redis-server --port 6380
Policies: hawkeye, hawkeye-g, hawkeye-pmu, ingens, linux, none.
`hawkeye help run` describes all options in full, and also --average,
--promotion-return, --kernel-split, --fill-rate and --fill-threads.",
    after_long_help = "\
Example: hawkeye run --policy hawkeye-g -- redis-server --port 6380
Policies: hawkeye, hawkeye-g, hawkeye-pmu, ingens, linux, none."
)]
pub struct RunOptions {
    #[command(flatten)]
    options: ManageOptions,

    /// Prefault SIZE at the start, for example 8GiB.
    ///
    /// Prefaults that much of the memory that the program touches first, at once. For programs that
    /// touch all of their memory at the start (a virtual machine, a JVM with AlwaysPreTouch).
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = crate::options::bytes)]
    warm: u64,

    /// The program and its arguments, after --.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl RunOptions {
    /// Runs the program and returns its status.
    pub fn execute(self) -> Result<ExitCode> {
        let name = self.command[0].to_string_lossy().into_owned();
        let session = PreparedSession::begin(
            &self.options,
            Profile::Speed,
            self.warm,
            &format!("run {name}"),
        )?;
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        unblock_signals(&mut command);
        let child = command
            .spawn()
            .with_context(|| format!("can't start {name}"))?;
        let root = ProcessHandle::of_child(child.id())?;
        let mut managed = session.manage(ManagedTarget::Family(root), |_| true)?;
        let (status, used) = program_use::wait(child.id()).context("can't wait for the program")?;
        let code = program_use::exit_code(status);
        let summary = &mut managed.summary;
        summary.subject = name;
        summary.exit_status = Some(code);
        summary.program.add(used);
        if let Err(error) = managed.report(&self.options) {
            // The caller waits for the program's status, so an error of ours does not replace it.
            eprintln!("hawkeye: {error:#}");
        }
        Ok(ExitCode::from(code))
    }
}
