//! Imports that nearly every experiment uses.

pub(super) use super::bench_host::{BenchHost, require_available_memory};
pub(super) use super::huge_page_systems::{
    HugePageSystem, KERNEL_SPLIT_NOTE, PromoterPace, join_or_resume_panic,
};
pub(super) use super::live_report::{LiveReport, bytes_to_mib};
pub(super) use super::manager_runs::{manage_processes_until, promote_one_programs_worth};
pub(super) use super::programs::program_speed::{
    BaseAndHugeRounds, ProgramSpeed, measure_rounds, measure_turn,
};
pub(super) use super::programs::whole_process_promotion::{
    huge_memory_percent, promote_whole_process,
};
pub(super) use super::programs::{
    MeasuredProgram, ProgramKind, reader_kind, start_lightly_loaded_redis,
};
pub(super) use super::scale::{Scale, TurnSettings};
pub(super) use crate::error::{BenchResult, bail, impossible};
pub(super) use crate::statistics::{median, median_of_mapped};
pub(super) use hawkeye_linux::LinuxError;
pub(super) use hawkeye_linux::machine_lease::thp_settings::{SHRINK_UNDERUSED, THP_DIR};
pub(super) use hawkeye_linux::processes::process::{ProcessHandle, rss_bytes};
pub(super) use hawkeye_manager::Settings;
pub(super) use hawkeye_policy::{
    BASE_PAGE_BYTES, BloatThreshold, CpuBudget, HUGE_PAGE_BYTES, PAGES_PER_REGION, RatePerSecond,
    RegionAddr, Watermarks,
};
pub(super) use hawkeye_workload::{WorkloadEvent, WorkloadProcess, WorkloadRequest};
pub(super) use std::path::{Path, PathBuf};
pub(super) use std::process::{Command, Stdio};
pub(super) use std::time::{Duration, Instant};
