//! Sets the rate at which the kernel zeroes free memory, by memory and idle time. Only some kernels
//! can do this.

use crate::config::PrezeroingSettings;
use crate::daemon::protocol::PrezeroingStatus;
use hawkeye_linux::LinuxError;
use hawkeye_linux::error::Result;
use hawkeye_linux::machine_lease::thp_settings::KernelSettingsGuard;
use hawkeye_linux::memory::idle_time_meter::IdleTimeMeter;
use hawkeye_linux::memory::prezeroing::{KernelPrezeroingState, LOAD_COMMAND, PrezeroingFiles};
use hawkeye_linux::memory::system_memory;
use hawkeye_policy::BASE_PAGE_BYTES;
use hawkeye_policy::prezeroing::{ZeroingConditions, ZeroingRate, ZeroingRateControl};
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_secs(1);

pub struct PrezeroingController {
    sys: PrezeroingFiles,
    settings: PrezeroingSettings,
    pace: ZeroingRateControl,
    idle: IdleTimeMeter,
    due: Duration,
    /// Whether the module has our settings at the moment.
    set: bool,
    /// The last error that was reported; each one is reported once.
    last_error: Option<String>,
    status: Option<PrezeroingStatus>,
}

/// The state of management, as far as zeroing depends on it.
#[derive(Clone, Copy, Debug)]
pub struct ManagerStateForZeroing {
    /// Time since the machine was taken over.
    pub now: Duration,
    pub short: bool,
    pub paused: bool,
}

impl PrezeroingController {
    /// `None` on a kernel without this zeroing; that can't change while the kernel runs.
    pub fn new_if_supported(sys: PrezeroingFiles, settings: PrezeroingSettings) -> Option<Self> {
        let there = sys.exists();
        there.then(|| Self {
            sys,
            settings,
            pace: ZeroingRateControl::new(settings.bounds),
            idle: IdleTimeMeter::default(),
            due: Duration::ZERO,
            set: false,
            last_error: None,
            status: None,
        })
    }

    /// Called between steps. Sets the rate when it is time to, and returns the state of zeroing.
    pub fn adjust_if_due(
        &mut self,
        standing: ManagerStateForZeroing,
        guard: &mut KernelSettingsGuard,
    ) -> Option<&PrezeroingStatus> {
        if standing.now >= self.due {
            self.due = standing.now + LOOK_EVERY;
            match self.adjust_rate(standing, guard) {
                Ok(status) => {
                    self.last_error = None;
                    self.status = Some(status);
                }
                Err(error) => self.report_error_once(&error),
            }
        }
        self.status.as_ref()
    }

    fn report_error_once(&mut self, error: &LinuxError) {
        let said = error.to_string();
        if self.last_error.as_ref() != Some(&said) {
            tracing::warn!("prezeroing can't be set or read: {said}");
        }
        if let Some(status) = &mut self.status {
            status.pace.clone_from(&said);
        }
        self.last_error = Some(said);
    }

    fn adjust_rate(
        &mut self,
        standing: ManagerStateForZeroing,
        guard: &mut KernelSettingsGuard,
    ) -> Result<PrezeroingStatus> {
        let idle = self.idle.idle_share_since_last_call();
        let Some(found) = self.sys.read_state()? else { return Ok(PrezeroingStatus::default()) };
        let free_bytes = system_memory::free_memory_bytes()?;
        let pages = found.total_page_counts();
        let seen = ZeroingConditions {
            free: free_bytes / BASE_PAGE_BYTES,
            zeroed: pages.free,
            short: standing.short,
            idle,
        };
        let (pace, pages_per_s) = match &found.module {
            Some(_) if self.settings.paced && !standing.paused => self.set_rate(&seen, guard)?,
            _ => self.restore_settings(&found, guard)?,
        };
        Ok(PrezeroingStatus {
            active: found.active,
            zeroed_pages: pages.zeroed,
            served_pages: pages.served,
            passed_over_pages: pages.passed_over,
            lost_pages: pages.lost,
            free_zeroed_bytes: pages.free * BASE_PAGE_BYTES,
            free_bytes,
            pages_per_s,
            pace,
        })
    }

    /// Sets the rate. Returns the reason as a clause, and the rate.
    fn set_rate(
        &mut self,
        seen: &ZeroingConditions,
        guard: &mut KernelSettingsGuard,
    ) -> Result<(String, Option<u32>)> {
        // Before the first change, so that a half-done change is restored too.
        if !std::mem::replace(&mut self.set, true) && self.settings.idle_only {
            self.sys.set_idle_only(true, guard)?;
        }
        let rate = self.pace.decide_rate(seen);
        let pages = match rate {
            ZeroingRate::PagesPerS(pages) => Some(pages),
            ZeroingRate::Short | ZeroingRate::Busy => None,
        };
        let set = self.sys.set_rate(pages, guard)?;
        Ok((rate.to_string(), Some(set)))
    }

    /// Restores changed settings. Returns the origin of the rate as a clause, and the rate.
    fn restore_settings(
        &mut self,
        found: &KernelPrezeroingState,
        guard: &mut KernelSettingsGuard,
    ) -> Result<(String, Option<u32>)> {
        if std::mem::take(&mut self.set) {
            self.pace = ZeroingRateControl::new(self.settings.bounds);
            self.sys.restore_module_settings(guard)?;
        }
        let origin = match (&found.module, self.settings.paced) {
            (None, _) if found.active => "set by another module".into(),
            (None, _) => format!("no module zeroes memory; `{LOAD_COMMAND}` loads one"),
            (_, false) => "set by the module's parameters".into(),
            (_, true) => "set by the module's parameters while paused".into(),
        };
        // Read again, because the settings may just have been restored.
        let module = self.sys.read_module_settings()?;
        Ok((origin, module.map(|module| module.pages_per_second)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_linux::machine_lease::thp_settings::WritableSettingFiles;
    use std::fs;
    use tempfile::TempDir;

    /// A fake kernel with the module loaded.
    struct FakeKernel(TempDir);

    impl FakeKernel {
        fn new() -> Self {
            let kernel = Self(tempfile::tempdir().expect("a temporary folder"));
            kernel.set("kernel/mm/prezero/active", "1");
            for counter in ["zeroed", "served", "passed_over", "lost", "free"] {
                kernel.set(&format!("kernel/mm/prezero/node0-Normal/{counter}"), "7");
            }
            kernel.set("module/prezero/parameters/pages_per_second", "777");
            kernel.set("module/prezero/parameters/idle_only", "N");
            kernel
        }

        fn set(&self, name: &str, value: &str) {
            let file = self.0.path().join(name);
            fs::create_dir_all(file.parent().expect("the file has a parent folder"))
                .expect("the folder can be created");
            fs::write(file, format!("{value}\n")).expect("the file can be written");
        }

        fn module_settings(&self) -> String {
            let parameters = self.0.path().join("module/prezero/parameters");
            let read =
                |name| fs::read_to_string(parameters.join(name)).expect("the file can be read");
            let both = ["pages_per_second", "idle_only"].map(read);
            both.map(|text| text.trim().to_owned()).join(" ")
        }

        fn zeroing(&self, paced: bool) -> PrezeroingController {
            let settings = PrezeroingSettings { paced, ..PrezeroingSettings::default() };
            PrezeroingController::new_if_supported(PrezeroingFiles::under(self.0.path()), settings)
                .expect("the module is loaded")
        }

        fn guard(&self) -> KernelSettingsGuard {
            let folder = self.0.path();
            KernelSettingsGuard::restore_and_start_for_files(
                folder,
                WritableSettingFiles::under(folder),
            )
            .expect("the guard starts")
        }
    }

    fn at(seconds: u64, short: bool, paused: bool) -> ManagerStateForZeroing {
        ManagerStateForZeroing { now: Duration::from_secs(seconds), short, paused }
    }

    #[test]
    fn a_kernel_without_prezeroing_is_left_alone() {
        let sys = PrezeroingFiles::under(&std::env::temp_dir().join("no-such-sysfs"));
        assert!(
            PrezeroingController::new_if_supported(sys, PrezeroingSettings::default()).is_none()
        );
    }

    #[test]
    fn zeroing_stops_while_memory_is_short_and_settings_are_restored_in_a_pause_and_at_the_end() {
        let kernel = FakeKernel::new();
        let mut guard = kernel.guard();
        let mut zeroing = kernel.zeroing(true);
        let status = zeroing.adjust_if_due(at(0, true, false), &mut guard);
        let pace = status.map(|status| (status.pace.as_str(), status.pages_per_s));
        assert_eq!(pace, Some(("stopped: memory is short", Some(1))));
        assert_eq!(kernel.module_settings(), "1 Y");
        // Too early: nothing changes.
        let mut early = at(0, false, true);
        early.now = Duration::from_millis(999);
        zeroing.adjust_if_due(early, &mut guard);
        assert_eq!(kernel.module_settings(), "1 Y");
        let status = zeroing.adjust_if_due(at(1, false, true), &mut guard);
        assert_eq!(status.and_then(|status| status.pages_per_s), Some(777));
        assert_eq!(kernel.module_settings(), "777 N");
        zeroing.adjust_if_due(at(2, true, false), &mut guard);
        assert_eq!(kernel.module_settings(), "1 Y");
        drop(guard);
        assert_eq!(kernel.module_settings(), "777 N");
    }

    #[test]
    fn with_enough_memory_the_rate_follows_free_memory() {
        let kernel = FakeKernel::new();
        let mut guard = kernel.guard();
        let mut zeroing = kernel.zeroing(true);
        // At the first look the idle time is not known yet. The usual rate holds, unless hardly any
        // memory is free.
        let status = zeroing
            .adjust_if_due(at(0, false, false), &mut guard)
            .expect("the counters can be read");
        assert!(status.active && status.zeroed_pages == 7, "{status:?}");
        let rate = status.pages_per_s.expect("the rate is set");
        assert!((512..=10_000).contains(&rate), "{status:?}");
        assert_eq!(status.pace, format!("at most {rate} pages/s"));
        assert_eq!(kernel.module_settings(), format!("{rate} Y"));
        // All free memory is zeroed.
        kernel.set("kernel/mm/prezero/node0-Normal/free", &u32::MAX.to_string());
        zeroing.idle = IdleTimeMeter::default();
        let status = zeroing.adjust_if_due(at(1, false, false), &mut guard);
        assert_eq!(status.and_then(|status| status.pages_per_s), Some(512));
    }

    #[test]
    fn without_consent_or_module_nothing_is_set() {
        let kernel = FakeKernel::new();
        let mut guard = kernel.guard();
        let mut off = kernel.zeroing(false);
        let status = off
            .adjust_if_due(at(0, true, false), &mut guard)
            .expect("the state of zeroing can be read");
        assert_eq!(status.pages_per_s, Some(777));
        assert_eq!(kernel.module_settings(), "777 N");
        let mut on = kernel.zeroing(true);
        on.adjust_if_due(at(0, true, false), &mut guard);
        fs::remove_dir_all(kernel.0.path().join("module")).expect("the folder can be removed");
        kernel.set("kernel/mm/prezero/active", "0");
        let status = on
            .adjust_if_due(at(1, true, false), &mut guard)
            .expect("the state of zeroing can be read");
        assert!(status.pace.contains("modprobe prezero"), "{status:?}");
        assert_eq!(status.pages_per_s, None);
    }

    #[test]
    fn a_read_error_is_reported_in_the_status() {
        let kernel = FakeKernel::new();
        let mut guard = kernel.guard();
        let mut zeroing = kernel.zeroing(true);
        zeroing.adjust_if_due(at(0, false, false), &mut guard);
        kernel.set("kernel/mm/prezero/active", "many");
        let status = zeroing.adjust_if_due(at(1, false, false), &mut guard).expect("was read once");
        assert!(status.pace.contains("contains \"many\""), "{status:?}");
    }
}
