//! What is wrong with a configuration, and where.

use std::fmt;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// A configuration that can't be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("reading {path}: {source}", path = path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something in it is wrong.
    #[error(transparent)]
    Invalid(#[from] Problems),
}

/// Everything that is wrong with a configuration, in the order of its lines.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct Problems {
    /// The file, as it was named.
    pub file: String,
    /// At least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let line_end = if index == 0 { "" } else { "\n" };
            write!(f, "{line_end}{}:{problem}", self.file)?;
        }
        Ok(())
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The key it is about, with its table: `memory.high_percent`. Empty where the text is no TOML.
    pub key: String,
    /// What was found and what would be right, to follow the key.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            line,
            column,
            key,
            message,
        } = self;
        let space = if key.is_empty() { "" } else { " " };
        write!(f, "{line}:{column}: {key}{space}{message}")
    }
}

/// Line and column of a byte in a text, both from 1.
pub(super) fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

/// The line of a text that a byte is in, as far as it can be shown.
pub(super) fn line_of(text: &str, at: usize) -> String {
    const LONGEST: usize = 60;
    let (line, _) = position(text, at);
    let line = text.lines().nth(line - 1).unwrap_or_default().trim();
    line.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters() {
        let text = "ä = 1\nbc = 2\n";
        assert_eq!(position(text, 0), (1, 1));
        assert_eq!(position(text, 3), (1, 3));
        assert_eq!(position(text, 7), (2, 1));
        assert_eq!(position(text, 12), (2, 6));
        assert_eq!(position(text, 999), (3, 1));
    }
}
