//! One access of a program, and the result of a batch.

use super::mappings::Mappings;
use super::sizes::{LeafSize, RegionTranslation};

/// An access to one byte's page: a load or a store. Accesses over a page boundary are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u64);

/// Above every address of 57 bits.
pub(super) const STORE: u64 = 1 << 63;

impl Access {
    /// A load from `address`.
    #[inline]
    pub const fn load(address: u64) -> Self {
        Self(address & !STORE)
    }

    /// A store to `address`.
    #[inline]
    pub const fn store(address: u64) -> Self {
        Self(address | STORE)
    }

    /// The address. Addresses have 57 bits; a larger one is mapped nowhere.
    #[inline]
    pub const fn address(self) -> u64 {
        self.0 & !STORE
    }

    /// Whether it is a store.
    #[inline]
    pub const fn is_store(self) -> bool {
        self.0 & STORE != 0
    }

    /// Address and kind in one number.
    #[inline]
    pub(super) const fn key(self) -> u64 {
        self.0
    }
}

/// Why an access could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessFault {
    /// No page is mapped there.
    Unmapped(Access),
    /// A store to a page that can only be loaded from.
    Protected(Access),
}

/// Result of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchResult {
    /// Number of accesses made, from the first on. If there is a fault, the next one caused it.
    pub accesses: usize,
    /// The fault that stopped the batch. Continue with the same access once it is resolved.
    pub fault: Option<AccessFault>,
}

/// Whether a page is writable, in a region with some that are not; or why the access faults.
#[cold]
pub(super) fn check_access(
    mappings: &Mappings,
    page: u32,
    state: RegionTranslation,
    access: Access,
) -> Result<bool, AccessFault> {
    let (present, writable) = match state.size() {
        None => (false, false),
        Some(LeafSize::Base) => mappings.page(page),
        Some(_) => (true, false),
    };
    if !present {
        return Err(AccessFault::Unmapped(access));
    }
    if access.is_store() && !writable {
        return Err(AccessFault::Protected(access));
    }
    Ok(writable)
}
