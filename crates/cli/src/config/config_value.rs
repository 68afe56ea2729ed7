//! Values of the configuration: how each kind is written.

use bytesize::ByteSize;
use hawkeye_linux::machine_lease::thp_settings::KhugepagedMode;
use hawkeye_linux::page_sizes::ThpMode;
use hawkeye_policy::prefault::PrefaultThreadCount;
use hawkeye_policy::{
    BloatThreshold, CoverageAveraging, CpuBudget, GlobPattern, QosClass, RatePerSecond,
    SavingsShare, SettingsProfile, UnmatchedAction, WorkloadProfile,
};
use std::path::PathBuf;
use std::time::Duration;
use toml::de::DeValue;

pub(super) trait ConfigValue: Sized {
    /// Reads a value. The error says what is allowed, worded to follow "must be".
    fn from_toml(value: &DeValue<'_>) -> Result<Self, String>;
}

fn read_unsigned_integer(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// Whole numbers of the sizes that settings use.
macro_rules! whole_numbers {
    ($($kind:ty),*) => {$(
        impl ConfigValue for $kind {
            fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
                let number = read_unsigned_integer(value).and_then(|number| Self::try_from(number).ok());
                number.ok_or_else(|| format!("a whole number from 0 to {}", Self::MAX))
            }
        }
    )*};
}

whole_numbers!(u16, u32, u64, usize);

impl ConfigValue for f64 {
    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        let number = match value {
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::Integer(_) => read_unsigned_integer(value).map(|number| number as Self),
            _ => None,
        };
        let number = number.filter(|number: &Self| number.is_finite());
        number.ok_or_else(|| "a number, such as 2 or 0.5".to_owned())
    }
}

/// Settings of a single number, of types that check their own range.
macro_rules! checked_numbers {
    ($($kind:ty: $number:ty => $make:path),* $(,)?) => {$(
        impl ConfigValue for $kind {
            fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
                $make(<$number>::from_toml(value)?).map_err(|error| error.allowed.to_owned())
            }
        }
    )*};
}

checked_numbers!(
    BloatThreshold: u16 => BloatThreshold::new,
    CoverageAveraging: f64 => CoverageAveraging::new,
    CpuBudget: f64 => CpuBudget::new,
    SavingsShare: f64 => SavingsShare::new,
    PrefaultThreadCount: u64 => PrefaultThreadCount::new,
    RatePerSecond: f64 => RatePerSecond::new,
);

/// Values in quotation marks, of which some are not allowed.
macro_rules! text_values {
    ($($kind:ty: $allowed:literal => $parse:expr;)*) => {$(
        impl ConfigValue for $kind {
            fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
                let parse: fn(&str) -> Option<Self> = $parse;
                value.as_str().and_then(parse).ok_or_else(|| $allowed.to_owned())
            }
        }
    )*};
}

text_values!(
    String: "a non-empty string in quotation marks" =>
        |text| (!text.is_empty()).then(|| text.to_owned());
    Duration: r#"a time with its unit, such as "500 ms", "30 s" or "5 min""# =>
        |text| humantime::parse_duration(text).ok();
    MemorySize: r#"a size with its unit, such as "64 MiB" or "4 GiB""# => |text| {
        let has_unit = text.contains(char::is_alphabetic);
        let size = text.parse::<ByteSize>().ok().filter(|_| has_unit);
        size.map(|size| Self(size.as_u64()))
    };
    PathBuf: r#"an absolute path, such as "/run/hawkeye/hawkeye.sock""# =>
        |text| Some(Self::from(text)).filter(|path| path.is_absolute());
);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemorySize(pub(super) u64);

impl ConfigValue for GlobPattern {
    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        let allowed = "a pattern, such as \"redis-*\"";
        let pattern = value.as_str().ok_or(allowed)?.parse::<Self>();
        pattern.map_err(|error| format!("{allowed} ({error})"))
    }
}

pub trait KeywordValue: Copy + 'static {
    const WORDS: &'static [(&'static str, Self)];
}

impl<T: KeywordValue> ConfigValue for T {
    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        let found = value.as_str();
        let word = Self::WORDS.iter().find(|(word, _)| found == Some(word));
        word.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let words = Self::WORDS.iter().map(|(word, _)| format!("{word:?}"));
            format!("one of {}", words.collect::<Vec<_>>().join(", "))
        })
    }
}

macro_rules! keyword_values {
    ($($kind:ty: $($word:literal => $value:expr),*;)*) => {$(
        impl KeywordValue for $kind {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, $value)),*];
        }
    )*};
}

impl KeywordValue for WorkloadProfile {
    const WORDS: &'static [(&'static str, Self)] = Self::NAMES;
}

keyword_values!(
    bool: "off" => false, "on" => true;
    KhugepagedMode: "off" => Self::Off, "restrain" => Self::Restrain, "leave" => Self::Leave;
    SettingsProfile: "guard" => Self::Guard, "balanced" => Self::Balanced, "speed" => Self::Speed;
    QosClass: "guaranteed" => Self::Guaranteed, "burstable" => Self::Burstable,
        "besteffort" => Self::BestEffort;
    ThpMode: "off" => Self::Never, "advised" => Self::Madvise, "all" => Self::Always;
    UnmatchedAction: "include" => Self::Include, "exclude" => Self::Exclude;
);

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: ConfigValue>(text: &str) -> Option<T> {
        let value = DeValue::parse(text).expect("valid TOML");
        T::from_toml(value.get_ref()).ok()
    }

    #[test]
    fn a_time_needs_a_unit() {
        assert_eq!(read(r#""30 s""#), Some(Duration::from_secs(30)));
        assert_eq!(read(r#""1min 30s""#), Some(Duration::from_secs(90)));
        assert_eq!(read(r#""1.5 s""#), Some(Duration::from_millis(1500)));
        for bad in [r#""30""#, "30", r#""-1 s""#, r#""soon""#, r#""""#] {
            assert_eq!(read::<Duration>(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_size_needs_a_unit() {
        assert_eq!(read(r#""64 MiB""#), Some(MemorySize(64 << 20)));
        assert_eq!(read(r#""1.5GiB""#), Some(MemorySize(3 << 29)));
        assert_eq!(read(r#""64 MB""#), Some(MemorySize(64_000_000)));
        for bad in [r#""64""#, "64", r#""-1 MiB""#, r#""many GiB""#, r#""4 QiB""#] {
            assert_eq!(read::<MemorySize>(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_number_must_fit_its_type() {
        assert_eq!(read("511"), Some(511u16));
        assert_eq!(read::<u16>("65536"), None);
        assert_eq!(read::<u16>("-1"), None);
        assert_eq!(read("0x10"), Some(16u64));
        assert_eq!(read("85"), Some(85.0));
        assert_eq!(read("1_0.5"), Some(10.5));
        assert_eq!(read::<f64>("nan"), None);
        assert_eq!(read::<f64>("inf"), None);
        assert_eq!(read::<f64>("\"85 %\""), None);
    }
}
