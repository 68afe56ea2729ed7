//! Imports that nearly every workload needs.

pub(crate) use crate::console::{Console, Input};
pub(crate) use crate::error::{MemoryError, Result, WorkloadError};
pub(crate) use crate::memory::{
    Mapping, PAGE, PAGE_WORDS, Pages, Protection, REGION, REGION_PAGES,
};
pub(crate) use crate::process::{ready, resident, say_ready, stay, together, told_to_go};
pub(crate) use crate::protocol::{Event, Ready, Request, TortureTotals, WrongWord};
pub(crate) use crate::rng::{Rng, mix};
pub(crate) use std::time::{Duration, Instant};
