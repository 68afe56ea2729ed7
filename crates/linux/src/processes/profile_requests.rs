//! The profiles that workloads ask for themselves, as the rules see them
//! ([`hawkeye_policy::ProfileRequest`]).
//!
//! ```text
//!  attribute of a cgroup   user.hawkeye.profile, the nearest cgroup first
//!  pod_annotations         annotation of the pod, from the container runtime by grpc_call
//!  unit_files              [X-HawkEye] of the systemd unit
//! ```
//! The first that is there counts.

mod grpc_call;
mod pod_annotations;
mod unit_files;

pub use grpc_call::GrpcError;
#[doc(hidden)]
pub use grpc_call::call_unary;
pub use pod_annotations::{ANNOTATION, CriError, PodAnnotationStatus, count_pods};

use crate::error::Result;
use crate::memory::cgroup_limits::process_cgroup::leads_out;
use crate::memory::cgroup_limits::{cgroup_folder, outermost_levels};
use crate::processes::process_attributes::{read_process_attributes, system_units_of_cgroup};
use crate::processes::user_names::UserNames;
use hawkeye_policy::{ProcessAttributes, ProfileRequest, ProfileRequestSource};
use pod_annotations::{PodAnnotations, PodRequest};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where workloads may ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileRequestSources {
    /// In files of systemd units.
    pub units: bool,
    /// In attributes of cgroups.
    pub cgroups: bool,
    /// In annotations of pods, which the container runtime behind this socket reports.
    pub cri_socket: Option<PathBuf>,
}

impl ProfileRequestSources {
    /// Whether workloads may ask anywhere.
    pub fn any(&self) -> bool {
        self.units || self.cgroups || self.cri_socket.is_some()
    }
}

/// The attribute of a cgroup. systemd-oomd reads its own in the same way (`user.oomd_avoid`).
pub const CGROUP_ATTRIBUTE: &str = "user.hawkeye.profile";
/// Longest name that is read. Profiles have shorter ones.
const MAX_NAME_BYTES: usize = 64;
/// How long what unit files say is used.
const MAX_UNIT_AGE: Duration = Duration::from_secs(30);

/// How long one process may wait for the name service and for the container runtime.
const MOST_WAIT: Duration = Duration::from_secs(2);

/// The attributes of a process by which rules decide, for commands that judge one process: with
/// what its workload asks for in these places. Waits up to 2 s each for the name service and the
/// container runtime.
pub fn read_attributes_with_request(
    pid: u32,
    sources: ProfileRequestSources,
) -> Result<ProcessAttributes> {
    let mut attributes = read_attributes_with_user(pid, &UserNames::default())?;
    let reader = ProfileRequestReader::new(sources);
    let begun = Instant::now();
    loop {
        attributes.request_pending = false;
        reader.add_request(&mut attributes);
        if !attributes.request_pending || begun.elapsed() > MOST_WAIT {
            return Ok(attributes);
        }
        std::thread::sleep(MOST_WAIT / 40);
    }
}

/// The attributes of a process, without what its workload asks for. Waits up to 2 s for the name
/// service where it does not know the user yet.
pub fn read_attributes_with_user(pid: u32, users: &UserNames) -> Result<ProcessAttributes> {
    let mut attributes = read_process_attributes(pid, users)?;
    if attributes.user_pending {
        let user = users.name_within_time(attributes.uid, MOST_WAIT);
        (attributes.user, attributes.user_pending) = (user.text, user.pending);
    }
    Ok(attributes)
}

/// Finds out what workloads ask for.
#[derive(Debug, Default)]
pub(crate) struct ProfileRequestReader {
    sources: ProfileRequestSources,
    pods: Option<PodAnnotations>,
    units: RefCell<UnitProfileCache>,
    /// The unified cgroup hierarchy. Version 1 cgroups have no such attributes.
    cgroup_root: Option<PathBuf>,
}

/// Many processes are in the same units.
#[derive(Debug, Default)]
struct UnitProfileCache {
    begun: Option<Instant>,
    profiles: HashMap<String, Option<String>>,
}

impl ProfileRequestReader {
    pub(crate) fn new(sources: ProfileRequestSources) -> Self {
        let cgroup_root = if sources.cgroups { find_unified_hierarchy() } else { None };
        let pods = sources.cri_socket.clone().map(PodAnnotations::new);
        Self { pods, cgroup_root, sources, units: RefCell::default() }
    }

    /// Changes the sources. What is known from unchanged ones is kept.
    pub(crate) fn set_sources(&mut self, sources: ProfileRequestSources) {
        if self.sources != sources {
            *self = Self::new(sources);
        }
    }

    /// Adds the request to the attributes of a process. Does not wait for the container runtime.
    pub(crate) fn add_request(&self, attributes: &mut ProcessAttributes) {
        let root = self.cgroup_root.as_deref();
        let of_cgroup = root.and_then(|root| profile_of_cgroup(root, &attributes.cgroup));
        let (source, name) = match (of_cgroup, &attributes.pod, &self.pods) {
            (Some(name), ..) => (ProfileRequestSource::Cgroup, Some(name)),
            (None, Some(pod), Some(pods)) => match pods.request_of_pod(&pod.uid) {
                PodRequest::Pending => {
                    attributes.request_pending = true;
                    return;
                }
                PodRequest::Known(name) => (ProfileRequestSource::Pod, name),
            },
            (None, None, _) if self.sources.units => {
                (ProfileRequestSource::Unit, self.profile_of_units(&attributes.cgroup))
            }
            // The unit of a container is transient and has no files.
            _ => return,
        };
        attributes.profile_request = name.map(|name| {
            let name = name.chars().take(MAX_NAME_BYTES).collect();
            ProfileRequest { name, source }
        });
    }

    /// How reading pods' annotations goes; `None`: they are not read.
    pub(crate) fn pod_annotation_status(&self) -> Option<PodAnnotationStatus> {
        self.pods.as_ref().map(PodAnnotations::status)
    }

    /// The profile of the unit of a cgroup, else of the nearest slice above it that names one.
    fn profile_of_units(&self, cgroup: &str) -> Option<String> {
        let mut cache = self.units.borrow_mut();
        if cache.begun.is_none_or(|begun| begun.elapsed() > MAX_UNIT_AGE) {
            *cache = UnitProfileCache { begun: Some(Instant::now()), profiles: HashMap::new() };
        }
        system_units_of_cgroup(cgroup).into_iter().find_map(|unit| {
            let profile = cache.profiles.entry(unit.to_owned());
            let read = || unit_files::profile_of_unit(Path::new("/"), unit);
            profile.or_insert_with(read).clone()
        })
    }
}

/// Where the unified hierarchy is mounted: alone, or beside version 1's.
fn find_unified_hierarchy() -> Option<PathBuf> {
    let places = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
    places.into_iter().find(|place| place.join("cgroup.controllers").exists())
}

/// The attribute of the nearest cgroup that has it, among the outermost levels.
fn profile_of_cgroup(root: &Path, cgroup: &str) -> Option<String> {
    let path = outermost_levels(Path::new(cgroup));
    // Another namespace's path is not below this root.
    if leads_out(&path) {
        return None;
    }
    path.ancestors().find_map(|path| {
        let mut value = [0; MAX_NAME_BYTES];
        let folder = cgroup_folder(root, path);
        // Most cgroups have none. A longer value (ERANGE) is no profile's name.
        let bytes = rustix::fs::getxattr(folder, CGROUP_ATTRIBUTE, &mut value[..]).ok()?;
        Some(String::from_utf8_lossy(&value[..bytes]).trim_end_matches(['\0', '\n']).to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_test_support::this_test;
    use rustix::fs::{XattrFlags, setxattr};
    use std::fs;

    fn set(folder: &Path, value: &str) -> rustix::io::Result<()> {
        setxattr(folder, CGROUP_ATTRIBUTE, value.as_bytes(), XattrFlags::empty())
    }

    #[test]
    fn the_nearest_cgroup_with_the_attribute_decides() {
        if !nix::unistd::geteuid().is_root() {
            return this_test!().skip("it needs root");
        }
        let Some(root) = find_unified_hierarchy() else {
            return this_test!().skip("there is no version 2 cgroup hierarchy");
        };
        let name = format!("hawkeye-test-{}", std::process::id());
        let (outer, inner) = (root.join(&name), root.join(&name).join("inner"));
        fs::create_dir_all(&inner).expect("cgroups can be made");
        let path = format!("/{name}/inner");
        let none = profile_of_cgroup(&root, &path);
        let set_outer = set(&outer, "guard");
        let inherited = profile_of_cgroup(&root, &path);
        let set_inner = set(&inner, "never\n");
        let own = profile_of_cgroup(&root, &path);
        let outside = profile_of_cgroup(&root, &format!("/../{name}/inner"));
        fs::remove_dir(&inner).and_then(|()| fs::remove_dir(&outer)).expect("they are removed");
        assert_eq!((set_outer, set_inner), (Ok(()), Ok(())));
        let found = [none, inherited, own, outside];
        let found = found.each_ref().map(Option::as_deref);
        assert_eq!(found, [None, Some("guard"), Some("never"), None]);
    }

    #[test]
    fn deep_nesting_is_not_read_to_its_end() {
        if !nix::unistd::geteuid().is_root() {
            return this_test!().skip("it needs root");
        }
        let Some(root) = find_unified_hierarchy() else {
            return this_test!().skip("there is no version 2 cgroup hierarchy");
        };
        let name = format!("hawkeye-deep-{}", std::process::id());
        let outer = root.join(&name);
        let inner = outer.join(["x"; 40].join("/"));
        fs::create_dir_all(&inner).expect("cgroups can be made");
        let path = format!("/{name}{}", "/x".repeat(40));
        let was_set = (set(&outer, "guard"), set(&inner, "never"));
        let found = profile_of_cgroup(&root, &path);
        for folder in inner.ancestors().take(41) {
            fs::remove_dir(folder).expect("it is removed");
        }
        assert_eq!(was_set, (Ok(()), Ok(())));
        assert_eq!(found.as_deref(), Some("guard"));
    }

    #[test]
    fn a_process_of_a_pod_waits_for_the_runtime_and_others_do_not() {
        let cri_socket = Some(PathBuf::from("/nonexistent/containerd.sock"));
        let sources = ProfileRequestSources { cri_socket, ..ProfileRequestSources::default() };
        assert!(sources.any() && !ProfileRequestSources::default().any());
        let mut reader = ProfileRequestReader::new(sources);
        let pod = hawkeye_policy::Pod {
            uid: "0f7c2c2f-1e6b-4a4e-9f57-2f5b0f3f7f10".into(),
            qos: hawkeye_policy::QosClass::Burstable,
        };
        let pending = |reader: &ProfileRequestReader, pod| {
            let mut process = ProcessAttributes { pod, ..ProcessAttributes::default() };
            reader.add_request(&mut process);
            process.request_pending
        };
        assert!(pending(&reader, Some(pod.clone())));
        assert!(!pending(&reader, None));
        reader.set_sources(ProfileRequestSources::default());
        assert!(!pending(&reader, Some(pod)));
    }
}
