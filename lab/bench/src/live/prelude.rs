//! Imports that nearly every experiment uses.

pub(super) use super::host::{Host, need_bytes};
pub(super) use super::managed::{manage, manage_all, promote_half};
pub(super) use super::programs::huge::{huge_percent, promote_all};
pub(super) use super::programs::speed::{Pair, Speed, in_turn, turn};
pub(super) use super::programs::{Kind, Program, idle_redis, reader};
pub(super) use super::report::{Report, mib};
pub(super) use super::scale::{Scale, Sizes};
pub(super) use super::systems::{Pace, System, joined};
pub(super) use crate::error::{Result, bail, impossible};
pub(super) use crate::statistics::{median, median_of};
pub(super) use hawkeye_linux::LinuxError;
pub(super) use hawkeye_linux::processes::process::{ProcessHandle, rss_bytes};
pub(super) use hawkeye_linux::takeover::thp_settings::{SHRINK_UNDERUSED, THP_DIR};
pub(super) use hawkeye_manager::Settings;
pub(super) use hawkeye_policy::{
    BASE_PAGE_BYTES, BloatThreshold, CpuBudget, HUGE_PAGE_BYTES, PAGES_PER_REGION, Rate,
    RegionAddr, Watermarks,
};
pub(super) use hawkeye_workload::{Event, Request, Workload};
pub(super) use std::path::{Path, PathBuf};
pub(super) use std::process::{Command, Stdio};
pub(super) use std::time::{Duration, Instant};
