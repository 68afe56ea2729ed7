//! Traces in files.

use super::error::{Result, TraceError, TracePosition};
use super::trace_format::TraceFormat;
use super::trace_line_reader::trace_read_error;
use super::trace_reader::{BadRecordHandling, TraceReader};
use lzma_rust2::XzReader;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

/// Size of the beginning of a trace that format detection reads.
const BEGIN_BYTES: u64 = 1 << 16;

/// Memory limit of decompression: four times the dictionary of `xz -9`.
const MOST_XZ_KIB: u32 = 256 << 10;
const XZ: &[u8] = b"\xfd7zXZ\0";
/// Known formats that are not read: their first bytes, their name, and what to do instead.
const OTHERS: [(&[u8], &str, &str); 4] = [
    (
        b"PAR1",
        "a Parquet file, perhaps one of our recordings",
        "that holds coverage and no accesses: replay it with hawkeye-lab sim run --recording",
    ),
    (
        b"PK\x03\x04",
        "a zip archive, perhaps drmemtrace's own",
        "have its text printed by drrun -t drmemtrace -indir DIRECTORY -tool view",
    ),
    (b"\x1f\x8b", "compressed by gzip", "unpack it with gzip -d"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "unpack it with zstd -d"),
];

impl TraceReader<Box<dyn BufRead>> {
    /// Opens a file of any known format, compressed by xz or not.
    ///
    /// # Errors
    /// The file can't be opened or read, or its format is not supported: see [`TraceError`].
    pub fn open(path: &Path, bad: BadRecordHandling) -> Result<Self> {
        let file = File::open(path)
            .map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
        let name = path.file_name().unwrap_or(path.as_os_str());
        Self::detect(&name.to_string_lossy(), BufReader::new(file), bad)
    }

    /// Like [`open`](Self::open), for any input with this name.
    ///
    /// # Errors
    /// The same as [`open`](Self::open).
    pub fn detect(
        name: &str,
        input: impl BufRead + 'static,
        bad: BadRecordHandling,
    ) -> Result<Self> {
        let (begin, input) = read_beginning(input)?;
        if !begin.starts_with(XZ) {
            return open_detected_format(name, &begin, input, bad);
        }
        let (begin, input) = read_beginning(XzReader::new_mem_limit(input, true, MOST_XZ_KIB))?;
        open_detected_format(name, &begin, input, bad)
    }
}

fn open_detected_format(
    name: &str,
    begin: &[u8],
    input: impl BufRead + 'static,
    bad: BadRecordHandling,
) -> Result<TraceReader<Box<dyn BufRead>>, TraceError> {
    if let Some((_, what, instead)) = OTHERS.iter().find(|(magic, ..)| begin.starts_with(magic)) {
        return Err(TraceError::Unsupported { name: name.to_owned(), what, instead });
    }
    match TraceFormat::detect(name, begin) {
        Some(format) => Ok(TraceReader::new(format, Box::new(input), bad)),
        None => Err(TraceError::Unknown(name.to_owned())),
    }
}

fn read_beginning<R: Read>(mut input: R) -> Result<(Vec<u8>, impl BufRead + use<R>)> {
    let mut begin = Vec::new();
    let read = input.by_ref().take(BEGIN_BYTES).read_to_end(&mut begin);
    let error = match read {
        Err(error) if begin.is_empty() => {
            return Err(trace_read_error(TracePosition::Byte(0), error));
        }
        read => read.err(),
    };
    let rest = BufReader::new(RestOfInput { error, input });
    Ok((begin.clone(), Cursor::new(begin).chain(rest)))
}

/// Input after its beginning. An error from reading the beginning is returned first.
struct RestOfInput<R> {
    error: Option<io::Error>,
    input: R,
}

impl<R: Read> Read for RestOfInput<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.error.take() {
            Some(error) => Err(error),
            None => self.input.read(into),
        }
    }
}
