//! Inserts into a hash map that doubles its table again and again: sparsehash's `dense_hash_map`.

use super::Needed;
use super::launch::{Launch, Ready};
use crate::live::BenchError;
use crate::live::programs::packages;
use hawkeye_linux::LinuxError;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("inserts.cc");
const HEADER: &str = "/usr/include/sparsehash/dense_hash_map";
/// Bytes of a bucket: a key and a value.
const BUCKET_BYTES: u64 = 16;

/// The compiled program; deleted when dropped.
pub(super) struct Program {
    folder: PathBuf,
}

/// Compiles it.
pub(super) fn build() -> Result<Program, BenchError> {
    packages::need("g++", "g++")?;
    packages::need_file(Path::new(HEADER), "libsparsehash-dev")?;
    let folder = std::env::temp_dir().join(format!("hawkeye-bench-{}-inserts", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(LinuxError::file("creating", &folder))?;
    let program = Program { folder };
    let source = program.folder.join("inserts.cc");
    std::fs::write(&source, SOURCE).map_err(LinuxError::file("writing", &source))?;
    let mut compiler = Command::new("g++");
    compiler
        .args(["-O2", "-o"])
        .arg(program.path())
        .arg(&source);
    let status = compiler.status().map_err(|source| BenchError::Program {
        program: "g++".into(),
        source,
    })?;
    if !status.success() {
        return Err(BenchError::Impossible(format!("g++ ended with {status}")));
    }
    Ok(program)
}

impl Program {
    fn path(&self) -> PathBuf {
        self.folder.join("inserts")
    }

    /// So many inserts that the table is of `gib` GiB in the end.
    pub(super) fn inserts(&self, gib: u64) -> (Needed, Launch) {
        // It doubles when it is half full, and is a quarter full then.
        let inserts = (gib << 30) / BUCKET_BYTES * 17 / 64;
        let program = self.path().to_string_lossy().into_owned();
        let launch = Launch {
            words: vec![program, inserts.to_string()],
            ready: Ready::Ended,
        };
        (None, launch)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
