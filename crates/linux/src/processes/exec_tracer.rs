//! Reports programs within a millisecond of their start. A warm start cannot wait for the next
//! scan.

use crate::bpf_skeletons::exec_tracer::{ExecTracerSkel, ExecTracerSkelBuilder};
use crate::error::{LinuxError, Result};
use crate::processes::own_pid_namespace::OwnPidNamespace;
use crate::ring_buffer::RingBufferReader;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use std::mem::MaybeUninit;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedProgram {
    pub pid: u32,
    /// Its command name, at most 15 bytes.
    pub command: String,
}

/// Reports every program that is started, until it is dropped.
pub struct ExecTracer {
    // Declared before the program that writes to it, so that it is dropped first.
    pub(crate) reports: RingBufferReader<StartedProgram>,
    _skel: ExecTracerSkel<'static>,
}

impl ExecTracer {
    /// Loads and attaches the BPF program.
    pub fn attach() -> Result<Self> {
        let failed = |error: libbpf_rs::Error| {
            LinuxError::Bpf(format!("watching for started programs: {error:#}"))
        };
        // Never freed; this happens only as often as the rules change.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = ExecTracerSkelBuilder::default().open(storage).map_err(failed)?;
        if let (Some(own), Some(rodata)) =
            (OwnPidNamespace::own_if_not_first(), &mut open.maps.rodata_data)
        {
            rodata.pidns_dev = own.dev;
            rodata.pidns_ino = own.ino;
        }
        let mut skel = open.load().map_err(failed)?;
        skel.attach().map_err(failed)?;
        Ok(Self {
            reports: RingBufferReader::for_map(&skel.maps.started, parse_started_program)
                .map_err(failed)?,
            _skel: skel,
        })
    }
}

/// One `struct started_program`.
fn parse_started_program(bytes: &[u8]) -> Option<StartedProgram> {
    let pid = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    let command = bytes.get(4..)?.split(|byte| *byte == 0).next()?;
    Some(StartedProgram { pid, command: String::from_utf8_lossy(command).into_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let mut bytes = 7u32.to_ne_bytes().to_vec();
        bytes.extend(b"java\0rubbish\0\0\0\0");
        let java = StartedProgram { pid: 7, command: "java".into() };
        assert_eq!(parse_started_program(&bytes), Some(java));
        assert_eq!(parse_started_program(b"abc"), None);
    }
}
