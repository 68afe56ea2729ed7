//! Detects whether there is a core that no other program wants. Without one, the filler takes its
//! time from other programs, so it may take only a little.

use crate::processes::schedstat::SchedStat;
use hawkeye_policy::TokenBucket;
use std::time::Duration;

/// Other programs want the core if the thread waited for more than this share of the time in which
/// it wanted to run.
const MAX_WAIT_SHARE: f64 = 0.2;
/// Least time to judge by: a thread that just woke may share a core until the scheduler moves it.
const MIN_JUDGED_TIME: Duration = Duration::from_millis(20);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1600);
/// What all threads that have no spare core may use together: this share of one. A fill takes the
/// filler about as long as the page faults of the region would take its program.
const SHARE_WITHOUT_SPARE_CORE: f64 = 0.2;
/// Milliseconds of it that can be saved up.
const MOST_SAVED_MS: f64 = 50.0;

/// Pauses threads while there is no spare core for them. With cores for only some of them, each
/// thread waits, and all would pause. So the thread that began to work last pauses, and the others
/// are judged again without it. A pause is interrupted while there is time to use without a spare
/// core.
#[derive(Debug)]
pub(super) struct SpareCoreThrottle {
    threads: Vec<ThreadCoreState>,
    /// Milliseconds that may be used without a spare core.
    unspared_ms: TokenBucket,
    /// How often a thread was paused.
    pub(super) pauses: u64,
}

#[derive(Clone, Debug, Default)]
struct ThreadCoreState {
    /// Counts of its last report, and those when it was last judged.
    scheduled: SchedStat,
    judged: SchedStat,
    paused_until: Duration,
    pause: Duration,
}

impl ThreadCoreState {
    /// How long there is no spare core for it.
    fn pause_left(&self, now: Duration) -> Duration {
        self.paused_until.saturating_sub(now)
    }

    /// Whether the thread got a core most of the time it wanted one; `None`: too short to judge.
    fn got_core_when_wanted(&mut self) -> Option<bool> {
        let SchedStat { ran, waited } = self.scheduled - self.judged;
        let wanted = ran + waited;
        if wanted < MIN_JUDGED_TIME {
            return None;
        }
        self.judged = self.scheduled;
        Some(waited.as_secs_f64() <= MAX_WAIT_SHARE * wanted.as_secs_f64())
    }
}

impl SpareCoreThrottle {
    pub(super) fn for_threads(threads: usize) -> Self {
        let unspared_ms = TokenBucket::new_full(SHARE_WITHOUT_SPARE_CORE * 1e3, MOST_SAVED_MS);
        Self { threads: vec![ThreadCoreState::default(); threads], unspared_ms, pauses: 0 }
    }

    /// How long a thread must not fill.
    pub(super) fn pause_left(&self, thread: usize, now: Duration) -> Duration {
        let until_saved = self.unspared_ms.next_token_at(now).saturating_sub(now);
        self.time_without_spare_core(thread, now).min(until_saved)
    }

    /// How long a thread is taken to have no spare core.
    pub(super) fn time_without_spare_core(&self, thread: usize, now: Duration) -> Duration {
        let turn = self.threads.get(thread);
        turn.map_or(Duration::ZERO, |turn| turn.pause_left(now))
    }

    /// Takes the counts of a thread that has just worked, or is about to.
    pub(super) fn update_pauses_from_stat(
        &mut self,
        thread: usize,
        now: Duration,
        scheduled: SchedStat,
    ) {
        let Some(turn) = self.threads.get_mut(thread) else {
            return;
        };
        let used = scheduled - std::mem::replace(&mut turn.scheduled, scheduled);
        if !turn.pause_left(now).is_zero() {
            self.unspared_ms.draw_tokens_into_debt(now, used.ran.as_secs_f64() * 1e3);
            // After the pause it is judged by what it has done since the last work in it.
            turn.judged = scheduled;
            return;
        }
        match turn.got_core_when_wanted() {
            None => {}
            Some(true) => turn.pause = Duration::ZERO,
            Some(false) => {
                let all = self.threads.iter_mut();
                let working = all.filter(|turn| turn.pause_left(now).is_zero());
                if let Some(last) = working.max_by_key(|turn| turn.paused_until) {
                    last.pause = (last.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
                    last.paused_until = now + last.pause;
                    self.pauses += 1;
                }
                for turn in &mut self.threads {
                    turn.judged = turn.scheduled;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn scheduled(ran_ms: u32, waited_ms: u32) -> SchedStat {
        SchedStat { ran: MS * ran_ms, waited: MS * waited_ms }
    }

    /// One that has used up all time without a spare core.
    fn exhausted(threads: usize) -> SpareCoreThrottle {
        let mut cores = SpareCoreThrottle::for_threads(threads);
        cores.unspared_ms.draw_tokens_into_debt(Duration::ZERO, 1e6);
        cores
    }

    #[test]
    fn without_a_spare_core_a_fifth_of_one_is_used() {
        let mut cores = SpareCoreThrottle::for_threads(1);
        let mut stat = SchedStat::default();
        let ran_ms = |stat: SchedStat| stat.ran.as_secs_f64() * 1e3;
        for ms in 0..10_000 {
            if cores.pause_left(0, MS * ms).is_zero() {
                // Each millisecond on the core has cost another one of waiting for it.
                stat = stat + scheduled(1, 1);
                cores.update_pauses_from_stat(0, MS * (ms + 1), stat);
            }
        }
        // A fifth, what was saved up, and what was used before it paused and to try again.
        assert!((2000.0..2300.0).contains(&ran_ms(stat)), "{}", ran_ms(stat));
    }

    #[test]
    fn waits_in_a_pause_do_not_cause_another_one() {
        let mut cores = SpareCoreThrottle::for_threads(1);
        cores.update_pauses_from_stat(0, MS * 100, scheduled(50, 50));
        assert_eq!(cores.time_without_spare_core(0, MS * 100), MS * 20);
        // It works in the pause, and waits for most of that time.
        cores.update_pauses_from_stat(0, MS * 119, scheduled(54, 65));
        // Now there is a core.
        cores.update_pauses_from_stat(0, MS * 140, scheduled(75, 65));
        assert_eq!(cores.time_without_spare_core(0, MS * 140), Duration::ZERO);
        assert_eq!(cores.pauses, 1);
    }

    #[test]
    fn a_thread_without_a_core_pauses_ever_longer() {
        let mut cores = exhausted(1);
        for (now, ran, waited, there) in [
            (100, 100, 0, true),
            // Too short to judge.
            (105, 100, 5, true),
            (200, 150, 50, false),
            (219, 150, 50, false),
            // It has not run since, so there is nothing to judge by and it tries.
            (220, 150, 50, true),
            (300, 200, 100, false),
            // The second pause is twice as long.
            (339, 200, 100, false),
            (340, 200, 100, true),
            (400, 300, 100, true),
            // The pauses start again from the shortest.
            (500, 320, 180, false),
            (520, 320, 180, true),
        ] {
            cores.update_pauses_from_stat(0, MS * now, scheduled(ran, waited));
            assert_eq!(cores.pause_left(0, MS * now).is_zero(), there, "{now}");
            if now == 200 {
                assert_eq!(cores.pause_left(0, MS * 205), MS * 15);
            }
        }
    }

    #[test]
    fn of_several_waiting_threads_the_newest_pauses() {
        let mut cores = exhausted(2);
        let pauses = |cores: &SpareCoreThrottle, now| {
            [0, 1].map(|thread| cores.pause_left(thread, now).as_millis())
        };
        let now = MS * 100;
        cores.update_pauses_from_stat(1, now, scheduled(10, 5));
        cores.update_pauses_from_stat(0, now, scheduled(20, 10));
        assert_eq!(pauses(&cores, now), [0, 20]);
        // The other thread goes on, however long it waited before.
        cores.update_pauses_from_stat(1, now, scheduled(11, 25));
        cores.update_pauses_from_stat(0, MS * 118, scheduled(38, 11));
        assert_eq!(pauses(&cores, MS * 118), [0, 2]);
        // The first thread works again and takes the other's core; the other reports it first.
        cores.update_pauses_from_stat(0, MS * 150, scheduled(50, 20));
        assert_eq!(pauses(&cores, MS * 150), [0, 40]);
        // The other is alone now, and still waits.
        cores.update_pauses_from_stat(0, MS * 180, scheduled(60, 40));
        assert_eq!(pauses(&cores, MS * 180), [20, 10]);
        // Both have a core.
        cores.update_pauses_from_stat(0, MS * 260, scheduled(90, 40));
        cores.update_pauses_from_stat(1, MS * 260, scheduled(50, 25));
        assert_eq!(pauses(&cores, MS * 260), [0, 0]);
        assert_eq!(cores.pauses, 3);
    }
}
