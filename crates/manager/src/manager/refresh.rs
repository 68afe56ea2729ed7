//! The look at the machine once a second: which processes exist, their sizes, and free memory.

use super::Manager;
use super::known_processes::KnownProcesses;
use super::refresh_schedule::FootprintReadProgress;
use super::sliced_process_queue::SlicedProcessQueue;
use crate::journal::FootprintAtTime;
use crate::machine::{LoopWakeReason, Machine, ProcessFootprint, SliceProgress};
use hawkeye_policy::{Event, ProcessId};
use std::collections::HashSet;
use std::time::Duration;

/// How long each kind of work goes on before memory is read again: looking, opening a window,
/// probing, reading and listing.
const SLICE: Duration = Duration::from_millis(8);
/// The shortest slice. Without it no work would get done where memory is read all the time.
const SHORTEST_SLICE: Duration = Duration::from_millis(1);

impl<M: Machine> Manager<M> {
    pub(super) fn refresh_if_due(&mut self, now: Duration) {
        if now >= self.processes.refresh.next && self.can_leave_out_look(now) {
            self.processes.refresh.schedule_regular_look(now);
        } else if now >= self.processes.refresh.next {
            self.begin_refresh(now);
        } else {
            self.continue_admitting_processes(now);
            self.read_due_memory(now);
        }
        self.continue_refresh(now);
    }

    pub(super) fn wait_until(&mut self, deadline: Duration) -> LoopWakeReason {
        let wake = self.machine.wait_until(deadline);
        match wake {
            LoopWakeReason::Joined => {
                self.processes.refresh.on_process_joined(self.machine.now());
            }
            // Samples show the settings of their processes.
            LoopWakeReason::Reload => {
                self.sampling.idle.forget_all();
                self.processes.refresh.request_look_at(self.machine.now());
            }
            LoopWakeReason::Deadline | LoopWakeReason::Stop | LoopWakeReason::Called => {}
        }
        wake
    }

    /// Goes on admitting processes, if many join. The next look sees all of them.
    fn continue_admitting_processes(&mut self, now: Duration) {
        if self.processes.refresh.joining.is_none_or(|again_at| again_at > now) {
            return;
        }
        self.admit_processes();
        if self.processes.refresh.joining.is_none() {
            self.processes.refresh.request_look_at(now);
        }
    }

    /// Known processes are handled while others still join.
    pub(super) fn admit_processes(&mut self) {
        let admitted = self.machine.admit_and_list_processes(self.slice_end());
        self.processes.record_admission(self.machine.now(), admitted);
    }

    /// End of a slice that begins now: at the next read of memory, if that is due earlier.
    pub(super) fn slice_end(&self) -> Duration {
        let now = self.machine.now();
        let (next, read_at) =
            (self.processes.refresh.next, self.memory.guard.next_memory_read_at());
        let due = read_at.map_or(next, |at| at.min(next));
        due.max(now + SHORTEST_SLICE).min(now + SLICE)
    }

    fn begin_refresh(&mut self, now: Duration) {
        self.processes.refresh.schedule_regular_look(now);
        self.processes.refresh.begun = now;
        self.admit_processes();
        // A scan for processes keeps to a share of its own.
        let cpu_before = self.machine.management_costs().cpu;
        self.forget_ended_processes(now);
        self.add_prefaulted_memory(now);
        self.read_and_assess_memory(now);
        self.update_prefault_limits();
        let cpu = self.machine.management_costs().cpu.saturating_sub(cpu_before);
        self.begin_or_extend_look(now, cpu);
    }

    /// A look that takes longer than the interval is not started anew. Processes that are new come
    /// first.
    fn begin_or_extend_look(&mut self, now: Duration, cpu: Duration) {
        let KnownProcesses { current, last_samples, refresh, .. } = &mut self.processes;
        let affordable_at = refresh.footprint_cpu_s.time_when_level_reached(now, 0.0);
        let look = refresh.under_way.get_or_insert_with(|| FootprintReadProgress {
            slices: SlicedProcessQueue::new(current.iter().copied(), affordable_at),
            cpu: Duration::ZERO,
            sum: FootprintAtTime { at_s: now.as_secs_f64(), ..Default::default() },
        });
        look.cpu += cpu;
        let is_new = |process: &ProcessId| last_samples.footprint(*process).is_none();
        look.slices.put_first(current.iter().copied().filter(is_new));
    }

    fn forget_ended_processes(&mut self, now: Duration) {
        let there: HashSet<ProcessId> = self.processes.current.iter().copied().collect();
        let is_there = |process| there.contains(&process);
        self.limits.regions.retain_processes(now, is_there);
        self.limits.savings.retain_processes(now, is_there);
        self.sampling.early.retain_processes(is_there);
        self.sampling.idle.retain_processes(is_there);
        self.recovery.lost_huge_pages.retain(|process| is_there(*process));
        self.journal.retain_processes(is_there);
        self.processes.retain_processes(is_there);
    }

    fn continue_refresh(&mut self, now: Duration) {
        let refresh = &mut self.processes.refresh;
        let Some(mut look) = refresh.under_way.take_if(|look| look.slices.again_at <= now) else {
            return;
        };
        let until = self.slice_end();
        let cpu_before = self.machine.management_costs().cpu;
        loop {
            let idle = &self.processes.refresh.idle;
            // Nothing where the process is idle.
            let measure = |machine: &mut M, process| {
                let cpu = machine.cpu_time(process);
                if idle.is_idle(now, process, cpu) {
                    return Ok(SliceProgress::Done(None));
                }
                let measured = machine.footprint(process, until);
                measured.map(|progress| progress.map(|footprint| Some((footprint, cpu))))
            };
            let next = look.slices.run_next(&mut self.machine, now, until, measure);
            let Some((process, measured)) = next else { break };
            // A process that just ended counts no more.
            let Ok(measured) = measured else { continue };
            let known = self.processes.last_samples.footprint(process);
            let footprint = measured.map(|(footprint, _)| footprint).or(known).unwrap_or_default();
            let ProcessFootprint { rss_bytes, huge_bytes, has_lost_huge_pages } = footprint;
            if has_lost_huge_pages {
                self.recovery.lost_huge_pages.insert(process);
            }
            look.sum.rss_bytes += rss_bytes;
            look.sum.huge_bytes += huge_bytes;
            if let Some((_, cpu)) = measured {
                let sizes = |of: ProcessFootprint| (of.rss_bytes, of.huge_bytes);
                let changed = known.map(sizes) != Some(sizes(footprint));
                self.processes.refresh.idle.record_read(now, process, cpu, changed);
                self.dispatch_event(now, Event::Measured { process, rss_bytes, huge_bytes });
            }
        }
        let cpu = self.machine.management_costs().cpu.saturating_sub(cpu_before);
        look.cpu += cpu;
        let left_s = &mut self.processes.refresh.footprint_cpu_s;
        left_s.draw_tokens_into_debt(now, cpu.as_secs_f64());
        if !look.slices.is_done() {
            let affordable_at = left_s.time_when_level_reached(now, 0.0);
            look.slices.again_at = look.slices.again_at.max(affordable_at);
            self.processes.refresh.under_way = Some(look);
            return;
        }
        // The last look before the end finds no process, which is no footprint of theirs.
        let rss_bytes = look.sum.rss_bytes;
        if rss_bytes > 0 {
            let KnownProcesses { current, last_samples, .. } = &self.processes;
            let is_sampled = current.iter().all(|process| last_samples.sample(*process).is_some());
            let again = last_samples.shared_memory().counted_again;
            self.journal.add_footprint(look.sum, again, is_sampled);
            // Coverage in growth shows what is being filled; probed page walks do not.
            let coverage = self.policy.sample_kinds().includes_coverage();
            let early = self.settings.early_samples && !coverage;
            let guard = &self.memory.guard;
            let in_danger = guard.is_recovering() || guard.will_be_full_within_seconds();
            let again = if early && in_danger {
                // A window would take time from recovery.
                None
            } else if early {
                let rested = self.limits.allow_early_samples(now);
                self.sampling.plan_early_window(now, rested);
                self.sampling.early.next_size_check(now, look.cpu).filter(|_| rested)
            } else {
                self.sampling.schedule_window_after_growth(now, rss_bytes, &self.settings)
            };
            let sooner = again.filter(|at| *at < self.processes.refresh.next);
            if let Some(at) = sooner {
                self.processes.refresh.request_look_at(at);
            }
        }
    }
}
