//! `hawkeye attach`: manages processes that run already.

use super::managing::Session;
use crate::options::ManagingOptions;
use crate::program::Watched;
use anyhow::Result;
use clap::Args;
use hawkeye_linux::Scope;
use hawkeye_linux::processes::process::ProcessHandle;
use std::cell::RefCell;
use std::process::ExitCode;

/// Manage running processes until interrupted, or until all have ended.
#[derive(Args)]
#[command(after_help = "\
Example: hawkeye attach --watermarks 80,60 $(pidof redis-server)
Policies: hawkeye, hawkeye-g, hawkeye-pmu, ingens, linux, none.
`hawkeye help attach` shows all options, and says more about each.")]
pub struct Attach {
    #[command(flatten)]
    options: ManagingOptions,

    /// Processes to manage.
    #[arg(required = true, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pids: Vec<u32>,
}

impl Attach {
    /// Manages them.
    pub fn execute(self) -> Result<ExitCode> {
        let handles = self
            .pids
            .iter()
            .map(|pid| ProcessHandle::open(*pid))
            .collect::<Result<Vec<_>, _>>()?;
        let names: Vec<String> = self.pids.iter().map(u32::to_string).collect();
        let purpose = format!("attach {}", names.join(" "));
        let session = Session::begin(&self.options, 0, &purpose)?;
        let watched = RefCell::new(Watched::new(&self.pids));
        let mut managed =
            session.manage(Scope::Processes(handles), || watched.borrow_mut().update())?;
        let used = watched.borrow().used();
        let summary = &mut managed.summary;
        summary.subject = format!("process {}", names.join(", "));
        summary.program.user_s = used.user_s;
        summary.program.system_s = used.system_s;
        summary.program.minor_faults = used.minor_faults;
        managed.report(&self.options)?;
        Ok(ExitCode::SUCCESS)
    }
}
