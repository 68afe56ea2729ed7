//! What is seen of managed processes on its way into records.

use super::{Executable, Learned, Record};
use crate::page_sizes::SizeSeen;
use crate::processes::process::age;
use crate::processes::process_reader::ProcessReader;
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrders, ProcessId, ProcessSample};
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant, SystemTime};

/// A process that was managed for less than this has taught nothing.
const LEAST: Duration = Duration::from_secs(3);
/// One that was there for longer than this when it was found has not been seen from its start on.
const YOUNG: Duration = Duration::from_secs(15);
/// How long executables of new processes are waited for: a warm start begins with what is known.
const ANSWER: Duration = Duration::from_millis(20);
/// Regions are filled whose pages are there but for a tenth.
const FILLED: f64 = 0.9;

/// Follows who is under management.
#[derive(Debug)]
pub(crate) struct Notebook {
    learned: Learned,
    reader: ProcessReader<Option<Executable>>,
    pages: BTreeMap<ProcessId, Option<Page>>,
}

/// Of one process.
#[derive(Debug)]
struct Page {
    known: Record,
    /// Seen from its start on.
    from_start: bool,
    since: Duration,
    /// Sizes at first touches that hold now, and since when; and for how long each set of them did.
    sizes: Option<(PageOrders, Duration)>,
    held: Vec<(PageOrders, Duration)>,
    /// Of this start, in the record's terms.
    filled_at_start_bytes: Option<u64>,
    overhead_percent: Option<f64>,
    huge_share: f64,
    resident_bytes: u64,
    promoted: u64,
    split: u64,
}

impl Notebook {
    pub(crate) fn new(learned: Learned) -> Self {
        Self::reading(learned, Executable::of)
    }

    fn reading(
        learned: Learned,
        read: impl Fn(u32) -> Option<Executable> + Send + 'static,
    ) -> Self {
        Self {
            learned,
            reader: ProcessReader::new("hawkeye-learn", read),
            pages: BTreeMap::new(),
        }
    }

    /// Who is under management now: those who are new are looked up, of those who are gone is kept what was learned. `sizes`: the
    /// pages that were seen last.
    pub(crate) fn update(
        &mut self,
        processes: &[ProcessId],
        now: Duration,
        sizes: impl FnOnce() -> Vec<SizeSeen>,
    ) {
        let there: HashSet<&ProcessId> = processes.iter().collect();
        self.look_up(&there, now);
        let known = self.pages.keys();
        let gone: Vec<ProcessId> = known.filter(|p| !there.contains(p)).copied().collect();
        if gone.is_empty() {
            return;
        }
        let sizes = sizes();
        for process in gone {
            self.close(process, now, &sizes);
        }
    }

    /// Opens a page for each new process whose executable is known by now. Where one is not read in time,
    /// nobody waits for the next either.
    fn look_up(&mut self, there: &HashSet<&ProcessId>, now: Duration) {
        let was_idle = self.reader.is_idle();
        for process in there {
            if !self.pages.contains_key(process) {
                self.reader.ask(**process);
            }
        }
        let wait = if was_idle { ANSWER } else { Duration::ZERO };
        for (process, executable) in self.reader.answers(Instant::now() + wait) {
            if !there.contains(&process) {
                continue;
            }
            let page = executable.map(|executable| {
                let known = self.learned.load(&executable);
                let known = known.unwrap_or_else(|| Record::new(executable));
                Page::new(known, age(process) <= YOUNG, now)
            });
            self.pages.insert(process, page);
        }
    }

    /// Management is over: what was learned of everybody is kept.
    pub(crate) fn finish(&mut self, now: Duration, sizes: impl FnOnce() -> Vec<SizeSeen>) {
        self.update(&[], now, sizes);
    }

    fn close(&mut self, process: ProcessId, now: Duration, sizes: &[SizeSeen]) {
        let Some(Some(page)) = self.pages.remove(&process) else {
            return;
        };
        // Of one among several nobody can tell which pages were its own.
        let own = if self.pages.is_empty() { sizes } else { &[] };
        if let Some(record) = page.close(now, own) {
            if let Err(error) = self.learned.save(&record) {
                tracing::warn!("what was learned of process {process} is lost: {error}");
            }
        }
    }

    fn page(&mut self, process: ProcessId) -> Option<&mut Page> {
        self.pages.get_mut(&process)?.as_mut()
    }

    /// What was known of a process when it began.
    pub(crate) fn known(&self, process: ProcessId) -> Option<&Record> {
        let page = self.pages.get(&process)?.as_ref()?;
        (page.known.starts > 0).then_some(&page.known)
    }

    pub(crate) fn note_sizes(&mut self, process: ProcessId, orders: PageOrders, now: Duration) {
        if let Some(page) = self.page(process) {
            page.turn(now);
            page.sizes = Some((orders, now));
        }
    }

    pub(crate) fn note_sample(&mut self, sample: &ProcessSample) {
        let Some(page) = self.page(sample.process) else {
            return;
        };
        let resident = sample.resident_bytes();
        let regions = sample.regions.len() as f64;
        let present: f64 = sample.regions.iter().map(|r| f64::from(r.present)).sum();
        let dense = present >= FILLED * regions * f64::from(PAGES_PER_REGION);
        let filled = if dense {
            resident / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        } else {
            0
        };
        page.filled_at_start_bytes.get_or_insert(filled);
        page.huge_share = sample.huge_bytes() as f64 / resident.max(1) as f64;
        if let Some(overhead) = sample.overhead {
            page.overhead_percent = Some(overhead.percent);
        }
    }

    pub(crate) fn note_resident(&mut self, process: ProcessId, bytes: u64) {
        if let Some(page) = self.page(process) {
            page.resident_bytes = page.resident_bytes.max(bytes);
        }
    }

    pub(crate) fn note_promoted(&mut self, process: ProcessId) {
        if let Some(page) = self.page(process) {
            page.promoted += 1;
        }
    }

    pub(crate) fn note_split(&mut self, process: ProcessId) {
        if let Some(page) = self.page(process) {
            page.split += 1;
        }
    }
}

impl Page {
    fn new(known: Record, from_start: bool, now: Duration) -> Self {
        Self {
            known,
            from_start,
            since: now,
            sizes: None,
            held: Vec::new(),
            filled_at_start_bytes: None,
            overhead_percent: None,
            huge_share: 0.0,
            resident_bytes: 0,
            promoted: 0,
            split: 0,
        }
    }

    /// Adds for how long the sizes of now have held.
    fn turn(&mut self, now: Duration) {
        let Some((orders, since)) = self.sizes else {
            return;
        };
        let lasted = now.saturating_sub(since);
        match self.held.iter_mut().find(|(held, _)| *held == orders) {
            Some((_, sum)) => *sum += lasted,
            None => self.held.push((orders, lasted)),
        }
        self.sizes = Some((orders, now));
    }

    /// The record as it is now; `None` where nothing was learned.
    fn close(mut self, now: Duration, sizes: &[SizeSeen]) -> Option<Record> {
        let managed = now.saturating_sub(self.since);
        if managed < LEAST || !self.from_start {
            return None;
        }
        self.turn(now);
        let longest = self.held.iter().max_by_key(|(_, lasted)| *lasted);
        let mut record = self.known;
        record.note_fault_sizes(longest.map(|(orders, _)| *orders));
        let filled = self.filled_at_start_bytes.unwrap_or(0);
        record.filled_at_start_bytes = if record.starts == 0 {
            filled
        } else {
            record.filled_at_start_bytes.min(filled)
        };
        record.starts = record.starts.saturating_add(1);
        record.last_seen_s = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        record.managed_s = managed.as_secs_f64();
        record.overhead_percent = self.overhead_percent.or(record.overhead_percent);
        record.huge_share = self.huge_share;
        record.resident_bytes = self.resident_bytes;
        record.promoted = self.promoted;
        record.split = self.split;
        record.pages = sizes
            .iter()
            .filter(|size| size.pages > 0)
            .map(|size| (size.page_bytes, size.pages))
            .collect();
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::super::executable::Build;
    use super::*;
    use hawkeye_policy::PageOrder;

    const SMALL: PageOrders = PageOrders::NONE.with(PageOrder::CONTIGUOUS);

    fn page(from_start: bool) -> Page {
        let executable = Executable {
            path: "/bin/a".into(),
            build: Build::Note("1".into()),
            user: 0,
            same_mounts: true,
        };
        Page::new(Record::new(executable), from_start, Duration::ZERO)
    }

    fn chosen(page: &mut Page, orders: PageOrders, at_s: u64) {
        let now = Duration::from_secs(at_s);
        page.turn(now);
        page.sizes = Some((orders, now));
    }

    #[test]
    fn the_sizes_that_held_longest_are_best() {
        let mut page = page(true);
        chosen(&mut page, SMALL, 10);
        chosen(&mut page, PageOrders::NONE, 40);
        chosen(&mut page, SMALL, 45);
        let record = page.close(Duration::from_secs(60), &[]).expect("it has");
        assert_eq!((record.fault_sizes(), record.starts), (Some(SMALL), 1));
    }

    #[test]
    fn a_file_system_that_does_not_answer_is_not_waited_for_twice() {
        let name = format!("hawkeye-{}-notebook", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let learned = Learned::open(folder.clone()).expect("a folder");
        let (let_go, held) = std::sync::mpsc::channel::<()>();
        let read = move |pid| {
            if pid == 1 {
                let _ = held.recv();
            }
            Executable::of(std::process::id())
        };
        let mut notebook = Notebook::reading(learned, read);
        let process = |pid| ProcessId {
            pid,
            start_ticks: 1,
        };
        let is_open = |notebook: &Notebook, pid| notebook.pages.contains_key(&process(pid));
        let all = [process(1), process(2)];
        notebook.update(&all[1..], Duration::ZERO, Vec::new);
        assert!(is_open(&notebook, 2));
        let begun = Instant::now();
        for _ in 0..1000 {
            notebook.update(&all, Duration::ZERO, Vec::new);
        }
        // Not 20 s.
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert!(!is_open(&notebook, 1) && is_open(&notebook, 2));
        let_go.send(()).expect("it waits");
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_open(&notebook, 1) && Instant::now() < deadline {
            notebook.update(&all, Duration::ZERO, Vec::new);
        }
        assert!(is_open(&notebook, 1));
        std::fs::remove_dir_all(folder).expect("removes");
    }

    #[test]
    fn who_was_there_before_or_for_a_moment_teaches_nothing() {
        assert_eq!(page(false).close(Duration::from_secs(60), &[]), None);
        assert_eq!(page(true).close(Duration::from_secs(1), &[]), None);
    }

    #[test]
    fn what_every_start_has_filled_may_be_filled_ahead() {
        let mut record = None;
        for bytes in [4 << 30, 3 << 30, 5 << 30] {
            let mut page = page(true);
            if let Some(record) = record {
                page.known = record;
            }
            page.filled_at_start_bytes = Some(bytes);
            record = page.close(Duration::from_secs(60), &[]);
        }
        assert_eq!(record.map(|record| record.warm_bytes()), Some(3 << 30));
    }
}
