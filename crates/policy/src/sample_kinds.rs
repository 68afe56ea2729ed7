//! What samples show.

/// The kinds of samples that a policy needs, any number of them. Every sample of a region contains
/// the number of base pages present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleKinds(u8);

impl SampleKinds {
    /// Nothing: the policy never promotes.
    pub const NOTHING: Self = Self(0);
    /// Which base pages are present; no access bits are cleared for it.
    pub const POPULATION: Self = Self(1);
    /// Access coverage: the access bits of the whole process are cleared.
    pub const COVERAGE: Self = Self(1 << 1);
    /// The overhead of each process, and how many page walks each region causes.
    pub const OVERHEAD: Self = Self(1 << 2);

    /// These kinds and those.
    pub const fn union(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    const fn intersects(self, kinds: Self) -> bool {
        self.0 & kinds.0 != 0
    }

    /// Whether access bits are cleared and read for it.
    pub const fn reads_access_bits(self) -> bool {
        self.intersects(Self::COVERAGE.union(Self::OVERHEAD))
    }

    /// Whether the access bits of the whole process are cleared, for its coverage.
    pub const fn includes_coverage(self) -> bool {
        self.intersects(Self::COVERAGE)
    }

    /// Whether the overhead of each process is measured. Page walks by region come with it.
    pub const fn includes_overhead(self) -> bool {
        self.intersects(Self::OVERHEAD)
    }
}
