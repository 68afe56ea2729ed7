//! Which format a trace has.

use super::fields::{Line, Parse};
use super::{champsim, drmemtrace, lackey, perf_script};

/// Formats that can be read. Compression by xz is found by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Valgrind's lackey.
    Lackey,
    /// ChampSim.
    ChampSim,
    /// The text of drmemtrace's view tool.
    Drmemtrace,
    /// The text of `perf script`.
    PerfScript,
}

/// Formats of text, with how a line of each is understood.
const TEXTS: [(Format, Parse); 3] = [
    (Format::Lackey, lackey::parse),
    (Format::Drmemtrace, drmemtrace::parse),
    (Format::PerfScript, perf_script::parse),
];

impl Format {
    /// The format of a trace that begins so and is called so; `None` if it is no such trace.
    ///
    /// Text is told by its first line that is an access of one format. What is no text is ChampSim's if
    /// all whole records in `begin` can be, and the name says so or there are at least two.
    pub fn detect(name: &str, begin: &[u8]) -> Option<Self> {
        let text = match std::str::from_utf8(begin) {
            Ok(text) => text,
            // The last character may be cut.
            Err(error) if error.error_len().is_none() => {
                std::str::from_utf8(&begin[..error.valid_up_to()]).unwrap_or_default()
            }
            Err(_) => "",
        };
        if !text.is_empty() && !text.contains('\0') {
            return Self::of_text(text);
        }
        let records = begin.chunks_exact(champsim::RECORD_BYTES);
        let enough = if name.to_lowercase().contains("champsim") {
            1
        } else {
            2
        };
        let possible = records.len() >= enough && records.clone().all(champsim::is_record);
        possible.then_some(Self::ChampSim)
    }

    fn of_text(text: &str) -> Option<Self> {
        text.lines().find_map(|line| {
            let is_access = |parse: &Parse| matches!(parse(line), Line::Access(_));
            if line.starts_with("<--record#->") {
                return Some(Self::Drmemtrace);
            }
            let found = TEXTS.iter().find(|(_, parse)| is_access(parse));
            found.map(|(format, _)| *format)
        })
    }
}
