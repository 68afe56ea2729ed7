//! How a program accesses its memory, as data.

use super::error::MmuError;
use serde::Serialize;

/// An access pattern. Shares and counts of instructions are checked when a run starts.
///
/// `instructions` counts from one access to the next, that access included (at least 1).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessPattern {
    /// Independent reads of random words, all equally likely.
    Random {
        /// For each read.
        instructions: u32,
    },
    /// Independent reads of words. The popularity of pages falls with their rank, as `1 /
    /// rank^theta`; popular pages are not neighbours.
    Zipf {
        /// Skew (at least 0, where all pages are equally popular; YCSB uses 0.99).
        theta: f64,
        /// For each read.
        instructions: u32,
    },
    /// Reads at a constant distance, from the start of the memory again and again.
    Stride {
        /// The distance (at least 1).
        bytes: u64,
        /// For each read.
        instructions: u32,
    },
    /// Reads of all cache lines in one random order, each line holding the address of the next.
    Chase {
        /// For each read.
        instructions: u32,
    },
    /// Reads of words in neighbouring blocks, each used from its start on, with a table of 16 bytes
    /// per block before them. A request reads an entry, then a word of its block. All blocks are
    /// equally likely, and so are all used words of each.
    Blocks {
        /// Distance between block starts (at least 8, at most the memory).
        block_bytes: u64,
        /// Used bytes of each block (at least 8, at most all of it).
        used_bytes: u64,
        /// For both reads together (at least 4).
        instructions: u32,
    },
}

impl AccessPattern {
    /// Random reads, independent of each other.
    pub const RANDOM: Self = Self::Random { instructions: 15 };
    /// YCSB's distribution; drawing from it takes a logarithm and a power.
    pub const ZIPF: Self = Self::Zipf { theta: 0.99, instructions: 120 };
    /// Every word in order, with little work for each.
    pub const SEQUENTIAL: Self = Self::Stride { bytes: 8, instructions: 12 };
    /// One word of each base page, in order.
    pub const STRIDE_4K: Self = Self::Stride { bytes: 4 << 10, instructions: 5 };
    /// One word of every sixteenth base page.
    pub const STRIDE_64K: Self = Self::Stride { bytes: 64 << 10, instructions: 5 };
    /// A pointer chase.
    pub const CHASE: Self = Self::Chase { instructions: 3 };

    /// All patterns above by name.
    pub const ALL: [(&'static str, Self); 6] = [
        ("random", Self::RANDOM),
        ("zipf", Self::ZIPF),
        ("sequential", Self::SEQUENTIAL),
        ("stride 4 KiB", Self::STRIDE_4K),
        ("stride 64 KiB", Self::STRIDE_64K),
        ("chase", Self::CHASE),
    ];

    pub(crate) fn check(self) -> Result<(), MmuError> {
        let refuse =
            |parameter, allowed, value: f64| Err(MmuError::Pattern { parameter, allowed, value });
        match self {
            Self::Zipf { theta, .. } if !(theta.is_finite() && theta >= 0.0) => {
                refuse("theta", "at least 0 and finite", theta)
            }
            Self::Stride { bytes: 0, .. } => refuse("the distance", "1 byte or more", 0.0),
            Self::Blocks { block_bytes, used_bytes, .. }
                if used_bytes < 8 || used_bytes > block_bytes =>
            {
                refuse("used_bytes", "at least 8 and at most a block", used_bytes as f64)
            }
            Self::Blocks { instructions: 0..4, .. } => {
                refuse("instructions", "4 or more", f64::from(self.instructions()))
            }
            _ if self.instructions() == 0 => refuse("instructions", "1 or more", 0.0),
            _ => Ok(()),
        }
    }

    fn instructions(self) -> u32 {
        match self {
            Self::Random { instructions }
            | Self::Zipf { instructions, .. }
            | Self::Stride { instructions, .. }
            | Self::Chase { instructions }
            | Self::Blocks { instructions, .. } => instructions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (name, pattern) in AccessPattern::ALL {
            assert_eq!(pattern.check(), Ok(()), "{name}");
        }
        let zipf = |theta| AccessPattern::Zipf { theta, instructions: 1 };
        let bad = [
            (AccessPattern::Chase { instructions: 0 }, "instructions"),
            (AccessPattern::Stride { bytes: 0, instructions: 1 }, "the distance"),
            (
                AccessPattern::Blocks { block_bytes: 4096, used_bytes: 8192, instructions: 1 },
                "used_bytes",
            ),
            (zipf(-1.0), "theta"),
            (zipf(f64::INFINITY), "theta"),
        ];
        for (pattern, refused) in bad {
            match pattern.check() {
                Err(MmuError::Pattern { parameter, .. }) => assert_eq!(parameter, refused),
                other => panic!("{pattern:?}: {other:?}"),
            }
        }
    }
}
