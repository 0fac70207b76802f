//! Outcomes that callers of ledgers saw, compared with the contents of the ledgers.
//!
//! Every sender appends growing numbers to ledgers, and keeps the outcome of each. A ledger keeps for every sender the
//! numbers in the order in which they were appended. So a lost, doubled or reordered effect shows in the numbers
//! themselves, not only in how many there are. Witnesses show which activation of theirs answers: if two run at a time,
//! an observer of both sees the order go back.

use std::collections::BTreeMap;

use elastin::prelude::CallError;

use crate::{Log, Observation};

/// The outcome of a call, as its caller knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It ran, with the position of the number among the sender's in the ledger, from 1.
    Acknowledged(u64),
    /// It was rejected: it has not run and never will.
    Refused,
    /// It may have run, or may still.
    InDoubt,
}

/// The outcomes of one or several senders.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// By ledger and sender, the numbers in the order in which they were sent.
    calls: BTreeMap<(u64, u32), Vec<(u64, Known)>>,
    /// By ledger, the reads in order; each began after the one before had ended.
    reads: BTreeMap<u64, Vec<Log>>,
    /// By witness and observer, the observations in order.
    observations: BTreeMap<(u64, String), Vec<Observation>>,
}

/// The number of calls with each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that were acknowledged.
    pub acknowledged: u64,
    /// Calls that were refused.
    pub refused: u64,
    /// Calls in doubt.
    pub in_doubt: u64,
    /// The number of observations of witnesses.
    pub observations: u64,
}

impl History {
    /// A sender's append of a number to a ledger ended.
    ///
    /// # Panics
    /// If no fault of the cluster can cause the outcome.
    pub fn appended(&mut self, ledger: u64, sender: u32, number: u64, outcome: Result<u64, CallError>) {
        let known = outcome.map_or_else(|error| known_by(&error), Known::Acknowledged);
        self.calls.entry((ledger, sender)).or_default().push((number, known));
    }

    /// A sender sent a one-way append of a number to a ledger.
    ///
    /// # Panics
    /// If no fault of the cluster can cause the outcome.
    pub fn sent_one_way(&mut self, ledger: u64, sender: u32, number: u64, outcome: Result<(), CallError>) {
        let known = outcome.map_or_else(|error| known_by(&error), |()| Known::InDoubt);
        self.calls.entry((ledger, sender)).or_default().push((number, known));
    }

    /// An observer saw a turn of a witness. Those of one observer must be recorded in order, each begun after the one
    /// before had ended.
    pub fn saw(&mut self, witness: u64, observer: &str, observation: Observation) {
        let observations = self.observations.entry((witness, observer.to_owned())).or_default();
        observations.push(observation);
    }

    /// A ledger was read. Reads of one ledger must be recorded in order, each begun after the one before had ended.
    pub fn read(&mut self, ledger: u64, log: Log) {
        self.reads.entry(ledger).or_default().push(log);
    }

    /// Merges the outcomes of another sender.
    pub fn merge(&mut self, other: History) {
        self.calls.extend(other.calls);
        for (ledger, reads) in other.reads {
            assert!(
                self.reads.insert(ledger, reads).is_none(),
                "a ledger is read by one reader"
            );
        }
        for (of, observations) in other.observations {
            assert!(
                self.observations.insert(of, observations).is_none(),
                "an observer is there once"
            );
        }
    }

    /// The number of calls with each outcome.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for (_, known) in self.calls.values().flatten() {
            match known {
                Known::Acknowledged(_) => counts.acknowledged += 1,
                Known::Refused => counts.refused += 1,
                Known::InDoubt => counts.in_doubt += 1,
            }
        }
        counts.observations = self
            .observations
            .values()
            .map(|observations| observations.len() as u64)
            .sum();
        counts
    }

    /// Observations that contradict a single activation of each witness at a time.
    pub fn observation_violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        for ((witness, observer), observations) in &self.observations {
            for pair in observations.windows(2).filter(|pair| pair[0] >= pair[1]) {
                found.push(format!(
                    "witness {witness}: {observer} saw {:?}, and {:?} after it",
                    pair[0], pair[1]
                ));
            }
        }
        found
    }

    /// Violations in a ledger's final numbers.
    pub fn violations(&self, ledger: u64, log: &Log) -> Vec<String> {
        let mut found = Vec::new();
        for ((of, sender), calls) in &self.calls {
            if *of == ledger {
                let applied = log.get(sender).map_or(&[][..], Vec::as_slice);
                let context = format!("ledger {ledger}, sender {sender}");
                found.extend(
                    of_sender(calls, applied)
                        .into_iter()
                        .map(|violation| format!("{context}: {violation}")),
                );
            }
        }
        for (sender, numbers) in log {
            if !self.calls.contains_key(&(ledger, *sender)) {
                found.push(format!("ledger {ledger}, sender {sender}: {numbers:?} were never sent"));
            }
        }
        let reads = self.reads.get(&ledger).map_or(&[][..], Vec::as_slice);
        for (earlier, later) in reads.iter().zip(reads.iter().skip(1).chain([log])) {
            for (sender, numbers) in earlier {
                let then = later.get(sender).map_or(&[][..], Vec::as_slice);
                if !then.starts_with(numbers) {
                    found.push(format!(
                        "ledger {ledger}, sender {sender}: a read saw {numbers:?}, a later one {then:?}"
                    ));
                }
            }
        }
        found
    }
}

/// The conclusion that a caller may draw from a failed call.
fn known_by(error: &CallError) -> Known {
    match error {
        error if error.is_safe_to_retry() => Known::Refused,
        CallError::Unknown(_) | CallError::DeadlineExceeded | CallError::Cancelled => Known::InDoubt,
        other => panic!("no fault of the cluster causes {other:?}"),
    }
}

/// Violations among one sender's numbers in one ledger.
fn of_sender(calls: &[(u64, Known)], applied: &[u64]) -> Vec<String> {
    let mut found = Vec::new();
    if !applied.is_sorted_by(|one, next| one < next) {
        found.push(format!("doubled or out of order: {applied:?}"));
    }
    let known: BTreeMap<u64, Known> = calls.iter().copied().collect();
    for (number, known) in calls {
        let at = applied.iter().position(|applied| applied == number);
        match (known, at) {
            (Known::Acknowledged(_), None) => found.push(format!("{number} was acknowledged and is lost")),
            (Known::Acknowledged(count), Some(at)) if at as u64 + 1 != *count => {
                found.push(format!(
                    "{number} was acknowledged as number {count} and is number {}",
                    at + 1
                ));
            }
            (Known::Refused, Some(_)) => found.push(format!("{number} was rejected, but ran")),
            _ => {}
        }
    }
    for number in applied {
        if !known.contains_key(number) {
            found.push(format!("{number} was never sent"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEDGER: u64 = 7;
    const SENDER: u32 = 1;

    fn history(calls: &[(u64, Known)]) -> History {
        let calls = BTreeMap::from([((LEDGER, SENDER), calls.to_vec())]);
        History {
            calls,
            ..History::default()
        }
    }

    fn log(numbers: &[u64]) -> Log {
        Log::from([(SENDER, numbers.to_vec())])
    }

    fn check(calls: &[(u64, Known)], applied: &[u64], expected: &[&str]) {
        let found = history(calls).violations(LEDGER, &log(applied));
        let expected: Vec<String> = expected
            .iter()
            .map(|violation| format!("ledger {LEDGER}, sender {SENDER}: {violation}"))
            .collect();
        assert_eq!(found, expected);
    }

    const GOOD: [(u64, Known); 4] = [
        (1, Known::Acknowledged(1)),
        (2, Known::Refused),
        (3, Known::InDoubt),
        (4, Known::Acknowledged(2)),
    ];

    #[test]
    fn possible_histories_have_no_violations() {
        check(&GOOD, &[1, 4], &[]);
        check(&[(1, Known::InDoubt), (2, Known::Acknowledged(2))], &[1, 2], &[]);
        check(&[(1, Known::InDoubt)], &[], &[]);
    }

    #[test]
    fn lost_doubled_and_reordered_numbers_are_violations() {
        check(&GOOD, &[1], &["4 was acknowledged and is lost"]);
        check(
            &GOOD,
            &[1, 2, 4],
            &[
                "2 was rejected, but ran",
                "4 was acknowledged as number 2 and is number 3",
            ],
        );
        check(
            &[(1, Known::Acknowledged(1))],
            &[1, 1],
            &["doubled or out of order: [1, 1]"],
        );
        check(&[(1, Known::InDoubt)], &[1, 9], &["9 was never sent"]);
        let reordered = [(1, Known::InDoubt), (2, Known::InDoubt)];
        check(&reordered, &[2, 1], &["doubled or out of order: [2, 1]"]);
    }

    #[test]
    fn a_message_that_overtakes_another_is_a_violation() {
        let mut history = History::default();
        history.sent_one_way(LEDGER, SENDER, 1, Ok(()));
        history.sent_one_way(LEDGER, SENDER, 2, Ok(()));
        history.appended(LEDGER, SENDER, 3, Ok(3));
        let found = |numbers: &[u64]| history.violations(LEDGER, &log(numbers));
        assert_eq!(found(&[1, 2, 3]), [""; 0]);
        assert_eq!(
            found(&[2, 1, 3]),
            ["ledger 7, sender 1: doubled or out of order: [2, 1, 3]"]
        );
        // One-way messages may be lost, but then a later one could not be the third.
        assert_eq!(
            found(&[2, 3]),
            ["ledger 7, sender 1: 3 was acknowledged as number 3 and is number 2"]
        );
    }

    #[test]
    fn numbers_of_an_unknown_sender_are_a_violation() {
        let found = History::default().violations(LEDGER, &log(&[1, 2]));
        assert_eq!(found, ["ledger 7, sender 1: [1, 2] were never sent"]);
    }

    #[test]
    fn two_activations_at_a_time_are_a_violation() {
        const EARLIER: u64 = 100;
        const LATER: u64 = 200;
        let found = |seen: &[(u64, u64)]| {
            let mut history = History::default();
            for (since_ns, turn) in seen.iter().copied() {
                history.saw(7, "me", Observation { since_ns, turn });
                // Other observers and other witnesses are independent.
                history.saw(
                    7,
                    "you",
                    Observation {
                        since_ns: 500,
                        turn: history.counts().observations,
                    },
                );
            }
            history.observation_violations()
        };
        assert_eq!(found(&[(EARLIER, 1), (EARLIER, 4), (LATER, 1)]), [""; 0]);
        assert_eq!(
            found(&[(EARLIER, 4), (LATER, 1), (EARLIER, 5)]),
            [
                "witness 7: me saw Observation { since_ns: 200, turn: 1 }, and Observation { since_ns: 100, turn: 5 } after it"
            ]
        );
        // Not the same turn twice, either.
        assert_eq!(found(&[(EARLIER, 4), (EARLIER, 4)]).len(), 1);
    }

    #[test]
    fn a_read_of_an_older_state_is_a_violation() {
        let mut history = history(&[(1, Known::InDoubt), (2, Known::InDoubt)]);
        history.read(LEDGER, log(&[1]));
        history.read(LEDGER, log(&[1, 2]));
        assert_eq!(history.violations(LEDGER, &log(&[1, 2])), [""; 0]);
        let found = history.violations(LEDGER, &log(&[2]));
        assert_eq!(found, ["ledger 7, sender 1: a read saw [1, 2], a later one [2]"]);
    }
}
