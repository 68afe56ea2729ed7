//! What a recording says of itself.

use crate::reader::TableReader;
use parquet::file::metadata::KeyValue;
use parquet::file::reader::ChunkReader;
use std::time::Duration;

/// Where and when a recording was made, and by what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The machine's name.
    pub host: String,
    /// Its kernel's release.
    pub kernel: String,
    /// The policy that managed meanwhile; `none` where nothing was changed.
    pub policy: String,
    /// When recording began, since 1970; `None` where time was simulated.
    pub began: Option<Duration>,
}

const HOST: &str = "hawkeye.host";
const KERNEL: &str = "hawkeye.kernel";
const POLICY: &str = "hawkeye.policy";
const BEGAN: &str = "hawkeye.began_unix_us";

/// The first time that is no year of four digits, 10000-01-01, in seconds since 1970: not every library can tell it.
const YEAR_10000_S: u64 = 253_402_300_800;

impl About {
    /// Of a recording of which so much was left out at its start.
    pub(crate) fn later_by(self, time: Duration) -> Self {
        let began = self.began.map(|began| began.saturating_add(time));
        Self {
            began: began.filter(can_be),
            ..self
        }
    }

    pub(crate) fn pairs(&self) -> Vec<KeyValue> {
        let began = self.began.map(|began| began.as_micros().to_string());
        let pairs = [
            (HOST, Some(self.host.clone())),
            (KERNEL, Some(self.kernel.clone())),
            (POLICY, Some(self.policy.clone())),
            (BEGAN, began),
        ];
        let said = pairs.into_iter().filter(|(_, value)| value.is_some());
        said.map(|(key, value)| KeyValue::new(key.to_owned(), value))
            .collect()
    }

    pub(crate) fn of<R: ChunkReader + 'static>(table: &TableReader<R>) -> Self {
        let text = |key| table.said(key).unwrap_or("").to_owned();
        let began = table.said(BEGAN).and_then(|text| text.parse().ok());
        Self {
            host: text(HOST),
            kernel: text(KERNEL),
            policy: text(POLICY),
            began: began.map(Duration::from_micros).filter(can_be),
        }
    }
}

fn can_be(began: &Duration) -> bool {
    began.as_secs() < YEAR_10000_S
}
