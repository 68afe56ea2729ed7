//! The data caches of the first core, as reported by the kernel.

use std::fs;

/// One level of data cache, as reported by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataCacheLevel {
    pub level: u32,
    pub bytes: u64,
    pub ways: u32,
}

/// The caches in `/sys/devices/system/cpu/cpu0/cache`; empty if that is missing.
pub(super) fn read_data_cache_levels() -> Vec<DataCacheLevel> {
    let index = |number: u32| {
        let read = |file: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{number}/{file}");
            fs::read_to_string(path).ok()
        };
        let data = read("type").filter(|kind| kind.trim() != "Instruction");
        data?;
        let size = read("size")?;
        let kib: u64 = size.trim().trim_end_matches('K').parse().ok()?;
        Some(DataCacheLevel {
            level: read("level")?.trim().parse().ok()?,
            bytes: kib << 10,
            ways: read("ways_of_associativity")?.trim().parse().ok()?,
        })
    };
    (0..8).filter_map(index).collect()
}
