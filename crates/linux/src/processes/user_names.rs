//! Names of users. A directory service may take minutes to answer, so callers do not wait for it.

use crate::mutex::lock;
use nix::unistd::{Uid, User};
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Threads that may wait for the name service at once. A request without an answer occupies its
/// thread forever.
const MOST_LOOKUPS: usize = 4;
/// Names that may wait for a thread. Beyond that, user ids are shown.
const MOST_WAITING: usize = 1024;
/// A name older than this is looked up again. The old one is used until the answer arrives.
const MOST_AGE: Duration = Duration::from_secs(600);
/// Most names that are kept. When there are more, all are forgotten.
const MOST_KNOWN: usize = 16384;
const PASSWD: &str = "/etc/passwd";

/// The name of a user, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserName {
    /// The name, or the user id if the name is not known.
    pub text: String,
    /// Whether the name service has not answered yet.
    pub pending: bool,
}

/// Names of users. It reads `/etc/passwd` directly, and its threads ask the name service about all
/// other users. Clones share the known names.
#[derive(Clone)]
pub struct UserNames(Arc<NameCache>);

/// Looks up a user's name, and may take any time. `None`: there is no such user.
type NameLookupFn = Box<dyn Fn(u32) -> Option<String> + Send + Sync>;

struct NameCache {
    state: Mutex<NameCacheState>,
    answered: Condvar,
    look_up: NameLookupFn,
}

#[derive(Default)]
struct NameCacheState {
    local: LocalUsers,
    /// Each with the time of its lookup.
    known: HashMap<u32, (String, Instant)>,
    waiting: VecDeque<u32>,
    /// Users that a thread is looking up at the moment.
    requested: Vec<u32>,
}

impl Default for UserNames {
    fn default() -> Self {
        Self::with_lookup(Box::new(|uid| {
            let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
            user.map(|user| user.name)
        }))
    }
}

impl UserNames {
    fn with_lookup(look_up: NameLookupFn) -> Self {
        Self(Arc::new(NameCache { state: Mutex::default(), answered: Condvar::new(), look_up }))
    }

    /// The user's name, without waiting for the name service.
    pub fn name(&self, uid: u32) -> UserName {
        self.cached_name_and_start_lookup(&mut lock(&self.0.state), uid)
    }

    /// As [`Self::name`], but waits up to `most` for the name service.
    pub fn name_within_time(&self, uid: u32, most: Duration) -> UserName {
        let deadline = Instant::now() + most;
        let mut state = lock(&self.0.state);
        loop {
            let name = self.cached_name_and_start_lookup(&mut state, uid);
            let left = deadline.saturating_duration_since(Instant::now());
            if !name.pending || left.is_zero() {
                return name;
            }
            let waited = self.0.answered.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn cached_name_and_start_lookup(&self, state: &mut NameCacheState, uid: u32) -> UserName {
        if let Some(name) = state.local.name(uid) {
            return UserName { text: name.to_owned(), pending: false };
        }
        let known = state.known.get(&uid);
        let name = known.map(|(name, _)| name.clone());
        if known.is_none_or(|(_, at)| at.elapsed() > MOST_AGE) {
            self.start_or_queue_lookup(state, uid);
        }
        UserName { pending: name.is_none(), text: name.unwrap_or_else(|| uid.to_string()) }
    }

    fn start_or_queue_lookup(&self, state: &mut NameCacheState, uid: u32) {
        let is_asked = state.requested.contains(&uid) || state.waiting.contains(&uid);
        if is_asked || state.waiting.len() >= MOST_WAITING {
            return;
        }
        if state.requested.len() >= MOST_LOOKUPS {
            state.waiting.push_back(uid);
            return;
        }
        let names = self.clone();
        let thread = thread::Builder::new().name("hawkeye-names".into());
        // If the thread cannot be started, the next request tries again.
        if thread.spawn(move || names.run_lookups(uid)).is_ok() {
            state.requested.push(uid);
        }
    }

    /// Asks the name service about one user, then about those that wait for a thread.
    fn run_lookups(&self, first: u32) {
        let mut next = Some(first);
        while let Some(uid) = next {
            let name = (self.0.look_up)(uid);
            let mut state = lock(&self.0.state);
            let name = name.unwrap_or_else(|| uid.to_string());
            if state.known.len() >= MOST_KNOWN {
                state.known.clear();
            }
            state.known.insert(uid, (name, Instant::now()));
            state.requested.retain(|asked| *asked != uid);
            next = state.waiting.pop_front();
            state.requested.extend(next);
            drop(state);
            self.0.answered.notify_all();
        }
    }
}

/// The users in `/etc/passwd`.
#[derive(Default)]
struct LocalUsers {
    names: HashMap<u32, String>,
    /// The version of the file that was read.
    version: Option<FileVersion>,
    looked: Option<Instant>,
}

/// Inode, size and time of a file.
type FileVersion = (u64, u64, i64, i64);

impl LocalUsers {
    /// Time between two checks whether the file has changed.
    const LOOK_EVERY: Duration = Duration::from_secs(1);

    fn name(&mut self, uid: u32) -> Option<&str> {
        if self.looked.is_none_or(|at| at.elapsed() > Self::LOOK_EVERY) {
            self.looked = Some(Instant::now());
            let found = fs::metadata(PASSWD).ok();
            let version = found.map(|it| (it.ino(), it.size(), it.mtime(), it.mtime_nsec()));
            if version != self.version {
                self.version = version;
                self.names = parse_passwd(&fs::read(PASSWD).unwrap_or_default());
            }
        }
        self.names.get(&uid).map(String::as_str)
    }
}

/// Parses the users of a file in the format of passwd(5). The first name for a user id counts.
fn parse_passwd(passwd: &[u8]) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for line in String::from_utf8_lossy(passwd).lines() {
        let mut fields = line.split(':');
        let (Some(name), Some(uid)) = (fields.next(), fields.nth(1)) else {
            continue;
        };
        // Lines that begin with these refer to a name service.
        if name.is_empty() || name.starts_with(['+', '-']) {
            continue;
        }
        if let Ok(uid) = uid.parse() {
            names.entry(uid).or_insert_with(|| name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// No user in `/etc/passwd` has such an id.
    const UNKNOWN: u32 = 3_999_999_000;

    #[test]
    fn a_passwd_file_is_read() {
        let text =
            b"root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:\nredis:x:106:1::/:\n+::::::\nbad\n\n";
        let names = parse_passwd(text);
        assert_eq!(names.get(&0).map(String::as_str), Some("root"));
        assert_eq!(names.get(&106).map(String::as_str), Some("redis"));
        assert_eq!(names.len(), 2);
    }

    #[test]
    fn local_users_are_known_at_once() {
        let names =
            UserNames::with_lookup(Box::new(|_| panic!("the name service must not be asked")));
        let root = UserName { text: "root".into(), pending: false };
        assert_eq!(names.name(0), root);
    }

    #[test]
    fn a_name_service_that_does_not_answer_is_not_waited_for() {
        let (answer, never) = channel::<()>();
        let never = Mutex::new(never);
        let names = UserNames::with_lookup(Box::new(move |uid| {
            let _ = never.lock().map(|it| it.recv());
            Some(format!("user-{uid}"))
        }));
        // More users than there are threads.
        for uid in UNKNOWN..UNKNOWN + 10 {
            let name = names.name(uid);
            assert!(name.pending);
            assert_eq!(name.text, uid.to_string());
        }
        assert_eq!(lock(&names.0.state).requested.len(), MOST_LOOKUPS);
        assert!(names.name_within_time(UNKNOWN, Duration::ZERO).pending);
        let other = names.name(0).text;
        assert_eq!(other, "root", "others have names meanwhile");
        // The name service answers at last.
        drop(answer);
        for uid in UNKNOWN..UNKNOWN + 10 {
            let name = names.name_within_time(uid, Duration::from_secs(60));
            assert_eq!(name.text, format!("user-{uid}"));
            assert!(!name.pending);
        }
    }

    #[test]
    fn a_user_without_a_name_has_its_number() {
        let names = UserNames::with_lookup(Box::new(|_| None));
        let name = names.name_within_time(UNKNOWN, Duration::from_secs(60));
        assert_eq!(name.text, UNKNOWN.to_string());
        assert!(!name.pending);
    }
}
