//! What a system made of the demo's reader, and why that is little where it is.

use super::reader_size::ReaderSize;

/// The reader under a system, compared with the same program under base pages.
#[derive(Clone, Copy, Debug)]
pub struct ReaderOutcome<'a> {
    /// Its speed over that under base pages.
    pub times: f64,
    /// The speed with all of its memory huge over that under base pages.
    pub times_all_huge: f64,
    pub promoted: u64,
    /// Of these, regions in the hot part.
    pub promoted_hot: u64,
    /// Promotions that the system could spend.
    pub allowed: u64,
    /// What held promotions back, a clause each.
    pub held_back: &'a [String],
}

impl ReaderOutcome<'_> {
    /// Why the speed-up is below [`ReaderSize::LEAST_SPEED_UP`], as a sentence; `None`: it is not.
    pub fn shortfall_text(&self) -> Option<String> {
        let Self { times, times_all_huge, promoted, promoted_hot, allowed, .. } = *self;
        if times >= ReaderSize::LEAST_SPEED_UP {
            return None;
        }
        if times_all_huge < ReaderSize::LEAST_SPEED_UP {
            return Some(format!(
                "Huge pages bring little here: with all of its memory huge, the program is {times_all_huge:.2} times as fast."
            ));
        }
        Some(if promoted < allowed {
            let because = match self.held_back {
                [] => " in its time, as its windows came too late or showed too little",
                _ => ": ",
            };
            let held_back = self.held_back.join("; ");
            format!("Only {promoted} of {allowed} promotions were made{because}{held_back}.")
        } else if promoted_hot < allowed {
            format!("Only {promoted_hot} of {allowed} promotions were of hot memory.")
        } else {
            "All of its hot memory is huge: other programs on this machine, or reads of cold memory, took the rest.".to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REACHED: ReaderOutcome<'static> = ReaderOutcome {
        times: 1.4,
        times_all_huge: 1.6,
        promoted: 192,
        promoted_hot: 192,
        allowed: 192,
        held_back: &[],
    };

    #[test]
    fn a_shortfall_names_its_cause() {
        assert_eq!(REACHED.shortfall_text(), None);
        let held_back = ["calls into processes took long".to_owned()];
        let short = ReaderOutcome { times: 1.1, ..REACHED };
        for (outcome, cause) in [
            (ReaderOutcome { times_all_huge: 1.12, ..short }, "the program is 1.12 times as fast"),
            (
                ReaderOutcome { promoted: 36, promoted_hot: 30, held_back: &held_back, ..short },
                "Only 36 of 192 promotions were made: calls into processes took long.",
            ),
            (
                ReaderOutcome { promoted: 36, ..short },
                "windows came too late or showed too little.",
            ),
            (ReaderOutcome { promoted_hot: 50, ..short }, "Only 50 of 192 promotions were of hot"),
            (short, "All of its hot memory is huge"),
        ] {
            let text = outcome.shortfall_text().expect("1.1 is a shortfall");
            assert!(text.contains(cause), "{text}");
        }
    }
}
