//! Programs that use the workloads' line protocol: our workloads, scripts, and the clients of
//! servers.

use super::program_launcher::command_through_launcher;
use super::running_process::RunningProcess;
use crate::live::prelude::*;
use hawkeye_workload::{AnswerLatencies, RequestSchedule, WorkloadProcessError};
use std::ffi::OsStr;
use tempfile::TempDir;

const ANSWER: Duration = Duration::from_secs(30);
/// Longest time for the deletion of a server's keys.
const DELETION: Duration = Duration::from_secs(120);

pub(super) struct ProtocolProgram {
    // Dropped first: a client must not outlive its server.
    workload: WorkloadProcess,
    pid: u32,
    /// How long a piece of work may take, for a program that reads requests only between two.
    pub(super) last_piece: Option<Duration>,
    /// The measured server and its folder, if the workload is a client.
    server: Option<(RunningProcess, TempDir)>,
}

/// Makes one of our workloads report its count at this interval, and wait for a request before it
/// works.
pub(super) const COUNTING: &str = "--report-ms 20 --wait";

pub(super) fn start_workload_program(
    host: &BenchHost,
    words: &str,
    mib: u64,
) -> BenchResult<ProtocolProgram> {
    let words = format!("{words} --mib {mib} --pages base {COUNTING}");
    ProtocolProgram::from_workload_when_ready(host.start_workload(&words)?)
}

pub(super) fn protocol_program_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = command_through_launcher(program);
    hawkeye_linux::stop_signals::unblock_signals_in_child(&mut command);
    command
}

impl ProtocolProgram {
    /// Waits until the program has its data; it must not start to work by itself.
    pub(super) fn from_workload_when_ready(mut workload: WorkloadProcess) -> BenchResult<Self> {
        let pid = workload.wait_ready()?.pid;
        Ok(Self::from_ready_workload(workload, pid))
    }

    /// Wraps a program that is known to have its data.
    pub(super) fn from_ready_workload(workload: WorkloadProcess, pid: u32) -> Self {
        Self { workload, pid, last_piece: None, server: None }
    }

    pub(super) fn from_server_and_client(
        server: RunningProcess,
        folder: TempDir,
        client: WorkloadProcess,
    ) -> BenchResult<Self> {
        Ok(Self {
            pid: server.child.id(),
            server: Some((server, folder)),
            ..Self::from_workload_when_ready(client)?
        })
    }
}

impl MeasuredProgram for ProtocolProgram {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn start_work(&mut self) -> BenchResult<()> {
        Ok(self.workload.send_request(WorkloadRequest::Go)?)
    }

    fn pause_work(&mut self) -> BenchResult<()> {
        self.workload.send_request(WorkloadRequest::Stop)?;
        if let Some(at_most) = self.last_piece {
            // The program answers as soon as it has paused.
            self.workload.request_and_wait(WorkloadRequest::Rss, at_most)?;
        }
        Ok(())
    }

    fn measure_operations_per_s(
        &mut self,
        length: Duration,
        mark: &mut dyn FnMut(),
    ) -> BenchResult<f64> {
        Ok(self.workload.measure_rate_marked(length, mark)?)
    }

    fn works_in_one_thread(&self) -> bool {
        self.server.is_some()
    }

    fn delete_keys(&mut self, percent: u8) -> BenchResult<bool> {
        if self.server.is_none() {
            return Ok(false);
        }
        self.workload
            .request_value(WorkloadRequest::Delete(percent), DELETION, |event| {
                matches!(event, WorkloadEvent::Deleted { .. }).then_some(true)
            })
            .map_err(Into::into)
    }

    fn measure_answer_latencies(
        &mut self,
        pace: RequestSchedule,
    ) -> BenchResult<Option<AnswerLatencies>> {
        if self.server.is_none() {
            return Ok(None);
        }
        let at_most = pace.answers_time_limit() + ANSWER;
        match self.workload.request_and_wait(WorkloadRequest::Latencies(pace), at_most)? {
            WorkloadEvent::Answered(latencies) => Ok(Some(latencies)),
            other => Err(WorkloadProcessError::Protocol(format!("{other:?}")).into()),
        }
    }
}
