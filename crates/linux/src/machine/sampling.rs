//! Sampling of the managed processes, a slice of work at a time.

use super::LinuxMachine;
use crate::processes::process;
use crate::sample::sampler::{ProcessWorkSlice, Sampler};
use hawkeye_manager::machine::{CallResult, ResumableCallResult};
use hawkeye_manager::{Sampling, SliceProgress};
use hawkeye_policy::{ProcessId, ProcessSample, RegionSample, SampleKinds};
use std::time::Duration;

impl Sampling for LinuxMachine {
    fn start_window(
        &mut self,
        process: ProcessId,
        needs: SampleKinds,
        until: Duration,
    ) -> ResumableCallResult<()> {
        self.run_sampler_slice(process, until, |sampler, slice| {
            // Coverage is for promotions alone, and costs a clear of the whole process.
            match slice.member.terms_in_force().promotes || !needs.includes_coverage() {
                true => sampler.start_window(slice, needs),
                false => Ok(SliceProgress::Done(())),
            }
        })
    }

    fn probe(&mut self, process: ProcessId, until: Duration) -> CallResult<Option<Duration>> {
        self.run_sampler_slice(process, until, |sampler, slice| {
            sampler.continue_walk_probing(slice)
        })
    }

    fn sample(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> ResumableCallResult<ProcessSample> {
        let sampled =
            self.run_sampler_slice(process, until, |sampler, slice| sampler.read_sample(slice))?;
        let mut sample = match sampled {
            SliceProgress::Done(sample) => sample,
            SliceProgress::Unfinished(wait) => return Ok(SliceProgress::Unfinished(wait)),
        };
        let member = self.members.get_mut(process)?;
        sample.terms = member.terms_in_force();
        if !sample.terms.promotes {
            // Recovery needs its huge pages, and what became of those it has split. Nothing else
            // was probed.
            let lost = &member.lost_huge_pages;
            sample.regions.retain(|region| lost.is_needed_for_recovery(region));
            sample.overhead = None;
        }
        self.mark_partly_mapped(process, &mut sample.regions, until)?;
        let member = self.members.get_mut(process)?;
        if !member.thp_disabled {
            self.sizing.add_page_size_choice_inputs(&mut sample, &member.eligible);
        }
        // Of a process that is not promoted only part is in the sample.
        if let Some(recorder) = self.profile_recorder.as_mut().filter(|_| sample.terms.promotes) {
            recorder.record_sample(&sample);
        }
        self.peak_excluded_bytes = self.peak_excluded_bytes.max(self.members.nohugepage_bytes());
        Ok(SliceProgress::Done(sample))
    }

    fn list_huge_pages(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> ResumableCallResult<Vec<RegionSample>> {
        let list = |sampler: &mut dyn Sampler, slice: &mut ProcessWorkSlice| {
            sampler.list_huge_pages(slice)
        };
        let listed = self.run_sampler_slice(process, until, list)?;
        let SliceProgress::Done(mut regions) = listed else { return Ok(listed) };
        self.mark_partly_mapped(process, &mut regions, until)?;
        Ok(SliceProgress::Done(regions))
    }

    fn cpu_time(&self, process: ProcessId) -> Option<Duration> {
        // Processes that the target names are few, and all that they do is shown.
        self.target.selector()?;
        process::cpu_time(process.pid).ok()
    }

    fn abandon_all_windows(&mut self) {
        self.sampler.abandon_all_windows();
    }

    fn first_touch_cost(&self) -> Duration {
        self.first_touch_cost
    }
}
