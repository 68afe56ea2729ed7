//! Kernel settings that experiments on the profile `guard` compare, with or without its daemon.

use super::huge_page_systems::KhugepagedPace;
use super::prelude::*;
use super::running_daemon::RunningDaemon;
use hawkeye_linux::machine_lease::thp_settings::enabled_file;

/// A way to run a machine. The kernel's settings of all arms differ only in what is in here.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuardArm {
    pub name: &'static str,
    /// Which faults get huge pages.
    pub enabled: &'static str,
    /// How many base pages of a region may be empty when khugepaged makes it huge. The kernel's
    /// shrinker splits a huge page with more zero-filled base pages than this when memory is short
    /// (since 6.12).
    pub max_ptes_none: u16,
    /// Whether that shrinker is on.
    pub kernel_splits: bool,
    /// The daemon's configuration; `None`: no daemon runs.
    pub config: Option<&'static str>,
}

/// Regions per second that khugepaged looks at in all arms, fifty times the kernel's default. Half
/// a minute of a trial thus stands for 25 minutes of a container. The daemon stops khugepaged.
pub(super) const KHUGEPAGED_REGIONS_PER_S: f64 = 40.0;

/// The kernel's default for `max_ptes_none`: a region with one page becomes huge, and nothing is
/// split because of its zeros.
const ANY_NUMBER_EMPTY: u16 = 511;

impl GuardArm {
    pub(super) const NEVER: Self = Self {
        name: "THP never",
        enabled: "never",
        max_ptes_none: ANY_NUMBER_EMPTY,
        kernel_splits: true,
        config: None,
    };
    pub(super) const ALWAYS: Self = Self { name: "THP always", enabled: "always", ..Self::NEVER };
    /// What an operator can do without HawkEye.
    pub(super) const SHRINKER: Self =
        Self { name: "THP always, max_ptes_none=63", max_ptes_none: 63, ..Self::ALWAYS };
    pub(super) const GUARD: Self =
        Self { name: "THP always, guard", config: Some("profile = \"guard\"\n"), ..Self::ALWAYS };
    pub(super) const GUARD_AND_SHRINKER: Self = Self {
        name: "THP always, guard with kernel_split",
        config: Some("profile = \"guard\"\nkernel_split = \"on\"\n"),
        ..Self::ALWAYS
    };
    pub(super) const GUARD_WITHOUT_SHRINKER: Self = Self {
        name: "THP always, guard, kernel's shrinker off",
        kernel_splits: false,
        ..Self::GUARD
    };

    /// Runs `work` under this arm. `work` gets the daemon, if the arm has one.
    pub(super) fn run_under_arm<T>(
        &self,
        host: &mut BenchHost,
        work: impl FnOnce(&BenchHost, Option<&RunningDaemon>) -> BenchResult<T>,
    ) -> BenchResult<T> {
        host.release_lease_under_settings(&self.kernel_settings(), |host| {
            let daemon = self.config.map(RunningDaemon::start).transpose()?;
            work(host, daemon.as_ref())
        })
    }

    fn kernel_settings(&self) -> Vec<(PathBuf, String)> {
        let folder = Path::new(THP_DIR);
        let mut settings = vec![
            (enabled_file(), self.enabled.to_owned()),
            (folder.join("khugepaged/max_ptes_none"), self.max_ptes_none.to_string()),
        ];
        let shrinker = folder.join(SHRINK_UNDERUSED);
        if shrinker.exists() {
            settings.push((shrinker, u8::from(self.kernel_splits).to_string()));
        }
        let pace = KhugepagedPace::Paced(KHUGEPAGED_REGIONS_PER_S).thp_settings();
        settings.extend(pace.map(|(file, value)| (folder.join(file), value)));
        settings
    }
}

/// What every experiment on guard says about its arms.
pub(super) fn khugepaged_pace_note() -> String {
    format!(
        "In every arm khugepaged looks at {KHUGEPAGED_REGIONS_PER_S:.0} regions per second, fifty times as many as by default: a minute stands for 50. Only the daemon stops it, which is its default. Guard is the daemon with the profile guard and no other key unless its name says so."
    )
}
