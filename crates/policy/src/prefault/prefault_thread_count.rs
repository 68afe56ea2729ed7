//! Number of threads that fill.

use crate::setting_error::{Setting, SettingError};
use std::ops::RangeInclusive;

/// Threads that fill at the same time (1 to 64).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefaultThreadCount(u8);

impl PrefaultThreadCount {
    /// The upper limit is more than the memory of any machine can use.
    const ALLOWED: RangeInclusive<u8> = 1..=64;
    /// One core zeroes some 10 GB/s; four use most of a processor's memory bandwidth.
    const USUALLY_MOST: usize = 4;

    /// Fills with `threads` threads.
    pub fn new(threads: u64) -> Result<Self, SettingError> {
        let allowed = u8::try_from(threads).ok().filter(|threads| Self::ALLOWED.contains(threads));
        let refused = || SettingError::new(Setting::PrefaultThreads, threads, "1 to 64");
        allowed.map(Self).ok_or_else(refused)
    }

    /// One thread per core, except one core for the program: at least 1, at most 4.
    pub fn default_for_cores(cores: usize) -> Self {
        let spare = cores.saturating_sub(1).clamp(1, Self::USUALLY_MOST);
        Self(u8::try_from(spare).unwrap_or(u8::MAX))
    }

    /// The number of threads.
    pub fn get(self) -> usize {
        self.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_core_is_left_to_the_program_and_memory_is_the_limit() {
        let usual = |cores| PrefaultThreadCount::default_for_cores(cores).get();
        assert_eq!([0, 1, 2, 3, 5, 6, 128].map(usual), [1, 1, 1, 2, 4, 4, 4]);
    }

    #[test]
    fn zero_and_too_many_threads_are_refused() {
        assert_eq!(PrefaultThreadCount::new(64).map(PrefaultThreadCount::get), Ok(64));
        for bad in [0, 65, 256 + 1] {
            let error = PrefaultThreadCount::new(bad).map_err(|error| error.to_string());
            let sentence = format!("prefault threads must be 1 to 64, not {bad}");
            assert_eq!(error, Err(sentence));
        }
    }
}
