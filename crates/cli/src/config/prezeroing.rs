//! The section `prezeroing`.

use super::Switch;
use super::section::Section;
use hawkeye_policy::prezeroing::ZeroingBounds;

/// What becomes of the kernel's own zeroing of free memory, on kernels that can do that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrezeroingSettings {
    /// Its rate is set by memory and idle time; off: it is left as it is.
    pub paced: Switch,
    /// Between which rates.
    pub bounds: ZeroingBounds,
    /// It zeroes only when a processor has nothing else to run; off: as it was found.
    pub idle_only: Switch,
}

impl Default for PrezeroingSettings {
    fn default() -> Self {
        Self {
            paced: Switch::On,
            bounds: ZeroingBounds::default(),
            idle_only: Switch::On,
        }
    }
}

/// Reads it.
pub(super) fn read(s: &mut Section<'_, '_>) -> PrezeroingSettings {
    let usual = PrezeroingSettings::default();
    let pages = s.or("pages_per_s", usual.bounds.usual());
    let most = s.or("most_pages_per_s", usual.bounds.most().max(pages));
    let bounds = ZeroingBounds::new(pages, most);
    let keys = [
        (ZeroingBounds::USUAL, "pages_per_s"),
        (ZeroingBounds::MOST, "most_pages_per_s"),
    ];
    PrezeroingSettings {
        paced: s.or("mode", usual.paced),
        bounds: s.checked(bounds, &keys).unwrap_or_default(),
        idle_only: s.or("idle_only", usual.idle_only),
    }
}
