//! How a program accesses its memory, as data.

use super::error::MmuError;
use serde::Serialize;

/// An access pattern. Shares and counts of instructions are checked when a run starts.
///
/// `instructions` are those from one access to the next, the access included (at least 1).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Independent reads of words, all equally likely.
    Random {
        /// For each read.
        instructions: u32,
    },
    /// Independent reads of words on pages whose popularity falls with their rank, as
    /// `1 / rank^theta`. Popular pages are no neighbours.
    Zipf {
        /// How uneven popularity is (at least 0, which makes all pages alike; 0.99 is YCSB's).
        theta: f64,
        /// For each read.
        instructions: u32,
    },
    /// Reads at a constant distance, from the begin of the memory again and again.
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
    /// Independent reads of words, more often of those in the first part of the memory.
    HotSpot {
        /// That part's share of the memory (over 0, at most 1).
        hot_memory: f64,
        /// Share of the reads that go to it and nowhere else (0-1).
        hot_reads: f64,
        /// For each read.
        instructions: u32,
    },
    /// Reads of words in blocks that lie side by side, each used from its begin on, behind a table of 16 bytes for each: an entry
    /// is read, then a word of the block that it leads to. All blocks are equally likely, and all words in use of each.
    Blocks {
        /// From the begin of one to that of the next (at least 8, at most the memory).
        block_bytes: u64,
        /// What is used of each (at least 8, at most all of it).
        used_bytes: u64,
        /// For each of both reads together (at least 4).
        instructions: u32,
    },
    /// Requests to a key-value store like Redis: a bucket of the hash table, the entry found there,
    /// the value that it leads to and all of its lines in order, for keys that are all equally likely.
    KeyValue {
        /// Length of a value (1 to 1 MiB).
        value_bytes: u32,
        /// For each request, beside the reads: reading it, answering it, everything else.
        instructions: u32,
    },
    /// Look-ups in a hash map of boxed keys and values, as a JVM's: bucket, node, and what the node
    /// leads to.
    HashMap {
        /// For each look-up, beside the reads.
        instructions: u32,
    },
}

impl Pattern {
    /// Random reads, independent of each other.
    pub const RANDOM: Self = Self::Random { instructions: 15 };
    /// YCSB's distribution; drawing from it takes a logarithm and a power.
    pub const ZIPF: Self = Self::Zipf {
        theta: 0.99,
        instructions: 120,
    };
    /// Every word in order, and a little done with each.
    pub const SEQUENTIAL: Self = Self::Stride {
        bytes: 8,
        instructions: 12,
    };
    /// One word of each base page, in order.
    pub const STRIDE_4K: Self = Self::Stride {
        bytes: 4 << 10,
        instructions: 5,
    };
    /// One word of every sixteenth base page.
    pub const STRIDE_64K: Self = Self::Stride {
        bytes: 64 << 10,
        instructions: 5,
    };
    /// A pointer chase.
    pub const CHASE: Self = Self::Chase { instructions: 3 };
    /// Nine of ten reads go to a tenth of the memory.
    pub const HOT_SPOT: Self = Self::HotSpot {
        hot_memory: 0.1,
        hot_reads: 0.9,
        instructions: 15,
    };
    /// Redis with values of 4 KiB and pipelined requests.
    pub const REDIS: Self = Self::KeyValue {
        value_bytes: 4096,
        instructions: 2500,
    };
    /// A hash map of a JVM.
    pub const HASH_MAP: Self = Self::HashMap { instructions: 60 };

    /// All of the above by name.
    pub const ALL: [(&'static str, Self); 9] = [
        ("random", Self::RANDOM),
        ("zipf", Self::ZIPF),
        ("sequential", Self::SEQUENTIAL),
        ("stride 4 KiB", Self::STRIDE_4K),
        ("stride 64 KiB", Self::STRIDE_64K),
        ("chase", Self::CHASE),
        ("hot spot", Self::HOT_SPOT),
        ("redis", Self::REDIS),
        ("hash map", Self::HASH_MAP),
    ];

    pub(crate) fn check(self) -> Result<(), MmuError> {
        let refuse = |parameter, allowed, value: f64| {
            Err(MmuError::Pattern {
                parameter,
                allowed,
                value,
            })
        };
        match self {
            Self::Zipf { theta, .. } if !(theta.is_finite() && theta >= 0.0) => {
                refuse("theta", "at least 0 and finite", theta)
            }
            Self::Stride { bytes: 0, .. } => refuse("the distance", "1 byte or more", 0.0),
            Self::HotSpot { hot_memory, .. } if !(hot_memory > 0.0 && hot_memory <= 1.0) => {
                refuse("hot_memory", "over 0 and at most 1", hot_memory)
            }
            Self::HotSpot { hot_reads, .. } if !(0.0..=1.0).contains(&hot_reads) => {
                refuse("hot_reads", "0 to 1", hot_reads)
            }
            Self::Blocks {
                block_bytes,
                used_bytes,
                ..
            } if used_bytes < 8 || used_bytes > block_bytes => refuse(
                "used_bytes",
                "at least 8 and at most a block",
                used_bytes as f64,
            ),
            Self::Blocks {
                instructions: 0..4, ..
            } => refuse("instructions", "4 or more", f64::from(self.instructions())),
            Self::KeyValue { value_bytes, .. } if !(1..=1 << 20).contains(&value_bytes) => {
                refuse("value_bytes", "1 byte to 1 MiB", f64::from(value_bytes))
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
            | Self::HotSpot { instructions, .. }
            | Self::Blocks { instructions, .. }
            | Self::KeyValue { instructions, .. }
            | Self::HashMap { instructions } => instructions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (name, pattern) in Pattern::ALL {
            assert_eq!(pattern.check(), Ok(()), "{name}");
        }
        let hot = |hot_memory, hot_reads| Pattern::HotSpot {
            hot_memory,
            hot_reads,
            instructions: 1,
        };
        let zipf = |theta| Pattern::Zipf {
            theta,
            instructions: 1,
        };
        let bad = [
            (Pattern::Chase { instructions: 0 }, "instructions"),
            (
                Pattern::Stride {
                    bytes: 0,
                    instructions: 1,
                },
                "the distance",
            ),
            (hot(0.0, 0.5), "hot_memory"),
            (hot(0.5, 1.5), "hot_reads"),
            (hot(f64::NAN, 0.5), "hot_memory"),
            (
                Pattern::Blocks {
                    block_bytes: 4096,
                    used_bytes: 8192,
                    instructions: 1,
                },
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
