//! Detection of a trace's format.

use super::parsed_line::{LineParser, ParsedLine};
use super::{champsim, drmemtrace, lackey, perf_script};

/// Formats that can be read. Compression by xz is detected automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// Valgrind's lackey.
    Lackey,
    /// ChampSim.
    ChampSim,
    /// The text of drmemtrace's view tool.
    Drmemtrace,
    /// The text of `perf script`.
    PerfScript,
}

/// Text formats, each with its line parser and with what a valid line contains.
pub(super) const TEXTS: [(TraceFormat, LineParser, &str); 3] = [
    (TraceFormat::Lackey, lackey::parse_line, lackey::EXPECTED),
    (TraceFormat::Drmemtrace, drmemtrace::parse_line, drmemtrace::EXPECTED),
    (TraceFormat::PerfScript, perf_script::parse_line, perf_script::EXPECTED),
];

impl TraceFormat {
    /// The format of a trace with this name and this beginning; `None` if it is no known trace.
    ///
    /// Text has the format that parses its first access. Else it is ChampSim's if every whole
    /// record in `begin` is valid, and the name says so or there are at least two records.
    pub fn detect(name: &str, begin: &[u8]) -> Option<Self> {
        let text = match std::str::from_utf8(begin) {
            Ok(text) => text,
            // The last character may be cut off.
            Err(error) if error.error_len().is_none() => {
                std::str::from_utf8(&begin[..error.valid_up_to()]).unwrap_or_default()
            }
            Err(_) => "",
        };
        if !text.is_empty() && !text.contains('\0') {
            return Self::detect_text_format(text);
        }
        let records = begin.chunks_exact(champsim::RECORD_BYTES);
        let enough = if name.to_lowercase().contains("champsim") { 1 } else { 2 };
        let possible = records.len() >= enough && records.clone().all(champsim::is_valid_record);
        possible.then_some(Self::ChampSim)
    }

    fn detect_text_format(text: &str) -> Option<Self> {
        text.lines().find_map(|line| {
            let is_access = |parse: &LineParser| matches!(parse(line), ParsedLine::Access(_));
            if line.starts_with("<--record#->") {
                return Some(Self::Drmemtrace);
            }
            let found = TEXTS.iter().find(|(_, parse, _)| is_access(parse));
            found.map(|(format, ..)| *format)
        })
    }
}
