//! Mistakes in a configuration, and their positions.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum ConfigError {
    // The source follows where the chain of causes is printed.
    #[error("can't read the configuration {path}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Invalid(#[from] ConfigProblems),
}

/// All mistakes in a configuration, a line each, in the order of its lines.
///
/// Each line names the file, line and column (in characters, from 1) and the key with its table. It
/// also names the value found and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", .0.join("\n"))]
pub struct ConfigProblems(pub Vec<String>);

/// Line and column of a byte offset in a text, both from 1.
pub(super) fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

/// The line of a text that contains a byte offset, as far as it can be printed.
pub(super) fn line_text_at(text: &str, at: usize) -> String {
    const LONGEST: usize = 60;
    let (line, _) = line_and_column(text, at);
    text.lines().nth(line - 1).unwrap_or_default().trim().chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters() {
        let text = "ä = 1\nbc = 2\n";
        assert_eq!(line_and_column(text, 0), (1, 1));
        assert_eq!(line_and_column(text, 3), (1, 3));
        assert_eq!(line_and_column(text, 7), (2, 1));
        assert_eq!(line_and_column(text, 12), (2, 6));
        assert_eq!(line_and_column(text, 999), (3, 1));
    }
}
