//! One access of a program.

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
    pub(super) const fn to_bits(self) -> u64 {
        self.0
    }
}
