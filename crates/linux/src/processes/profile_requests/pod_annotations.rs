//! The profiles that Kubernetes pods ask for: an annotation, which the container runtime reports
//! through the Container Runtime Interface (CRI).
//!
//! The kubelet gives the runtime a pod's annotations when it makes the pod's sandbox, and never
//! again. So one answer holds as long as the pod. A call is made only for a pod that is not known,
//! in a thread, and callers do not wait for it. The only call is `ListPodSandbox`, which changes
//! nothing. The runtime's socket has no lesser right than all of it: docs/operate/security.md.
//!
//! Three nested messages with a few strings do not need a library for protocol buffers. Their
//! fields: `pkg/apis/runtime/v1/api.proto` of github.com/kubernetes/cri-api.

use super::grpc_call::{GrpcError, call_unary};
use crate::mutex::lock;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;

/// The annotation with the name of a profile.
pub const ANNOTATION: &str = "hawkeye.dev/profile";

/// A call ends after this time.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Time from a failed call to the next.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(10);
/// After this time, what is known of pods is read again. It is used until then.
const MAX_AGE: Duration = Duration::from_secs(600);
/// Most unknown pods that wait for an answer.
const MAX_REQUESTED: usize = 4096;

/// Why pods' annotations are not known.
#[derive(Debug, Error)]
pub enum CriError {
    /// The call failed.
    #[error(transparent)]
    Call(#[from] GrpcError),
    /// The runtime answers with something else than pods.
    #[error("the answer is not a list of pod sandboxes")]
    Malformed,
}

/// What a pod asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodRequest {
    /// The runtime has not answered yet.
    Pending,
    /// The value of its annotation, if it has one.
    Known(Option<String>),
}

/// Annotations of this machine's pods. Clones share what is known.
#[derive(Clone, Debug)]
pub(super) struct PodAnnotations(Arc<PodAnnotationCache>);

#[derive(Debug)]
struct PodAnnotationCache {
    socket: PathBuf,
    state: Mutex<PodAnnotationState>,
}

#[derive(Debug, Default)]
struct PodAnnotationState {
    /// By the pod's uid.
    pods: HashMap<String, KnownPod>,
    /// Unknown pods that the next call is made for.
    requested: HashSet<String>,
    /// When the last call that succeeded ended.
    answered: Option<Instant>,
    /// Start of the call under way.
    calling_since: Option<Instant>,
    /// The last call, if it failed, and when.
    failure: Option<(Instant, CriError)>,
}

#[derive(Debug)]
struct KnownPod {
    annotation: Option<String>,
    last_used: Instant,
}

/// How reading pods' annotations goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodAnnotationStatus {
    /// The runtime's socket.
    pub socket: PathBuf,
    /// Number of known pods.
    pub pods: usize,
    /// Time since the last answer, in seconds. `None`: there has been none.
    pub answer_age_s: Option<f64>,
    /// Why the last call failed. `None`: it did not.
    pub last_error: Option<String>,
}

impl PodAnnotations {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self(Arc::new(PodAnnotationCache { socket, state: Mutex::default() }))
    }

    /// What the pod with this uid asks for.
    pub(super) fn request_of_pod(&self, uid: &str) -> PodRequest {
        let mut state = lock(&self.0.state);
        let known = state.pods.get_mut(uid).map(|pod| {
            pod.last_used = Instant::now();
            pod.annotation.clone()
        });
        if known.is_none() && state.requested.len() < MAX_REQUESTED {
            state.requested.insert(uid.to_owned());
        }
        let old = state.answered.is_none_or(|at| at.elapsed() > MAX_AGE);
        if known.is_none() || old {
            self.start_call(&mut state);
        }
        known.map_or(PodRequest::Pending, PodRequest::Known)
    }

    pub(super) fn status(&self) -> PodAnnotationStatus {
        let state = lock(&self.0.state);
        let waiting = state.calling_since.is_some_and(|since| since.elapsed() > CALL_TIMEOUT);
        let error = state.failure.as_ref().map(|(_, error)| error.to_string());
        PodAnnotationStatus {
            socket: self.0.socket.clone(),
            pods: state.pods.len(),
            answer_age_s: state.answered.map(|at| at.elapsed().as_secs_f64()),
            last_error: error.or_else(|| waiting.then(|| GrpcError::TimedOut.to_string())),
        }
    }

    /// Starts a call unless one is under way or has just failed.
    fn start_call(&self, state: &mut PodAnnotationState) {
        let failed = state.failure.as_ref();
        let pauses = failed.is_some_and(|(at, _)| at.elapsed() < PAUSE_AFTER_FAILURE);
        if state.calling_since.is_some() || pauses {
            return;
        }
        let (shared, asked) = (self.clone(), std::mem::take(&mut state.requested));
        let thread = thread::Builder::new().name("hawkeye-pods".into());
        // If the thread cannot be started, the next request tries again.
        if thread.spawn(move || shared.call(asked)).is_ok() {
            state.calling_since = Some(Instant::now());
        }
    }

    fn call(&self, asked: HashSet<String>) {
        let result = list_annotations_of_pods(&self.0.socket);
        let mut state = lock(&self.0.state);
        state.calling_since = None;
        match result {
            Ok(pods) => state.store(pods, asked, Instant::now()),
            Err(error) => {
                if state.failure.is_none() {
                    let socket = self.0.socket.display();
                    tracing::warn!("annotations of pods cannot be read from {socket}: {error}");
                }
                state.failure = Some((Instant::now(), error));
            }
        }
    }
}

impl PodAnnotationState {
    /// Stores an answer. A pod that was asked for and is not in it asks for nothing.
    fn store(&mut self, found: Vec<PodSandbox>, asked: HashSet<String>, now: Instant) {
        self.pods.retain(|_, pod| now.duration_since(pod.last_used) < MAX_AGE);
        let absent = asked.into_iter().filter(|uid| !self.pods.contains_key(uid));
        let absent: Vec<_> = absent.map(|uid| PodSandbox { uid, annotation: None }).collect();
        for PodSandbox { uid, annotation } in absent.into_iter().chain(found) {
            let pod = self.pods.entry(uid).or_insert(KnownPod { annotation: None, last_used: now });
            pod.annotation = annotation;
        }
        self.answered = Some(now);
        self.failure = None;
    }
}

/// A pod's sandbox, as far as it is read here.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PodSandbox {
    /// Of the pod, not of the sandbox.
    uid: String,
    annotation: Option<String>,
}

/// Number of pods with a running sandbox, and how many of them ask for a profile.
pub fn count_pods(socket: &Path) -> Result<(usize, usize), CriError> {
    let pods = list_annotations_of_pods(socket)?;
    Ok((pods.len(), pods.iter().filter(|pod| pod.annotation.is_some()).count()))
}

fn list_annotations_of_pods(socket: &Path) -> Result<Vec<PodSandbox>, CriError> {
    const METHOD: &str = "/runtime.v1.RuntimeService/ListPodSandbox";
    // ListPodSandboxRequest.filter.state.state = SANDBOX_READY. A pod has one such sandbox at most.
    const READY: &[u8] = &[0x0a, 2, 0x12, 0];
    let answer = call_unary(socket, METHOD, READY, CALL_TIMEOUT)?;
    parse_pod_sandboxes(&answer).ok_or(CriError::Malformed)
}

/// Parses a `ListPodSandboxResponse`.
fn parse_pod_sandboxes(response: &[u8]) -> Option<Vec<PodSandbox>> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut pods = Vec::new();
    for (_, sandbox) in fields(response)?.into_iter().filter(|(number, _)| *number == 1) {
        let mut pod = PodSandbox { uid: String::new(), annotation: None };
        for (number, content) in fields(sandbox)? {
            match number {
                // PodSandbox.metadata.uid
                2 => pod.uid = text(field(content, 2)?),
                // PodSandbox.annotations, a map: an entry is a key and its value
                6 if field(content, 1)? == ANNOTATION.as_bytes() => {
                    pod.annotation = Some(text(field(content, 2)?));
                }
                _ => {}
            }
        }
        pods.push(pod);
    }
    Some(pods)
}

/// The last field with this number, as the format demands; empty where it is missing.
fn field(message: &[u8], number: u64) -> Option<&[u8]> {
    let found = fields(message)?.into_iter().rev().find(|(other, _)| *other == number);
    Some(found.map_or(&[][..], |(_, content)| content))
}

/// The fields of a message with their numbers: strings and messages, without numbers. `None`: it is
/// no message (protobuf.dev, "Encoding").
fn fields(mut message: &[u8]) -> Option<Vec<(u64, &[u8])>> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let tag = take_varint(&mut message)?;
        let bytes = match tag & 7 {
            0 => {
                take_varint(&mut message)?;
                continue;
            }
            1 => 8,
            2 => usize::try_from(take_varint(&mut message)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (content, rest) = message.split_at_checked(bytes)?;
        message = rest;
        if tag & 7 == 2 {
            found.push((tag >> 3, content));
        }
    }
    Some(found)
}

fn take_varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 127) << shift;
        if *byte < 128 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An answer of containerd 1.6.20 with one pod.
    const ANSWER: &[u8] = b"\n\xa0\x01\
        \n@cfa05e4c85dea8500fb9299359228b0fa3d20540b5c7e518fe950b677e176a51\
        \x124\n\x03web\x12$0f7c2c2f-1e6b-4a4e-9f57-2f5b0f3f7f10\x1a\x07default\
        \x20\xa5\x9d\xdc\x9a\xc2\xb5\x84\xf6\x18\
        2\x1c\n\x13hawkeye.dev/profile\x12\x05guard";
    const UID: &str = "0f7c2c2f-1e6b-4a4e-9f57-2f5b0f3f7f10";

    fn sandbox(uid: &str, annotation: Option<&str>) -> PodSandbox {
        PodSandbox { uid: uid.into(), annotation: annotation.map(str::to_owned) }
    }

    #[test]
    fn the_annotation_is_found_in_a_real_answer() {
        assert_eq!(parse_pod_sandboxes(ANSWER), Some(vec![sandbox(UID, Some("guard"))]));
        // Its last 30 bytes are the annotation.
        let without = [&b"\n\x82\x01"[..], &ANSWER[3..ANSWER.len() - 30]].concat();
        assert_eq!(parse_pod_sandboxes(&without), Some(vec![sandbox(UID, None)]));
        assert_eq!(parse_pod_sandboxes(&ANSWER[..ANSWER.len() - 1]), None);
        assert_eq!(parse_pod_sandboxes(b""), Some(Vec::new()));
    }

    #[test]
    fn a_pod_is_pending_until_the_answer_after_its_request() {
        let mut state = PodAnnotationState::default();
        let begin = Instant::now();
        let asked = HashSet::from(["foreign".to_owned()]);
        state.store(vec![sandbox("a", Some("never")), sandbox("b", None)], asked, begin);
        let annotation = |state: &PodAnnotationState, uid: &str| {
            state.pods.get(uid).map(|pod| pod.annotation.clone())
        };
        assert_eq!(annotation(&state, "a"), Some(Some("never".into())));
        assert_eq!(annotation(&state, "b"), Some(None));
        assert_eq!(annotation(&state, "foreign"), Some(None), "it is not the runtime's");
        assert_eq!(annotation(&state, "new"), None);
        // The sandbox of `a` is gone, but its processes may not be.
        state.store(Vec::new(), HashSet::new(), begin + MAX_AGE / 2);
        assert_eq!(annotation(&state, "a"), Some(Some("never".into())));
        state.store(Vec::new(), HashSet::new(), begin + MAX_AGE);
        assert!(state.pods.is_empty(), "{state:?}");
    }

    #[test]
    fn a_runtime_that_cannot_be_reached_is_reported_and_its_pods_stay_pending() {
        let pods = PodAnnotations::new("/nonexistent/containerd.sock".into());
        assert_eq!(pods.status().last_error, None);
        assert_eq!(pods.request_of_pod(UID), PodRequest::Pending);
        let deadline = Instant::now() + Duration::from_secs(60);
        while lock(&pods.0.state).failure.is_none() {
            assert!(Instant::now() < deadline, "the call ends");
            thread::sleep(Duration::from_millis(1));
        }
        let said = pods.status().last_error.unwrap_or_default();
        assert!(said.starts_with("connecting: "), "{said}");
        assert_eq!(pods.request_of_pod(UID), PodRequest::Pending);
        assert!(lock(&pods.0.state).calling_since.is_none(), "it pauses after a failure");
    }

    proptest! {
        #[test]
        fn no_answer_causes_a_panic(answer: Vec<u8>) {
            parse_pod_sandboxes(&answer);
        }
    }
}
