//! When memory is too full to promote, and from whom to take it back.

use crate::error::{SettingError, positive_up_to};
use crate::observation::{MemoryState, ProcessId};
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use thiserror::Error;

/// Shares of memory in use between which recovery starts and ends (paper, sections 3.2 and 3.5).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watermarks {
    high_percent: f64,
    low_percent: f64,
}

impl Watermarks {
    /// Recovery starts above `high_percent` and goes on until under `low_percent`
    /// (0 < low < high <= 100).
    pub fn new(high_percent: f64, low_percent: f64) -> Result<Self, SettingError> {
        let high = "high watermark (%)";
        positive_up_to(100.0, high_percent, high, "over 0 and at most 100")?;
        if low_percent > 0.0 && low_percent < high_percent {
            Ok(Self {
                high_percent,
                low_percent,
            })
        } else {
            let low = "low watermark (%)";
            Err(SettingError::new(
                low,
                low_percent,
                "over 0 and under the high watermark",
            ))
        }
    }

    /// Above it recovery starts and nothing is promoted, in per cent of memory.
    pub fn high_percent(self) -> f64 {
        self.high_percent
    }

    /// Under it recovery ends, in per cent of memory.
    pub fn low_percent(self) -> f64 {
        self.low_percent
    }

    /// Whether memory is to be recovered now, given whether it was until now. In between the marks
    /// nothing changes.
    pub fn recovering(self, was_recovering: bool, used_percent: f64) -> bool {
        used_percent > self.high_percent || (was_recovering && used_percent >= self.low_percent)
    }
}

impl Default for Watermarks {
    /// The paper's 85 and 70 %.
    fn default() -> Self {
        Self {
            high_percent: 85.0,
            low_percent: 70.0,
        }
    }
}

/// Whose memory is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The whole machine's.
    Machine,
    /// A cgroup's, by its path.
    Group(String),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => f.write_str("the machine"),
            Self::Group(name) => write!(f, "cgroup {name}"),
        }
    }
}

/// Why promotion waits.
#[derive(Clone, Debug, PartialEq, Error, Serialize)]
#[serde(tag = "hold", rename_all = "kebab-case")]
pub enum Hold {
    /// The state of memory is not known (yet).
    #[error("the state of memory is not known")]
    Unknown,
    /// Memory is over the high watermark.
    #[error(
        "{scope} uses {used_percent:.1} % of its memory, over the high watermark of {high_percent} %"
    )]
    AboveHigh {
        /// Whose.
        scope: Scope,
        /// In use, per cent.
        used_percent: f64,
        /// The high watermark, per cent.
        high_percent: f64,
    },
    /// Memory was over the high watermark and is not yet under the low one.
    #[error(
        "{scope} uses {used_percent:.1} % of its memory, being recovered until under {low_percent} %"
    )]
    Recovering {
        /// Whose.
        scope: Scope,
        /// In use, per cent.
        used_percent: f64,
        /// The low watermark, per cent.
        low_percent: f64,
    },
    /// Tasks wait for memory.
    #[error(
        "tasks waited for memory {pressure_percent:.1} % of the last 10 s, more than {limit_percent} %"
    )]
    Pressure {
        /// Share of the last 10 s (PSI "some avg10"), per cent.
        pressure_percent: f64,
        /// The most at which promotion goes on, per cent.
        limit_percent: f64,
    },
}

/// Something over its watermark, from which to recover memory.
#[derive(Clone, Debug, PartialEq)]
pub struct RecoverFrom {
    /// What.
    pub scope: Scope,
    /// In use, per cent.
    pub used_percent: f64,
}

/// From which processes to recover memory now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recovering {
    /// Share of the machine's memory in use, when the machine is over: then everyone is concerned.
    machine: Option<f64>,
    /// Members of groups that are over, and the share of their group's memory that is in use.
    members: HashMap<ProcessId, f64>,
}

impl Recovering {
    /// Whether to recover from this process.
    pub fn covers(&self, process: ProcessId) -> bool {
        self.used_percent(process).is_some()
    }

    /// Share in use, per cent, of the memory for whose sake to recover from this process (its
    /// group's rather than the machine's); `None` when it is to be left alone.
    pub fn used_percent(&self, process: ProcessId) -> Option<f64> {
        self.members.get(&process).copied().or(self.machine)
    }
}

/// What an assessment came to.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Assessment {
    /// Whether promotion goes on at all, or why not. A process whose group is over is held apart,
    /// by [`MemoryGuard::may_promote`].
    pub promotion: Result<(), Hold>,
    /// Everything over its watermark; empty when nothing is to be recovered.
    pub recover: Vec<RecoverFrom>,
}

/// Watches the watermarks of the machine and of each cgroup, and memory pressure.
///
/// The machine and the groups each have a state of their own: recovering from the moment they are
/// over the high watermark until they are under the low one. While they are, nothing is promoted in
/// them. A group that is no longer shown is forgotten.
#[derive(Clone, Debug)]
pub struct MemoryGuard {
    watermarks: Watermarks,
    pressure_limit_percent: f64,
    /// Why nothing at all is promoted.
    held: Option<Hold>,
    /// Why single processes are not.
    held_members: HashMap<ProcessId, Hold>,
    machine_recovering: bool,
    /// Groups over their watermark, by name.
    groups_recovering: Vec<String>,
    recovering: Option<Recovering>,
}

impl MemoryGuard {
    /// Pressure above which nothing is promoted unless set, in per cent (10).
    pub const DEFAULT_PRESSURE_LIMIT_PERCENT: f64 = 10.0;

    /// Keeps to `watermarks`, and holds promotion while PSI "some avg10" is more than
    /// `pressure_limit_percent` (over 0, at most 100; 100: never). Holds until the first assessment.
    pub fn new(watermarks: Watermarks, pressure_limit_percent: f64) -> Result<Self, SettingError> {
        let pressure_limit_percent = positive_up_to(
            100.0,
            pressure_limit_percent,
            "memory pressure limit (%)",
            "over 0 and at most 100",
        )?;
        Ok(Self {
            watermarks,
            pressure_limit_percent,
            held: Some(Hold::Unknown),
            held_members: HashMap::new(),
            machine_recovering: false,
            groups_recovering: Vec::new(),
            recovering: None,
        })
    }

    /// Takes in the state of memory.
    pub fn assess(&mut self, state: &MemoryState) -> Assessment {
        let machine_percent = state.machine.percent();
        self.machine_recovering = self
            .watermarks
            .recovering(self.machine_recovering, machine_percent);
        self.held = self
            .machine_recovering
            .then(|| self.hold(Scope::Machine, machine_percent))
            .or_else(|| self.pressure(state.pressure_percent));

        let mut recover = Vec::new();
        let mut recovering = Recovering::default();
        if self.machine_recovering {
            recover.push(RecoverFrom {
                scope: Scope::Machine,
                used_percent: machine_percent,
            });
            recovering.machine = Some(machine_percent);
        }
        self.held_members.clear();
        let mut groups_recovering = Vec::new();
        for group in &state.groups {
            let used_percent = group.usage.percent();
            let was = self.groups_recovering.contains(&group.name);
            if !self.watermarks.recovering(was, used_percent) {
                continue;
            }
            groups_recovering.push(group.name.clone());
            let scope = Scope::Group(group.name.clone());
            let hold = self.hold(scope.clone(), used_percent);
            for member in &group.members {
                // In nested groups the fullest one counts.
                let fullest = recovering
                    .members
                    .entry(*member)
                    .or_insert(f64::NEG_INFINITY);
                if used_percent > *fullest {
                    *fullest = used_percent;
                    self.held_members.insert(*member, hold.clone());
                }
            }
            recover.push(RecoverFrom {
                scope,
                used_percent,
            });
        }
        self.groups_recovering = groups_recovering;
        self.recovering = (!recover.is_empty()).then_some(recovering);
        Assessment {
            promotion: self.held.clone().map_or(Ok(()), Err),
            recover,
        }
    }

    /// The state of memory could not be read: nothing is promoted or recovered until it is assessed
    /// again. Who was recovering still is then.
    pub fn lose_sight(&mut self) {
        self.held = Some(Hold::Unknown);
        self.recovering = None;
    }

    /// Everything was searched and there is nothing left to recover: what is in use is in use.
    /// Recovery starts again when memory is over the high watermark; until then promotion goes on.
    pub fn found_nothing_more(&mut self) {
        self.machine_recovering = false;
        self.groups_recovering.clear();
        self.recovering = None;
    }

    /// Whether regions of this process may be promoted, by the last assessment.
    pub fn may_promote(&self, process: ProcessId) -> Result<(), Hold> {
        match self
            .held
            .as_ref()
            .or_else(|| self.held_members.get(&process))
        {
            Some(hold) => Err(hold.clone()),
            None => Ok(()),
        }
    }

    /// From whom to recover memory now, by the last assessment; `None`: from nobody.
    pub fn recovering(&self) -> Option<&Recovering> {
        self.recovering.as_ref()
    }

    fn hold(&self, scope: Scope, used_percent: f64) -> Hold {
        let Watermarks {
            high_percent,
            low_percent,
        } = self.watermarks;
        if used_percent > high_percent {
            Hold::AboveHigh {
                scope,
                used_percent,
                high_percent,
            }
        } else {
            Hold::Recovering {
                scope,
                used_percent,
                low_percent,
            }
        }
    }

    fn pressure(&self, pressure_percent: Option<f64>) -> Option<Hold> {
        let limit_percent = self.pressure_limit_percent;
        let pressure_percent = pressure_percent.filter(|p| *p > limit_percent)?;
        Some(Hold::Pressure {
            pressure_percent,
            limit_percent,
        })
    }
}

#[cfg(test)]
mod tests;
