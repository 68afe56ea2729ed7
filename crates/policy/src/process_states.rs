//! State of each process from one observation to the next.

use crate::observation::{Observation, ProcessId, ProcessSample};
use std::collections::HashMap;

#[derive(Clone, Debug)]
pub(crate) struct ProcessStates<T> {
    all: Vec<(ProcessId, T)>,
}

impl<T> ProcessStates<T> {
    /// Takes in a round. `update` gets each sample and the previous state of its process, if any.
    /// Processes that could not be read keep their state; missing ones are forgotten.
    pub(crate) fn observe(
        &mut self,
        observation: &Observation,
        mut update: impl FnMut(&ProcessSample, Option<T>) -> T,
    ) {
        let mut known: HashMap<ProcessId, T> = self.all.drain(..).collect();
        for sample in &observation.processes {
            self.all.push((sample.process, update(sample, known.remove(&sample.process))));
        }
        let unread = observation.unread.iter();
        self.all.extend(unread.filter_map(|process| known.remove_entry(process)));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.all.iter().map(|(_, member)| member)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (ProcessId, &mut T)> {
        self.all.iter_mut().map(|(process, member)| (*process, member))
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
        let count = |_: &ProcessSample, before: Option<u32>| before.unwrap_or(0) + 1;
        let all = observation(&[(1, vec![]), (2, vec![]), (3, vec![])]);
        members.observe(&all, count);
        let mut one = observation(&[(3, vec![])]);
        one.unread = vec![process(1), process(9)];
        members.observe(&one, count);
        assert_eq!(members.iter().copied().collect::<Vec<_>>(), [2, 1]);
        assert_eq!(members.get(process(2)), None);
        members.observe(&all, count);
        let seen: Vec<_> = members.iter_mut().map(|(p, n)| (p.pid, *n)).collect();
        assert_eq!(seen, [(1, 2), (2, 1), (3, 3)]);
    }
}
