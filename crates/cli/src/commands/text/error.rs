//! Errors of `hawkeye text`.

use crate::config::ConfigError;
use hawkeye_linux::LinuxError;
use hawkeye_policy::SettingError;
use hawkeye_policy::text_trial::TextTrialError;
use nix::errno::Errno;
use std::io;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum TextError {
    /// Not a failure: the user wants this program to end.
    #[error("stopped by signal {0}")]
    Stopped(i32),
    #[error("no text can be promoted: {0}")]
    PageSizes(String),
    #[error("the kernel refused all regions")]
    AllRefused,
    #[error(
        "the trial was given up after {0} s, because changes of pages take long now; try again while the machine is less busy"
    )]
    TooSlow(u64),
    #[error("process {0} ended during the trial")]
    ProcessEnded(u32),
    #[error("process {pid} is left alone: {why}")]
    Excluded { pid: u32, why: String },
    #[error(
        "process {pid} maps the same text and is left alone, and a promotion would change it too: {why}"
    )]
    OtherMapperExcluded { pid: u32, why: String },
    #[error(
        "nothing shows here whether the program gets faster: {counters}. Give its own rate by --rate-command CMD, which prints one growing number such as requests served, or run this on a machine that counts instructions (most virtual machines do not). --keep promotes without a trial"
    )]
    NoRate { counters: LinuxError },
    #[error("the rate command {command:?} {why}; it must print one growing number")]
    RateCommand { command: String, why: String },
    #[error("the kernel promoted {regions} regions before, and refuses them now ({errno})")]
    RefusedLater { regions: usize, errno: Errno },
    #[error(
        "{0} regions of its text stay huge, with unchanged contents: something else maps their pages since the trial began, or threads on several processors run this text all the time"
    )]
    StaysHuge(usize),
    #[error("{failed}; and the text could not be given base pages again: {also}")]
    NotPutBack { failed: Box<TextError>, also: Box<TextError> },
    #[error(transparent)]
    Trial(#[from] TextTrialError),
    #[error(transparent)]
    Linux(#[from] LinuxError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("can't start sh for the rate command: {0}")]
    Start(io::Error),
}
