//! Sizes of memory as people write them.

use serde::{Deserialize, Deserializer, de};
use std::str::FromStr;

/// A size in bytes, written like `4GiB`, `512 MiB` or as a plain number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u32); 4] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a size: write it as 512MiB or 4GiB");
        let unit = UNITS.iter().find(|(unit, _)| text.ends_with(unit));
        let (number, shift) =
            unit.map_or((text, 0), |(unit, shift)| (text.trim_end_matches(unit), *shift));
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        let bytes = number * (1u64 << shift) as f64;
        // 2^53: the largest integer up to which a float is exact.
        if bytes >= 1.0 && bytes <= (1u64 << 53) as f64 {
            Ok(Self(bytes as u64))
        } else {
            Err(wrong())
        }
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum SizeText {
            Bytes(u64),
            Text(String),
        }
        match SizeText::deserialize(deserializer)? {
            SizeText::Bytes(bytes) => Ok(Self(bytes)),
            SizeText::Text(text) => text.parse().map_err(de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_written() {
        assert_eq!("4GiB".parse(), Ok(ByteSize(4 << 30)));
        assert_eq!("1.5 MiB".parse(), Ok(ByteSize(3 << 19)));
        assert_eq!("4096".parse(), Ok(ByteSize(4096)));
        for wrong in ["", "GiB", "4GB", "-1KiB", "0", "nan", "9e99TiB"] {
            assert!(wrong.parse::<ByteSize>().is_err(), "{wrong}");
        }
    }
}
