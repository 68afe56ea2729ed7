//! Parser of lists and ranges of values.

use thiserror::Error;

/// Why a list of values was rejected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ValuesError {
    /// Neither a value nor a range.
    #[error(
        "{0:?} is not a range: write FROM..TO+STEP or FROM..TO*FACTOR, such as 0..1+0.25 or 4GiB..64GiB*2"
    )]
    Range(String),
    /// A range with too many values, or without an end.
    #[error("{0:?} has over {MOST} values: take larger steps")]
    Endless(String),
    /// An empty value.
    #[error("a value is missing between two commas of {0:?}")]
    Empty(String),
}

/// Most values of one sweep.
const MOST: usize = 10_000;

/// Reads `A,B,C`, in which each may be a range `FROM..TO+STEP` or `FROM..TO*FACTOR`, both ends
/// included. A unit may follow the numbers: `4GiB..64GiB*2`.
///
/// # Errors
/// Text that is neither; more than 10,000 values.
pub fn parse_values(text: &str) -> Result<Vec<String>, ValuesError> {
    let mut values = Vec::new();
    for item in text.split(',').map(str::trim) {
        if item.is_empty() {
            return Err(ValuesError::Empty(text.to_owned()));
        }
        if item.contains("..") {
            push_range_values(item, &mut values)?;
        } else {
            values.push(item.to_owned());
        }
    }
    Ok(values)
}

fn push_range_values(item: &str, values: &mut Vec<String>) -> Result<(), ValuesError> {
    let wrong = || ValuesError::Range(item.to_owned());
    let (from, rest) = item.split_once("..").ok_or_else(wrong)?;
    let sign = rest.rfind(['+', '*']).ok_or_else(wrong)?;
    let (to, step) = rest.split_at(sign);
    let (from, unit) = parse_number_with_unit(from).ok_or_else(wrong)?;
    let (to, to_unit) = parse_number_with_unit(to).ok_or_else(wrong)?;
    let by = step.get(1..).unwrap_or_default();
    let multiplied = step.starts_with('*');
    let (by, by_unit) = parse_number_with_unit(by).ok_or_else(wrong)?;
    let units = to_unit == unit && by_unit == if multiplied { "" } else { unit };
    let grows = if multiplied { by > 1.0 && from > 0.0 } else { by > 0.0 };
    if !units || !grows || from > to {
        return Err(wrong());
    }
    // Rounding may put the last value slightly beyond the end; it still counts.
    let end = to + to.abs() * 1e-9;
    let at = |n: usize| match multiplied {
        true => from * by.powi(n as i32),
        false => from + by * n as f64,
    };
    let count = (0..=MOST).take_while(|n| at(*n) <= end).count();
    if count > MOST {
        return Err(ValuesError::Endless(item.to_owned()));
    }
    values.extend((0..count).map(|n| format!("{}{unit}", without_rounding_error(at(n)))));
    Ok(())
}

/// Removes rounding errors: 0.1 + 0.2 becomes 0.3.
fn without_rounding_error(value: f64) -> f64 {
    format!("{value:.12e}").parse().unwrap_or(value)
}

/// A finite number and the unit after it.
fn parse_number_with_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    let (number, unit) = text.split_at(text.len() - unit.len());
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim();
    let letters = unit.chars().all(|c| c.is_ascii_alphabetic());
    (number.is_finite() && letters).then_some((number, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_are_read_as_written() {
        let values = |text| parse_values(text).map(|values| values.join(" "));
        let is = |text: &str| Ok(text.to_owned());
        assert_eq!(values("4"), is("4"));
        assert_eq!(values("haswell, zen-4"), is("haswell zen-4"));
        assert_eq!(values("0..1+0.25"), is("0 0.25 0.5 0.75 1"));
        assert_eq!(values("0.1..0.5+0.1"), is("0.1 0.2 0.3 0.4 0.5"));
        assert_eq!(values("4GiB..64GiB*2,1TiB"), is("4GiB 8GiB 16GiB 32GiB 64GiB 1TiB"));
        assert_eq!(values("1..10*3"), is("1 3 9"));
        assert_eq!(values("-2..2+2"), is("-2 0 2"));
        assert_eq!(values("8MiB..9MiB+1MiB"), is("8MiB 9MiB"));
    }

    #[test]
    fn what_has_no_end_or_no_sense_is_refused() {
        for wrong in [
            "1..2",
            "1..2+0",
            "1..2*1",
            "0..2*2",
            "2..1+1",
            "..+",
            "a..b+c",
            "1GiB..2MiB+1MiB",
            "1..nan+1",
            "1..2-1",
            "1GiB..4GiB+1",
        ] {
            assert!(matches!(parse_values(wrong), Err(ValuesError::Range(_))), "{wrong}");
        }
        assert!(matches!(parse_values("1,,2"), Err(ValuesError::Empty(_))));
        assert!(matches!(parse_values("1..1000000+1"), Err(ValuesError::Endless(_))));
    }
}
