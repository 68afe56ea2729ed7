//! `hawkeye restore`: restores settings that a killed manager left changed.

use crate::output;
use anyhow::Result;
use hawkeye_linux::machine_lease::manager_lock::{ManagerLock, state_dir};
use hawkeye_linux::machine_lease::stop_leftover_damon_session;
use hawkeye_linux::machine_lease::thp_settings::{
    SettingRestoreReport, SettingRestoreResult, restore_leftover_settings,
};
use std::process::ExitCode;

pub fn execute() -> Result<ExitCode> {
    let state = state_dir();
    let _instance = ManagerLock::claim(&state, "restore")?;
    stop_leftover_damon_session();
    let restored = restore_leftover_settings(&state)?;
    if restored.is_empty() {
        output::print_to_stdout("Nothing to restore: no setting is recorded as changed.\n")?;
    }
    for outcome in &restored {
        output::print_to_stdout(&format!("{outcome}\n"))?;
    }
    let failed =
        |outcome: &SettingRestoreReport| matches!(outcome.became, SettingRestoreResult::Failed(_));
    Ok(ExitCode::from(u8::from(restored.iter().any(failed))))
}
