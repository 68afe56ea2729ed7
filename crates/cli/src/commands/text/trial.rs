//! Promotes the text of one process for a trial, or for good.

use super::error::TextError;
use super::rate_source::{RateSource, RateUnit};
use crate::progress::show_progress_line;
use hawkeye_linux::LinuxError;
use hawkeye_linux::memory::promotion_check::check_memory_for_promotion;
use hawkeye_linux::promote::program_text::{TextPages, TextPromoter};
use hawkeye_linux::stop_signals::{StopSignals, WaitResult};
use hawkeye_policy::text_trial::{TextTrialDecision, TextTrialGain, TextTrialPlan};
use hawkeye_policy::{HUGE_PAGE_BYTES, MemoryGuard, RegionAddr};
use nix::errno::Errno;
use serde::Serialize;
use std::time::{Duration, Instant};

/// What a trial measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredTrial {
    pub unit: RateUnit,
    pub window_s: f64,
    #[serde(flatten)]
    pub plan: TextTrialPlan,
    /// The rate of each window: base pages and huge pages in turn.
    pub rates: Vec<f64>,
    #[serde(flatten)]
    pub gain: TextTrialGain,
    pub decision: TextTrialDecision,
}

/// The changes of pages between windows.
pub trait TrialPages {
    fn make_huge(&mut self) -> Result<(), TextError>;
    /// Works also where none or some of the text is huge.
    fn make_base(&mut self) -> Result<(), TextError>;
    fn wait(&mut self, time: Duration) -> Result<(), TextError>;
    /// Time since the trial began.
    fn elapsed(&self) -> Duration;
}

/// The rates of all windows of a trial. The text has base pages at the end, whatever happens.
pub fn run_trial<P: TrialPages>(
    plan: &TextTrialPlan,
    pages: &mut P,
    mut measure_rate: impl FnMut(&mut P, Duration) -> Result<f64, TextError>,
) -> Result<Vec<f64>, TextError> {
    let measured = measure_windows(plan, pages, &mut measure_rate);
    put_back_after_failure(measured, pages)
}

fn measure_windows<P: TrialPages>(
    plan: &TextTrialPlan,
    pages: &mut P,
    measure_rate: &mut impl FnMut(&mut P, Duration) -> Result<f64, TextError>,
) -> Result<Vec<f64>, TextError> {
    // It shows what the kernel refuses, and whether a call takes the rest back.
    pages.make_huge()?;
    let mut rates = Vec::new();
    for is_huge in plan.windows() {
        if pages.elapsed() > plan.time_limit() {
            return Err(TextError::TooSlow(pages.elapsed().as_secs()));
        }
        match is_huge {
            true => pages.make_huge()?,
            false => pages.make_base()?,
        }
        pages.wait(plan.settling)?;
        rates.push(measure_rate(pages, plan.window)?);
        show_progress_line(&format!("trial: window {} of {}", rates.len(), plan.window_count()));
    }
    Ok(rates)
}

fn put_back_after_failure<T>(
    result: Result<T, TextError>,
    pages: &mut impl TrialPages,
) -> Result<T, TextError> {
    let failed = match result {
        // No pages are left, or no call changes them.
        Err(failed @ (TextError::ProcessEnded(_) | TextError::StaysHuge(_))) => return Err(failed),
        Err(failed) => failed,
        done => return done,
    };
    Err(match pages.make_base() {
        Ok(()) => failed,
        // What failed before was a consequence.
        Err(ended @ TextError::ProcessEnded(_)) => ended,
        Err(also) => TextError::NotPutBack { failed: Box::new(failed), also: Box::new(also) },
    })
}

/// The text of one process while it is changed.
pub struct TextSession<'a> {
    promoter: TextPromoter,
    signals: &'a StopSignals,
    guard: MemoryGuard,
    /// Those that the kernel has not refused at the first try.
    regions: Vec<RegionAddr>,
    /// Those that it refused then.
    pub refused: Vec<(RegionAddr, Errno)>,
    was_tried: bool,
    began: Instant,
    /// Of a trial. A promotion for good takes as long as it takes.
    time_limit: Option<Duration>,
}

impl<'a> TextSession<'a> {
    pub fn new(
        promoter: TextPromoter,
        signals: &'a StopSignals,
        guard: MemoryGuard,
        regions: Vec<RegionAddr>,
    ) -> Self {
        let (refused, was_tried, began) = (Vec::new(), false, Instant::now());
        Self { promoter, signals, guard, regions, refused, was_tried, began, time_limit: None }
    }

    /// Promotes without a trial. After a signal, what is promoted so far stays so.
    pub fn promote_for_good(&mut self) -> Result<(), TextError> {
        match self.make_huge() {
            Err(TextError::AllRefused) => Ok(()),
            done => done,
        }
    }

    /// Tries huge pages, and keeps them if they pay. `None`: the kernel refused all of them.
    pub fn try_and_decide(
        &mut self,
        plan: TextTrialPlan,
        mut rate: RateSource,
    ) -> Result<Option<MeasuredTrial>, TextError> {
        let measure_rate = |session: &mut Self, window| {
            rate.begin(session.signals)?;
            session.wait(window)?;
            rate.end(session.signals)
        };
        self.time_limit = Some(plan.time_limit());
        let rates = match run_trial(&plan, self, measure_rate) {
            Err(TextError::AllRefused) => return Ok(None),
            rates => rates?,
        };
        let gain = TextTrialGain::from_rates_in_turn(&rates)?;
        let decision = gain.decision();
        if decision == TextTrialDecision::Keep {
            let kept = self.make_huge();
            put_back_after_failure(kept, self)?;
        }
        let (unit, window_s) = (rate.unit(), plan.window.as_secs_f64());
        Ok(Some(MeasuredTrial { unit, window_s, plan, rates, gain, decision }))
    }

    /// Promoted regions that are huge now.
    pub fn huge_regions(&mut self) -> Result<Vec<RegionAddr>, TextError> {
        let mut huge = Vec::new();
        for region in &self.regions {
            if self.promoter.read_region(*region)? == TextPages::Huge {
                huge.push(*region);
            }
        }
        Ok(huge)
    }

    /// The error for a process that has ended names the trial.
    fn check_alive(&self, error: LinuxError) -> TextError {
        match error.is_process_gone() {
            true => TextError::ProcessEnded(self.promoter.process().id.pid),
            false => error.into(),
        }
    }
}

impl TrialPages for TextSession<'_> {
    fn make_huge(&mut self) -> Result<(), TextError> {
        if let Some(signal) = self.signals.signal_so_far() {
            return Err(TextError::Stopped(signal));
        }
        let process = self.promoter.process().id;
        let bytes = self.regions.len() as u64 * HUGE_PAGE_BYTES;
        check_memory_for_promotion(self.guard.clone(), process, bytes)?;
        let (signals, mut stopped, mut is_late) = (self.signals, None, false);
        let (began, time_limit) = (self.began, self.time_limit);
        let wait = |time| match signals.wait(&[], time) {
            WaitResult::Signal(signal) => {
                stopped = Some(signal);
                false
            }
            WaitResult::TimedOut | WaitResult::Readable => {
                is_late = time_limit.is_some_and(|most| began.elapsed() > most);
                !is_late
            }
        };
        let result = self.promoter.promote(&self.regions, wait);
        let result = result.map_err(|error| self.check_alive(error))?;
        if let Some(signal) = stopped.or_else(|| signals.signal_so_far()) {
            return Err(TextError::Stopped(signal));
        }
        if is_late {
            return Err(TextError::TooSlow(began.elapsed().as_secs()));
        }
        if !std::mem::replace(&mut self.was_tried, true) {
            (self.regions, self.refused) = (result.promoted, result.refused);
            return if self.regions.is_empty() { Err(TextError::AllRefused) } else { Ok(()) };
        }
        match result.refused.first() {
            Some((_, errno)) => {
                Err(TextError::RefusedLater { regions: result.refused.len(), errno: *errno })
            }
            None => Ok(()),
        }
    }

    fn make_base(&mut self) -> Result<(), TextError> {
        let huge = self.promoter.split(&self.regions);
        match huge.map_err(|error| self.check_alive(error))?.len() {
            0 => Ok(()),
            left => Err(TextError::StaysHuge(left)),
        }
    }

    fn wait(&mut self, time: Duration) -> Result<(), TextError> {
        let process = self.promoter.process();
        match self.signals.wait(&[process.fd()], time) {
            WaitResult::TimedOut => Ok(()),
            WaitResult::Readable => Err(TextError::ProcessEnded(process.id.pid)),
            WaitResult::Signal(signal) => Err(TextError::Stopped(signal)),
        }
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages that are changed as told, except that change number `fails_at` fails.
    #[derive(Default)]
    struct ScriptedPages {
        is_huge: bool,
        changes: Vec<bool>,
        fails_at: Option<usize>,
        stays_huge: bool,
        /// Time that each change takes.
        change_time: Duration,
        elapsed: Duration,
    }

    impl ScriptedPages {
        fn change(&mut self, is_huge: bool) -> Result<(), TextError> {
            self.changes.push(is_huge);
            self.elapsed += self.change_time;
            if self.fails_at == Some(self.changes.len()) {
                return Err(TextError::Stopped(2));
            }
            if self.stays_huge && !is_huge {
                return Err(TextError::StaysHuge(1));
            }
            self.is_huge = is_huge;
            Ok(())
        }
    }

    impl TrialPages for ScriptedPages {
        fn make_huge(&mut self) -> Result<(), TextError> {
            self.change(true)
        }

        fn make_base(&mut self) -> Result<(), TextError> {
            self.change(false)
        }

        fn wait(&mut self, _time: Duration) -> Result<(), TextError> {
            Ok(())
        }

        fn elapsed(&self) -> Duration {
            self.elapsed
        }
    }

    fn plan() -> TextTrialPlan {
        TextTrialPlan::for_duration(Duration::from_secs(3))
    }

    /// The rate shows which pages were in use.
    fn rate(pages: &mut ScriptedPages, _: Duration) -> Result<f64, TextError> {
        Ok(if pages.is_huge { 2.0 } else { 1.0 })
    }

    #[test]
    fn windows_alternate_and_end_with_base_pages() {
        let mut pages = ScriptedPages::default();
        let rates = run_trial(&plan(), &mut pages, rate).expect("no step fails");
        let pairs = rates.chunks_exact(2);
        assert_eq!((pairs.len(), pairs.remainder()), (plan().pairs as usize, &[1.0][..]));
        assert!(pairs.clone().all(|pair| pair == [1.0, 2.0]), "{rates:?}");
        assert!(!pages.is_huge);
    }

    #[test]
    fn whatever_fails_the_text_has_base_pages_afterwards() {
        for fails_at in 1..=12 {
            let mut pages = ScriptedPages { fails_at: Some(fails_at), ..ScriptedPages::default() };
            let failed = run_trial(&plan(), &mut pages, rate).expect_err("a step fails");
            assert!(matches!(failed, TextError::Stopped(2)), "{failed}");
            assert_eq!(pages.changes.last(), Some(&false), "{fails_at}");
            assert!(!pages.is_huge, "{fails_at}");
        }
        let mut pages = ScriptedPages::default();
        let no_rate = |_: &mut ScriptedPages, _| Err(TextError::Stopped(15));
        let failed = run_trial(&plan(), &mut pages, no_rate).expect_err("no rate");
        assert!(matches!(failed, TextError::Stopped(15)) && !pages.is_huge);
    }

    #[test]
    fn a_trial_in_which_changes_take_too_long_is_given_up() {
        let change_time = plan().time_limit() / 10;
        let mut pages = ScriptedPages { change_time, ..ScriptedPages::default() };
        let failed = run_trial(&plan(), &mut pages, rate).expect_err("it takes too long");
        assert!(matches!(failed, TextError::TooSlow(_)), "{failed}");
        assert_eq!(pages.changes.len(), 12, "the last one puts the text back");
        assert!(!pages.is_huge);
        let change_time = plan().time_limit() / 20;
        let mut pages = ScriptedPages { change_time, ..ScriptedPages::default() };
        assert!(run_trial(&plan(), &mut pages, rate).is_ok());
    }

    #[test]
    fn text_that_no_call_takes_back_is_reported() {
        let mut pages = ScriptedPages { stays_huge: true, ..ScriptedPages::default() };
        let failed = run_trial(&plan(), &mut pages, rate).expect_err("it stays huge");
        assert!(matches!(failed, TextError::StaysHuge(1)), "{failed}");
        let mut pages = ScriptedPages { stays_huge: true, ..ScriptedPages::default() };
        pages.fails_at = Some(1);
        let failed = run_trial(&plan(), &mut pages, rate).expect_err("it stays huge");
        let said = failed.to_string();
        assert!(said.contains("stopped by signal 2; and the text"), "{said}");
    }
}
