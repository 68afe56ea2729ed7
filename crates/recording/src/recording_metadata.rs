//! The description of itself that a recording contains.

use crate::parquet_table_reader::ParquetTableReader;
use parquet::file::reader::ChunkReader;
use std::time::Duration;

/// Origin of a recording: machine, time and policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordingMetadata {
    /// The machine's name.
    pub host: String,
    /// Its kernel's release.
    pub kernel: String,
    /// The policy that was active; `none` promotes nothing.
    pub policy: String,
    /// Start of the recording, as time since 1970; `None` where time was simulated.
    pub began: Option<Duration>,
}

const HOST: &str = "hawkeye.host";
const KERNEL: &str = "hawkeye.kernel";
const POLICY: &str = "hawkeye.policy";
const BEGAN: &str = "hawkeye.began_unix_us";

/// 10000-01-01, in seconds since 1970. Not every library can print years of five digits.
const YEAR_10000_S: u64 = 253_402_300_800;

impl RecordingMetadata {
    /// The description of a recording without its first `time`.
    pub(crate) fn starting_later(self, time: Duration) -> Self {
        let began = self.began.map(|began| began.saturating_add(time));
        Self { began: began.filter(is_before_year_10000), ..self }
    }

    pub(crate) fn to_metadata_pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = vec![
            (HOST, self.host.clone()),
            (KERNEL, self.kernel.clone()),
            (POLICY, self.policy.clone()),
        ];
        pairs.extend(self.began.map(|began| (BEGAN, began.as_micros().to_string())));
        pairs
    }

    pub(crate) fn from_table_metadata<R: ChunkReader + 'static>(
        table: &ParquetTableReader<R>,
    ) -> Self {
        let text = |key| table.metadata_value(key).unwrap_or("").to_owned();
        let began = table.metadata_value(BEGAN).and_then(|text| text.parse().ok());
        Self {
            host: text(HOST),
            kernel: text(KERNEL),
            policy: text(POLICY),
            began: began.map(Duration::from_micros).filter(is_before_year_10000),
        }
    }
}

fn is_before_year_10000(began: &Duration) -> bool {
    began.as_secs() < YEAR_10000_S
}
