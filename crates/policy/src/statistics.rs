//! Medians of measured figures, and their errors.

/// The figures in ascending order.
pub fn sorted(mut figures: Vec<f64>) -> Vec<f64> {
    figures.sort_by(f64::total_cmp);
    figures
}

/// The median; 0 for an empty slice.
pub fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values.to_vec());
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The standard error of the median of independent values, estimated from the width of their middle
/// half, which a few outliers do not change. 0 for fewer than four values.
pub fn median_standard_error(values: &[f64]) -> f64 {
    /// Standard error of a normal distribution's median, in widths of its middle half.
    const OF_ONE: f64 = 0.929;
    let sorted = sorted(values.to_vec());
    let quarter = sorted.len() / 4;
    if quarter == 0 {
        return 0.0;
    }
    let width = sorted[sorted.len() - 1 - quarter] - sorted[quarter];
    OF_ONE * width / (sorted.len() as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_s_error_is_that_of_the_middle_half() {
        let mut values: Vec<f64> = (0..100).map(f64::from).collect();
        let error = median_standard_error(&values);
        assert!((error - 0.929 * 49.0 / 10.0).abs() < 1e-9, "{error}");
        values[99] = 1e9;
        assert_eq!(median_standard_error(&values), error);
        assert_eq!(median_standard_error(&[1.0, 2.0]), 0.0);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }
}
