//! What a program accesses.

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

    /// Where. Addresses have 57 bits; one with more is mapped nowhere.
    #[inline]
    pub const fn address(self) -> u64 {
        self.0 & !STORE
    }

    /// Whether it is a store.
    #[inline]
    pub const fn is_store(self) -> bool {
        self.0 & STORE != 0
    }

    /// Both in one number.
    #[inline]
    pub(super) const fn key(self) -> u64 {
        self.0
    }
}

/// Accesses at equal distances, one after the other: what a loop over an array does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// The first one.
    pub address: u64,
    /// From one to the next, in bytes.
    pub stride: u64,
    /// How many.
    pub count: u64,
    /// Whether they are stores.
    pub store: bool,
}

impl Sweep {
    /// The access of this number, the first being 0.
    pub const fn access(&self, number: u64) -> Access {
        let address = self.address.wrapping_add(self.stride.wrapping_mul(number));
        if self.store {
            Access::store(address)
        } else {
            Access::load(address)
        }
    }

    /// How many of them, from one at `address` on, lie before `end`; `address` itself does.
    #[inline]
    pub(super) fn before(&self, address: u64, end: u64) -> u64 {
        let room = end - address - 1;
        match self.stride {
            stride if stride > room => 1,
            0 => u64::MAX,
            stride if stride.is_power_of_two() => (room >> stride.trailing_zeros()) + 1,
            stride => room / stride + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_is_an_address_and_a_kind() {
        let (load, store) = (Access::load(4096), Access::store(4096));
        assert_eq!((load.address(), load.is_store()), (4096, false));
        assert_eq!((store.address(), store.is_store()), (4096, true));
    }

    #[test]
    fn accesses_before_the_end_of_a_page_are_counted() {
        let before = |stride, address| {
            let sweep = Sweep {
                address: 0,
                stride,
                count: 100,
                store: false,
            };
            sweep.before(address, 4096)
        };
        assert_eq!(
            (before(64, 0), before(64, 4095), before(64, 64)),
            (64, 1, 63)
        );
        assert_eq!(
            (before(100, 0), before(100, 3996), before(100, 3995)),
            (41, 1, 2)
        );
        assert_eq!((before(4096, 0), before(0, 0)), (1, u64::MAX));
    }
}
