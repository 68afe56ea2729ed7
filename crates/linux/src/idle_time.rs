//! How idle the processors are, all of them together.

use std::fs;
use std::path::PathBuf;

/// Tells the share of idle time from one look to the next, from `/proc/stat`.
#[derive(Clone, Debug)]
pub struct IdleTime {
    stat: PathBuf,
    last: Option<Ticks>,
}

/// Since the machine was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    all: u64,
}

impl Default for IdleTime {
    /// Of this machine.
    fn default() -> Self {
        Self {
            stat: "/proc/stat".into(),
            last: None,
        }
    }
}

impl IdleTime {
    /// Share of all processors' time (0 to 1) that was idle since this was last asked; `None` at first, where no time has passed, and
    /// where it can't be read.
    pub fn share(&mut self) -> Option<f64> {
        let now = Ticks::parse(&fs::read_to_string(&self.stat).ok()?)?;
        let last = self.last.replace(now)?;
        let all = now.all.checked_sub(last.all).filter(|all| *all > 0)?;
        // Idle time of a processor may go back a little (Documentation/filesystems/proc.rst).
        let idle = now.idle.saturating_sub(last.idle).min(all);
        Some(idle as f64 / all as f64)
    }
}

impl Ticks {
    /// The line `cpu`: user, nice, system, idle, iowait, irq, softirq, steal; then guests, which are in user and nice already.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.lines().next()?.split_whitespace();
        if words.next()? != "cpu" {
            return None;
        }
        let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
        Some(Self {
            idle: ticks.get(3)? + ticks.get(4)?,
            all: ticks.iter().sum(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thp_settings::testing::Folder;

    #[test]
    fn shares_are_of_the_time_since_the_last_look() {
        let folder = Folder::new("idle");
        let line =
            |ticks: &str| folder.file("stat", &format!("cpu  {ticks}\ncpu0 1 2 3\nintr 4\n"));
        let mut idle = IdleTime {
            stat: line("10 0 10 70 10 0 0 0 5 5"),
            last: None,
        };
        assert_eq!(idle.share(), None);
        line("20 0 20 80 20 0 0 10 5 5");
        assert_eq!(idle.share(), Some(0.4), "guests count once");
        assert_eq!(idle.share(), None, "no time has passed");
        line("30 0 20 79 20 0 0 10 5 5");
        assert_eq!(idle.share(), Some(0.0), "idle time went back");
        folder.file("stat", "intr 4\n");
        assert_eq!(idle.share(), None);
    }

    #[test]
    fn this_machine_tells() {
        assert!(Ticks::parse(&fs::read_to_string("/proc/stat").expect("reads")).is_some());
    }
}
