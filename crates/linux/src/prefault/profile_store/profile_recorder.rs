//! Collects what is seen of managed processes, to write it into records.

use super::profile_saver::ProfileSaver;
use super::{ExecutableIdentity, ProfileStore, ProgramProfile};
use crate::page_sizes::ObservedPageSize;
use crate::processes::process::process_age;
use crate::processes::process_reader_thread::ProcessReaderThread;
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrderSet, ProcessId, ProcessSample};
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant, SystemTime};

/// A process that was managed for less than this yields no record.
const MIN_MANAGED_TIME: Duration = Duration::from_secs(3);
/// A process that was older than this when it was found was not seen from its start on.
const MAX_AGE_AT_START: Duration = Duration::from_secs(15);
/// How long to wait for the executables of new processes: a warm start needs their records.
const EXECUTABLE_WAIT: Duration = Duration::from_millis(20);
/// How long to wait for the disk when management ends.
const SAVE_WAIT: Duration = Duration::from_secs(5);
/// Share of base pages present from which on regions count as filled.
const FILLED_SHARE: f64 = 0.9;

#[derive(Debug)]
pub(crate) struct ProfileRecorder {
    store: ProfileStore,
    saver: ProfileSaver,
    reader: ProcessReaderThread<Option<ExecutableIdentity>>,
    profiles: BTreeMap<ProcessId, Option<ProcessProfile>>,
}

#[derive(Debug)]
struct ProcessProfile {
    known: ProgramProfile,
    /// The process was seen from its start on.
    from_start: bool,
    since: Duration,
    /// Sizes at first touches that apply now, and since when. `held`: for how long each set
    /// applied.
    sizes: Option<(PageOrderSet, Duration)>,
    held: Vec<(PageOrderSet, Duration)>,
    /// What was seen in this start.
    seen: ProgramProfile,
    filled_at_start_bytes: Option<u64>,
}

impl ProfileRecorder {
    /// `read` identifies the executable of a process: [`ExecutableIdentity::of_process`].
    pub(crate) fn new(
        store: ProfileStore,
        read: impl Fn(u32) -> Option<ExecutableIdentity> + Send + 'static,
    ) -> Self {
        let reader = ProcessReaderThread::new("hawkeye-learn", read);
        let saved_to = store.clone();
        let saver = ProfileSaver::start(move |record| saved_to.save_profile(record));
        Self { store, saver, reader, profiles: BTreeMap::new() }
    }

    /// Takes the managed processes of now. It looks up new ones, and hands what it learned
    /// of those that are gone to a thread that saves it. `sizes`: the page sizes seen last.
    pub(crate) fn open_and_save_profiles(
        &mut self,
        processes: &[ProcessId],
        now: Duration,
        sizes: impl FnOnce() -> Vec<ObservedPageSize>,
    ) {
        let there: HashSet<&ProcessId> = processes.iter().collect();
        self.open_profiles_of_new_processes(&there, now);
        let known = self.profiles.keys();
        let gone: Vec<ProcessId> = known.filter(|p| !there.contains(p)).copied().collect();
        let sizes = if gone.is_empty() { Vec::new() } else { sizes() };
        for process in gone {
            self.save_learned_profile_of_process(process, now, &sizes);
        }
    }

    /// Waits until all that was learned is saved, or for five seconds.
    pub(crate) fn wait_until_saved(&self) {
        let unsaved = self.saver.wait_until_saved(SAVE_WAIT);
        if unsaved > 0 {
            tracing::warn!("{unsaved} learned records are not saved: the disk is too slow");
        }
    }

    /// Opens a profile for each new process with a known executable. After an executable that
    /// is not read in time, it does not wait for the next one.
    fn open_profiles_of_new_processes(&mut self, there: &HashSet<&ProcessId>, now: Duration) {
        let was_idle = self.reader.is_idle();
        for process in there {
            if !self.profiles.contains_key(process) {
                self.reader.request_read(**process);
            }
        }
        let wait = if was_idle { EXECUTABLE_WAIT } else { Duration::ZERO };
        for (process, executable) in self.reader.wait_for_results(Instant::now() + wait) {
            if !there.contains(&process) {
                continue;
            }
            let profile = executable.map(|executable| {
                let queued = self.saver.queued_record(&executable);
                let known = queued.or_else(|| self.store.load_profile(&executable));
                let known = known.unwrap_or_else(|| ProgramProfile::new(executable));
                ProcessProfile::new(known, process_age(process) <= MAX_AGE_AT_START, now)
            });
            self.profiles.insert(process, profile);
        }
    }

    fn save_learned_profile_of_process(
        &mut self,
        process: ProcessId,
        now: Duration,
        sizes: &[ObservedPageSize],
    ) {
        let profile = self.profiles.remove(&process).flatten();
        // Page sizes are counted over all processes: they can be attributed only to a single one.
        let own = if self.profiles.is_empty() { sizes } else { &[] };
        if let Some(record) = profile.and_then(|profile| profile.into_program_profile(now, own)) {
            self.saver.queue_record(record);
        }
    }

    fn existing_profile_mut(&mut self, process: ProcessId) -> Option<&mut ProcessProfile> {
        self.profiles.get_mut(&process)?.as_mut()
    }

    /// The record of a process at its start, if its program was managed before.
    pub(crate) fn stored_profile(&self, process: ProcessId) -> Option<&ProgramProfile> {
        let profile = self.profiles.get(&process)?.as_ref()?;
        (profile.known.starts > 0).then_some(&profile.known)
    }

    pub(crate) fn record_fault_sizes(
        &mut self,
        process: ProcessId,
        orders: PageOrderSet,
        now: Duration,
    ) {
        if let Some(profile) = self.existing_profile_mut(process) {
            profile.set_fault_sizes(orders, now);
        }
    }

    pub(crate) fn record_sample(&mut self, sample: &ProcessSample) {
        let Some(profile) = self.existing_profile_mut(sample.process) else {
            return;
        };
        let resident = sample.resident_bytes_in_regions();
        let regions = sample.regions.len() as f64;
        let present: f64 = sample.regions.iter().map(|r| f64::from(r.present)).sum();
        let dense = present >= FILLED_SHARE * regions * f64::from(PAGES_PER_REGION);
        let whole_regions = resident / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        let filled = if dense { whole_regions } else { 0 };
        profile.filled_at_start_bytes.get_or_insert(filled);
        profile.seen.huge_share = sample.huge_bytes() as f64 / resident.max(1) as f64;
        if let Some(overhead) = sample.overhead {
            profile.seen.overhead_percent = Some(overhead.percent);
        }
    }

    /// What was seen of a process in this start.
    pub(crate) fn current_run_profile_mut(
        &mut self,
        process: ProcessId,
    ) -> Option<&mut ProgramProfile> {
        Some(&mut self.existing_profile_mut(process)?.seen)
    }
}

impl ProcessProfile {
    fn new(known: ProgramProfile, from_start: bool, now: Duration) -> Self {
        Self {
            seen: ProgramProfile::new(known.executable.clone()),
            known,
            from_start,
            since: now,
            sizes: None,
            held: Vec::new(),
            filled_at_start_bytes: None,
        }
    }

    fn set_fault_sizes(&mut self, orders: PageOrderSet, now: Duration) {
        self.add_time_with_current_sizes(now);
        self.sizes = Some((orders, now));
    }

    /// Adds the time for which the current sizes have applied.
    fn add_time_with_current_sizes(&mut self, now: Duration) {
        let Some((orders, since)) = &mut self.sizes else {
            return;
        };
        let lasted = now.saturating_sub(std::mem::replace(since, now));
        match self.held.iter_mut().find(|(held, _)| held == orders) {
            Some((_, sum)) => *sum += lasted,
            None => self.held.push((*orders, lasted)),
        }
    }

    /// The finished record; `None` where nothing was learned.
    fn into_program_profile(
        mut self,
        now: Duration,
        sizes: &[ObservedPageSize],
    ) -> Option<ProgramProfile> {
        let managed = now.saturating_sub(self.since);
        if managed < MIN_MANAGED_TIME || !self.from_start {
            return None;
        }
        self.add_time_with_current_sizes(now);
        let longest = self.held.iter().max_by_key(|(_, lasted)| *lasted);
        let (known, mut record) = (self.known, self.seen);
        record.fault_sizes_bytes = known.fault_sizes_bytes;
        record.confirmed = known.confirmed;
        record.record_best_fault_sizes(longest.map(|(orders, _)| *orders));
        let known_filled = (known.starts > 0).then_some(known.filled_at_start_bytes);
        let filled = known_filled.into_iter().chain(self.filled_at_start_bytes).min();
        record.filled_at_start_bytes = filled.unwrap_or(0);
        record.starts = known.starts.saturating_add(1);
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        record.last_seen_s = since_1970.map_or(0, |since| since.as_secs());
        record.managed_s = managed.as_secs_f64();
        record.overhead_percent = record.overhead_percent.or(known.overhead_percent);
        let found = sizes.iter().filter(|size| size.pages > 0);
        record.pages = found.map(|size| (size.page_bytes, size.pages)).collect();
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_lease::thp_settings::testing::TestFolder;
    use hawkeye_policy::PageOrder;
    use hawkeye_test_support::event_constructors::process_with_pid;

    const SMALL: PageOrderSet = PageOrderSet::NONE.with(PageOrder::CONTIGUOUS);

    fn page(from_start: bool) -> ProcessProfile {
        let known = ProgramProfile::new(ExecutableIdentity::for_test("/bin/a"));
        ProcessProfile::new(known, from_start, Duration::ZERO)
    }

    #[test]
    fn the_sizes_that_held_longest_are_best() {
        let mut profile = page(true);
        for (orders, at_s) in [(SMALL, 10), (PageOrderSet::NONE, 40), (SMALL, 45)] {
            profile.set_fault_sizes(orders, Duration::from_secs(at_s));
        }
        let record = profile
            .into_program_profile(Duration::from_secs(60), &[])
            .expect("a start of a minute leaves a record");
        assert_eq!((record.best_fault_sizes(), record.starts), (Some(SMALL), 1));
    }

    #[test]
    fn a_file_system_that_does_not_answer_is_not_waited_for_twice() {
        let folder = TestFolder::new("profiles");
        let learned = ProfileStore::open(folder.0.clone()).expect("the folder can be created");
        let (let_go, held) = std::sync::mpsc::channel::<()>();
        let read = move |pid| {
            if pid == 1 {
                let _ = held.recv();
            }
            ExecutableIdentity::of_process(std::process::id())
        };
        let mut recorder = ProfileRecorder::new(learned, read);
        let is_open = |recorder: &ProfileRecorder, pid| {
            recorder.profiles.contains_key(&process_with_pid(pid))
        };
        let all = [process_with_pid(1), process_with_pid(2)];
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_open(&recorder, 2) && Instant::now() < deadline {
            recorder.open_and_save_profiles(&all[1..], Duration::ZERO, Vec::new);
        }
        assert!(is_open(&recorder, 2));
        let begun = Instant::now();
        for _ in 0..1000 {
            recorder.open_and_save_profiles(&all, Duration::ZERO, Vec::new);
        }
        // A wait of 20 ms in each of the 1000 calls would take 20 s.
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert!(!is_open(&recorder, 1) && is_open(&recorder, 2));
        let_go.send(()).expect("the reader waits");
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_open(&recorder, 1) && Instant::now() < deadline {
            recorder.open_and_save_profiles(&all, Duration::ZERO, Vec::new);
        }
        assert!(is_open(&recorder, 1));
    }

    /// System calls of this thread that have written. `None` where the kernel doesn't count them.
    fn write_calls() -> Option<u64> {
        let counts = std::fs::read_to_string("/proc/thread-self/io").ok()?;
        counts.lines().find_map(|line| line.strip_prefix("syscw: "))?.parse().ok()
    }

    #[test]
    fn records_of_ended_processes_are_not_written_by_the_managers_thread() {
        let folder = TestFolder::new("profiles-written");
        let learned = ProfileStore::open(folder.0.clone()).expect("the folder can be created");
        let mut recorder = ProfileRecorder::new(learned.clone(), |_| None);
        let mut ended = page(true);
        ended.filled_at_start_bytes = Some(1 << 30);
        let executable = ended.known.executable.clone();
        recorder.profiles.insert(process_with_pid(1), Some(ended));
        let before = write_calls();
        recorder.open_and_save_profiles(&[], Duration::from_secs(60), Vec::new);
        assert_eq!(write_calls(), before);
        assert_eq!(recorder.saver.wait_until_saved(Duration::from_secs(60)), 0);
        assert!(learned.load_profile(&executable).is_some());
    }

    #[test]
    fn old_and_short_lived_processes_leave_no_record() {
        assert_eq!(page(false).into_program_profile(Duration::from_secs(60), &[]), None);
        assert_eq!(page(true).into_program_profile(Duration::from_secs(1), &[]), None);
    }

    #[test]
    fn the_least_fill_of_all_starts_may_be_filled_ahead() {
        let mut record = None;
        for bytes in [4 << 30, 3 << 30, 5 << 30] {
            let mut profile = page(true);
            if let Some(record) = record {
                profile.known = record;
            }
            profile.filled_at_start_bytes = Some(bytes);
            record = profile.into_program_profile(Duration::from_secs(60), &[]);
        }
        assert_eq!(record.map(|record| record.warm_start_bytes()), Some(3 << 30));
    }
}
