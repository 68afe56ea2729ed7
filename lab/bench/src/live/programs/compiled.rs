//! Programs in C++ that are compiled here.

use super::packages;
use super::scratch::Scratch;
use crate::error::BenchError;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The header that says whether sparsehash is there.
const SPARSEHASH: &str = "/usr/include/sparsehash/dense_hash_map";

/// A compiled program; deleted when dropped, which does not hurt one that runs.
pub(in crate::live) struct Compiled {
    folder: Scratch,
}

impl Compiled {
    /// Compiles one that uses sparsehash.
    pub(in crate::live) fn with_sparsehash(source: &str) -> Result<Self, BenchError> {
        packages::need("g++", "g++")?;
        packages::need_file(Path::new(SPARSEHASH), "libsparsehash-dev")?;
        let folder = Scratch::new("compiled")?;
        let source = folder.write("program.cc", source)?;
        let program = Self { folder };
        let mut compiler = Command::new("g++");
        compiler
            .args(["-O2", "-pthread", "-o"])
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

    /// Where it is.
    pub(in crate::live) fn path(&self) -> PathBuf {
        self.folder.path().join("program")
    }
}

/// Whether what it takes is installed.
#[cfg(test)]
pub(super) fn has_sparsehash() -> bool {
    packages::is_there("g++") && Path::new(SPARSEHASH).exists()
}
