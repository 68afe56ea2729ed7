//! `hawkeye attach`: manages processes that are already running.

use super::session::{PreparedSession, open_target_of_pids, pids_text};
use crate::options::{self, ManageOptions};
use crate::program_resource_use::ProgramResourceMeter;
use anyhow::Result;
use clap::Args;
use hawkeye_policy::SettingsProfile;
use std::process::ExitCode;

/// Manage running processes until interrupted, or until all have ended.
#[derive(Args)]
#[command(
    after_help = "\
Example: hawkeye attach --watermarks 80,60 $(pidof redis-server)
`hawkeye help attach` describes all options in full, and also --average,
--promotion-return, --kernel-split, --shared-memory, --align-shared-memory,
--fill-rate and --fill-threads.",
    after_long_help = "\
Example: hawkeye attach --watermarks 80,60 $(pidof redis-server)"
)]
pub struct AttachOptions {
    #[command(flatten)]
    options: ManageOptions,

    /// Processes to manage.
    #[arg(required = true, value_name = "PID", value_parser = options::parse_pid)]
    pids: Vec<u32>,
}

impl AttachOptions {
    pub fn execute(self) -> Result<ExitCode> {
        let (scope, processes) = open_target_of_pids(&self.pids)?;
        let purpose = format!("attach {}", pids_text(&processes, " "));
        let usual = SettingsProfile::Balanced;
        let session = PreparedSession::for_run_or_attach(&self.options, usual, 0, &purpose)?;
        let mut watched = ProgramResourceMeter::new(&processes);
        let mut managed = session.manage_until_end(scope, |_| {
            watched.update();
            true
        })?;
        managed.summary.subject = format!("process {}", pids_text(&processes, ", "));
        managed.summary.program.add_usage(watched.used_so_far());
        managed.print_summary_and_save_files()?;
        Ok(ExitCode::SUCCESS)
    }
}
