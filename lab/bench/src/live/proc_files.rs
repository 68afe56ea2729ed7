//! Files of a process in `/proc`.

use crate::error::BenchResult;
use hawkeye_linux::LinuxError;
use hawkeye_linux::name_value_lines::find_value_by_name;

pub(super) fn read_process_file(pid: u32, file: &str) -> BenchResult<String> {
    let path = format!("/proc/{pid}/{file}");
    Ok(std::fs::read_to_string(&path).map_err(LinuxError::wrap_io_error("reading", &path))?)
}

/// The bytes of a line of kB.
pub(super) fn find_bytes_by_name(text: &str, name: &str) -> Option<u64> {
    let kib = find_value_by_name(text, name)?.strip_suffix("kB")?;
    kib.trim().parse::<u64>().ok().map(|kib| kib << 10)
}
