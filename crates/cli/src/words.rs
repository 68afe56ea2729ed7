//! Numbers for people.

/// Bytes in the unit that fits: `4.0 GiB`, `512 MiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, size)| bytes >= *size) {
        Some((unit, size)) => {
            let value = bytes as f64 / *size as f64;
            let decimals = usize::from(value < 10.0);
            format!("{value:.decimals$} {unit}")
        }
        None => format!("{bytes} bytes"),
    }
}

/// A count with thousands set apart: `1,049,132`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Shares (0-1) as a line of `width` bars.
pub fn bars(shares: &[f64], width: usize) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let width = width.min(shares.len());
    (0..width)
        .map(|column| {
            let share = shares[column * shares.len() / width];
            BARS[(share.clamp(0.0, 1.0) * 8.0).round() as usize]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(bytes(4 << 30), "4.0 GiB");
        assert_eq!(bytes(512 << 20), "512 MiB");
        assert_eq!(bytes(17), "17 bytes");
        assert_eq!(count(1_049_132), "1,049,132");
        assert_eq!(count(7), "7");
    }

    #[test]
    fn bars_span_the_whole_time() {
        assert_eq!(bars(&[0.0, 0.5, 1.0], 3), " ▄█");
        assert_eq!(bars(&[0.0, 0.0, 1.0, 1.0], 2), " █");
        assert_eq!(bars(&[], 10), "");
    }
}
