//! A separate walker to compare with, where its source is at hand: `coverage.c` and `walk.bpf.c` in
//! the folder that `HAWKEYE_PROBES` names. Built with gcc, clang and bpftool into a temporary folder.

use crate::error::BenchError;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Whether there is one.
pub fn available() -> bool {
    program().is_some()
}

/// Walks the process with it, three times; microseconds per region of each. Empty where there is none.
pub fn us_per_region(pid: u32) -> Result<Vec<f64>, BenchError> {
    let Some(program) = program() else {
        return Ok(Vec::new());
    };
    let output = Command::new(program)
        .args([&pid.to_string(), "0.01"])
        .output()
        .map_err(|source| BenchError::Program {
            program: program.display().to_string(),
            source,
        })?;
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(figure)
        .collect())
}

/// `... walk 1.345 ms (1.30 us/region)`
fn figure(line: &str) -> Option<f64> {
    line.split_once("us/region")?
        .0
        .rsplit('(')
        .next()?
        .trim()
        .parse()
        .ok()
}

fn program() -> Option<&'static PathBuf> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM.get_or_init(build).as_ref()
}

fn build() -> Option<PathBuf> {
    let source = PathBuf::from(std::env::var_os("HAWKEYE_PROBES")?)
        .canonicalize()
        .ok()?;
    let folder = std::env::temp_dir().join(format!("hawkeye-probe-{}", std::process::id()));
    std::fs::create_dir_all(&folder).ok()?;
    let script = "set -e; cp \"$1\"/coverage.c \"$1\"/walk.bpf.c .; \
        bpftool btf dump file /sys/kernel/btf/vmlinux format c >vmlinux.h; \
        clang -O2 -g -target bpf -D__TARGET_ARCH_x86 -c walk.bpf.c -o walk.bpf.o; \
        bpftool gen skeleton walk.bpf.o name walk_bpf >walk.skel.h; \
        gcc -O2 -w -o coverage coverage.c -lbpf -lelf -lz";
    let built = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(source)
        .current_dir(&folder)
        .output();
    let program = folder.join("coverage");
    (built.is_ok_and(|output| output.status.success()) && Path::exists(&program)).then_some(program)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_figure_is_found_in_the_line() {
        let line = "expo 57.40 ms touched 80802 |clear 13.055 ms; walk 1.345 ms (1.30 us/region)";
        assert_eq!(super::figure(line), Some(1.30));
        assert_eq!(super::figure("direct_map ffff888000000000"), None);
    }
}
