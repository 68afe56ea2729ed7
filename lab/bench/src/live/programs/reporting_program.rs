//! Servers and their load generators, which print the rate at intervals. A load generator may be
//! the measured program itself.

use super::client_server_cores::restrict_client_command;
use super::running_process::{RunningProcess, send_signal, signal_when_parent_thread_ends};
use crate::live::prelude::*;
use hawkeye_workload::line_reader_thread::spawn_line_reader_thread;
use hawkeye_workload::{AnswerLatencies, RequestSchedule};
use nix::sys::signal::Signal;
use std::io::Read;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

/// Interval of the reports, in seconds: the programs' minimum.
pub(super) const REPORT_S: u64 = 1;
/// Longest time between two reports.
pub(super) const SILENCE: Duration = Duration::from_secs(10);

/// Operations per second since the previous report, and seconds since the start.
pub(super) type RateReport = (f64, f64);

/// Starts a load generator of its own on the client's cores.
pub(super) fn start_load_generator(mut command: Command) -> BenchResult<RunningProcess> {
    signal_when_parent_thread_ends(&mut command, Signal::SIGKILL);
    restrict_client_command(&mut command);
    RunningProcess::start(&mut command, Signal::SIGKILL)
}

/// A server that can get transactions at a fixed pace.
pub(super) trait PacedServer: Send {
    /// As [`MeasuredProgram::measure_answer_latencies`], over a new connection.
    fn measure_transaction_latencies(
        &self,
        pace: RequestSchedule,
    ) -> BenchResult<Option<AnswerLatencies>>;
}

/// A program without clients has no transactions.
impl PacedServer for tempfile::TempDir {
    fn measure_transaction_latencies(
        &self,
        _pace: RequestSchedule,
    ) -> BenchResult<Option<AnswerLatencies>> {
        Ok(None)
    }
}

/// The load generator pauses by a signal.
pub(super) struct ReportingProgram<S> {
    // Dropped first: a client must not outlive its server.
    _generator: RunningProcess,
    /// The generator's process, which is not that of its launcher.
    generator_pid: u32,
    reports: Receiver<RateReport>,
    pid: u32,
    /// What the program needs while it runs.
    server: S,
}

impl<S> ReportingProgram<S> {
    /// `pid`: that of the measured program. The generator works already, and is paused here.
    pub(super) fn new_paused(
        generator: RunningProcess,
        generator_pid: u32,
        reports: Receiver<RateReport>,
        pid: u32,
        server: S,
    ) -> BenchResult<Self> {
        let program = Self { _generator: generator, generator_pid, reports, pid, server };
        program.signal_generator(Signal::SIGSTOP)?;
        Ok(program)
    }

    fn signal_generator(&self, signal: Signal) -> BenchResult<()> {
        let sent = send_signal(self.generator_pid, signal);
        sent.map_err(|errno| impossible!("the load generator has ended: {errno}"))
    }
}

impl<S: PacedServer> MeasuredProgram for ReportingProgram<S> {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn start_work(&mut self) -> BenchResult<()> {
        self.signal_generator(Signal::SIGCONT)
    }

    fn pause_work(&mut self) -> BenchResult<()> {
        self.signal_generator(Signal::SIGSTOP)
    }

    fn measure_operations_per_s(
        &mut self,
        length: Duration,
        mark: &mut dyn FnMut(),
    ) -> BenchResult<f64> {
        measure_reported_rate(&self.reports, length, mark)
    }

    fn measure_answer_latencies(
        &mut self,
        pace: RequestSchedule,
    ) -> BenchResult<Option<AnswerLatencies>> {
        self.server.measure_transaction_latencies(pace)
    }

    fn prepare_to_end(&mut self) -> BenchResult<()> {
        if self.generator_pid == self.pid {
            return self.signal_generator(Signal::SIGCONT);
        }
        self.signal_generator(Signal::SIGKILL)
    }
}

impl<S> Drop for ReportingProgram<S> {
    fn drop(&mut self) {
        // A stopped process does not end at SIGTERM. If it has ended already, this does nothing.
        let _ = self.signal_generator(Signal::SIGCONT);
    }
}

/// As [`MeasuredProgram::measure_operations_per_s`], of a load generator that works.
pub(super) fn measure_reported_rate(
    reports: &Receiver<RateReport>,
    length: Duration,
    mark: &mut dyn FnMut(),
) -> BenchResult<f64> {
    while reports.try_recv().is_ok() {}
    let next_report = || wait_for_parsed_line(reports, SILENCE);
    // The first report may cover a time in which the generator was stopped.
    let (_, begun_s) = next_report()?;
    mark();
    let (mut operations, mut last_s) = (0.0, begun_s);
    loop {
        let (per_s, at_s) = next_report()?;
        operations += per_s * (at_s - last_s);
        last_s = at_s;
        if last_s - begun_s >= length.as_secs_f64() {
            mark();
            return Ok(operations / (last_s - begun_s));
        }
    }
}

/// What `parse` finds in the lines of a program's output, as they come.
pub(in crate::live) fn receive_parsed_lines<T: Send + 'static>(
    output: Option<impl Read + Send + 'static>,
    parse: fn(&str) -> Option<T>,
) -> Receiver<T> {
    output.map_or_else(|| mpsc::channel().1, |output| spawn_line_reader_thread(output, parse))
}

pub(in crate::live) fn wait_for_parsed_line<T>(
    lines: &Receiver<T>,
    at_most: Duration,
) -> BenchResult<T> {
    lines.recv_timeout(at_most).map_err(|error| match error {
        RecvTimeoutError::Timeout => {
            impossible!("the program printed nothing for {} s", at_most.as_secs())
        }
        RecvTimeoutError::Disconnected => impossible!("the program has ended"),
    })
}
