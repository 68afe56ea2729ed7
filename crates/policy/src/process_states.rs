//! State of each process from one observation to the next.

use crate::observation::{Observation, ProcessId, ProcessSample};
use std::collections::{HashMap, HashSet};

#[derive(Clone, Debug)]
pub(crate) struct ProcessStates<T> {
    all: Vec<(ProcessId, T)>,
}

impl<T> ProcessStates<T> {
    /// Starts a round: each sample with the state of its process, which is `new` for a new process.
    /// Processes that could not be read keep their state; missing ones are forgotten.
    pub(crate) fn states_to_update<'a>(
        &'a mut self,
        observation: &'a Observation,
        new: impl Fn() -> T,
    ) -> impl Iterator<Item = (&'a ProcessSample, &'a mut T)> {
        let mut known: HashMap<ProcessId, T> = self.all.drain(..).collect();
        for ProcessSample { process, .. } in &observation.processes {
            self.all.push((*process, known.remove(process).unwrap_or_else(&new)));
        }
        let unread = observation.unread.iter();
        self.all.extend(unread.filter_map(|process| known.remove_entry(process)));
        observation.processes.iter().zip(self.all.iter_mut().map(|(_, member)| member))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.all.iter().map(|(_, member)| member)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (ProcessId, &mut T)> {
        self.all.iter_mut().map(|(process, member)| (*process, member))
    }

    /// All except those of the `held` processes.
    pub(crate) fn iter_mut_of_free(
        &mut self,
        held: &HashSet<ProcessId>,
    ) -> impl Iterator<Item = (ProcessId, &mut T)> {
        self.iter_mut().filter(|(process, _)| !held.contains(process))
    }

    pub(crate) fn get(&self, process: ProcessId) -> Option<&T> {
        self.all.iter().find_map(|(id, member)| (*id == process).then_some(member))
    }

    pub(crate) fn get_mut(&mut self, process: ProcessId) -> Option<&mut T> {
        self.all.iter_mut().find(|(id, _)| *id == process).map(|(_, member)| member)
    }

    pub(crate) fn push(&mut self, process: ProcessId, member: T) {
        self.all.push((process, member));
    }
}

impl<T> Default for ProcessStates<T> {
    fn default() -> Self {
        Self { all: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{observation, process};

    #[test]
    fn missing_members_are_dropped_and_unread_ones_kept() {
        let mut members = ProcessStates::default();
        let count = |members: &mut ProcessStates<u32>, observation: &Observation| {
            members.states_to_update(observation, || 0).for_each(|(_, rounds)| *rounds += 1);
        };
        let all = observation(&[(1, vec![]), (2, vec![]), (3, vec![])]);
        count(&mut members, &all);
        let mut one = observation(&[(3, vec![])]);
        one.unread = vec![process(1), process(9)];
        count(&mut members, &one);
        assert_eq!(members.iter().copied().collect::<Vec<_>>(), [2, 1]);
        assert_eq!(members.get(process(2)), None);
        count(&mut members, &all);
        let seen: Vec<_> = members.iter_mut().map(|(p, n)| (p.pid, *n)).collect();
        assert_eq!(seen, [(1, 2), (2, 1), (3, 3)]);
    }
}
