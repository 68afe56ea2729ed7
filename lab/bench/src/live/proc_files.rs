//! Files in `/proc`.

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

/// A counter of `/proc/vmstat`; `None`: this kernel does not have it.
pub(super) fn read_vmstat_counter(name: &str) -> BenchResult<Option<u64>> {
    const FILE: &str = "/proc/vmstat";
    let text = std::fs::read_to_string(FILE).map_err(LinuxError::wrap_io_error("reading", FILE))?;
    Ok(find_vmstat_counter(&text, name))
}

fn find_vmstat_counter(vmstat: &str, name: &str) -> Option<u64> {
    let counters = vmstat.lines().filter_map(|line| line.split_once(' '));
    let mut values = counters.filter(|(found, _)| *found == name);
    values.next().and_then(|(_, value)| value.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let vmstat = "compact_fail 7\ncompact_stall 12\ncompact_stall_long 3\n";
        assert_eq!(find_vmstat_counter(vmstat, "compact_stall"), Some(12));
        assert_eq!(find_vmstat_counter(vmstat, "stall"), None);
    }
}
