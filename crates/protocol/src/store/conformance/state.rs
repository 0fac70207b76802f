//! Script runner for state stores.

use std::time::Duration;

use elastin_types::Time;

use super::Mismatch;
use super::names::Names;
use crate::store::{
    Expected, MemoryTables, StateError, StateModel, StateReply, StateRequest, ValueKey, Version, Versioned,
};

/// How often a script tries to acquire a lock. A store needs more only if it reports remaining times that are too short.
const LOCK_TRIES_MAX: usize = 100;

/// A conformance script for state stores. Each uses its own actors and value names.
#[derive(Clone, Debug)]
pub struct StateScript {
    /// Its name.
    pub name: &'static str,
    /// Its steps.
    pub steps: Vec<StateStep>,
}

/// One step of a script. Versions are names.
#[derive(Clone, Debug)]
pub enum StateStep {
    /// Sends a request and checks its result. An expected `remaining` is an upper bound.
    Ask {
        /// The request.
        request: StateRequest,
        /// The expected result.
        expected: Result<StateReply, StateError>,
    },
    /// Acquires a lock once its holder's time has expired.
    Await {
        /// The lock.
        key: ValueKey,
        /// Time to live of the acquired lock.
        ttl: Duration,
        /// The name of the token.
        token: Version,
    },
}

/// An implementation under test.
pub trait StateSubject {
    /// Executes one request.
    fn request(&mut self, request: StateRequest) -> Result<StateReply, StateError>;

    /// Lets this much time pass.
    fn pass(&mut self, time: Duration);
}

impl StateScript {
    /// Runs the script over an implementation.
    pub fn run(&self, subject: &mut dyn StateSubject) -> Result<(), Mismatch> {
        let mut names = Names::default();
        for (index, step) in self.steps.iter().enumerate() {
            step.run(&mut names, subject).map_err(|(expected, actual)| Mismatch {
                script: self.name,
                step: index + 1,
                expected,
                actual,
            })?;
        }
        Ok(())
    }
}

impl StateStep {
    fn run(&self, names: &mut Names, subject: &mut dyn StateSubject) -> Result<(), (String, String)> {
        match self {
            StateStep::Ask { request, expected } => {
                let actual = subject.request(with_numbers(request.clone(), names));
                compare(names, expected.clone(), actual)
            }
            StateStep::Await { key, ttl, token } => {
                let expected = Ok(StateReply::Locked { token: *token });
                let (key, ttl) = (key.clone(), *ttl);
                let request = StateRequest::Lock { key, ttl };
                for _ in 0..LOCK_TRIES_MAX {
                    match subject.request(request.clone()) {
                        Err(StateError::LockHeld { remaining }) => subject.pass(remaining),
                        actual => return compare(names, expected, actual),
                    }
                }
                Err((format!("{expected:?}"), "the lock stays held".to_owned()))
            }
        }
    }
}

fn compare(
    names: &mut Names,
    mut expected: Result<StateReply, StateError>,
    mut actual: Result<StateReply, StateError>,
) -> Result<(), (String, String)> {
    let expected_text = format!("{expected:?}");
    if let (Err(StateError::LockHeld { remaining: most }), Err(StateError::LockHeld { remaining })) =
        (&mut expected, &actual)
        && *remaining <= *most
    {
        *most = *remaining;
    }
    let numbers = versions(&mut actual);
    let fits = names.bind_all(&versions(&mut expected), &numbers);
    if fits {
        each_version(&mut expected, &mut |version| version.0 = names.number(version.0));
        if expected == actual {
            return Ok(());
        }
    }
    Err((expected_text, format!("{actual:?}")))
}

fn versions(result: &mut Result<StateReply, StateError>) -> Vec<u64> {
    let mut versions = Vec::new();
    each_version(result, &mut |version| versions.push(version.0));
    versions
}

fn each_version(result: &mut Result<StateReply, StateError>, apply: &mut dyn FnMut(&mut Version)) {
    match result {
        Ok(StateReply::Value(Some(Versioned { version, .. })))
        | Ok(StateReply::Swapped { version })
        | Ok(StateReply::Locked { token: version })
        | Err(StateError::Conflict { current: Some(version) }) => apply(version),
        Ok(StateReply::Rows { rows, .. }) => rows.iter_mut().for_each(|(_, row)| apply(&mut row.version)),
        _ => {}
    }
}

fn with_numbers(mut request: StateRequest, names: &Names) -> StateRequest {
    let number = |version: &mut Version| version.0 = names.number(version.0);
    match &mut request {
        StateRequest::Swap { expected, under, .. } => {
            if let Expected::Version(version) = expected {
                number(version);
            }
            if let Some(lock) = under {
                number(&mut lock.token);
            }
        }
        StateRequest::Renew { lock, .. } | StateRequest::Unlock { lock } => number(&mut lock.token),
        _ => {}
    }
    request
}

/// The model itself, in virtual time.
#[derive(Debug, Default)]
pub struct StateModelSubject {
    model: StateModel<MemoryTables>,
    now: Time,
}

impl StateSubject for StateModelSubject {
    fn request(&mut self, request: StateRequest) -> Result<StateReply, StateError> {
        self.model.handle(self.now, request)
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }
}

#[cfg(test)]
mod tests {
    use elastin_types::{ActivationEpoch, SlotEpoch};

    use super::super::state_scripts;
    use super::*;

    #[test]
    fn the_model_follows_every_script() {
        let mut subject = StateModelSubject::default();
        for script in state_scripts() {
            script.run(&mut subject).unwrap();
        }
    }

    #[test]
    fn each_request_expects_the_replies_that_the_scripts_give_it() {
        let steps = || state_scripts().into_iter().flat_map(|script| script.steps);
        for (number, step) in steps().enumerate() {
            let StateStep::Ask {
                request,
                expected: Ok(reply),
            } = step
            else {
                continue;
            };
            assert!((request.expects())(&reply), "step {number}: {request:?} has {reply:?}");
            let mistaken = steps().find_map(|other| match other {
                StateStep::Ask {
                    request: other,
                    expected: Ok(other_reply),
                } => {
                    let same = std::mem::discriminant(&other_reply) == std::mem::discriminant(&reply);
                    (!same && (request.expects())(&other_reply)).then_some((other, other_reply))
                }
                _ => None,
            });
            assert_eq!(mistaken, None, "{request:?}");
        }
    }

    /// The model with an injected fault that the scripts must detect.
    struct Broken {
        good: StateModelSubject,
        fault: fn(&mut StateModelSubject, StateRequest) -> Result<StateReply, StateError>,
    }

    impl StateSubject for Broken {
        fn request(&mut self, request: StateRequest) -> Result<StateReply, StateError> {
            (self.fault)(&mut self.good, request)
        }

        fn pass(&mut self, time: Duration) {
            self.good.pass(time);
        }
    }

    #[test]
    fn the_scripts_find_broken_stores() {
        type Fault = fn(&mut StateModelSubject, StateRequest) -> Result<StateReply, StateError>;
        let faults: [(&str, Fault); 5] = [
            ("acknowledges rejected writes", |good, request| {
                match good.request(request) {
                    Err(StateError::Fenced { .. }) => Ok(StateReply::Saved),
                    other => other,
                }
            }),
            ("writes with any epoch", |good, mut request| {
                if let StateRequest::Save { epoch, .. } = &mut request {
                    let slot = SlotEpoch(u32::MAX);
                    *epoch = ActivationEpoch { slot, counter: 0 };
                }
                good.request(request)
            }),
            ("loses deletes", |good, request| match request {
                StateRequest::Delete { .. } => Ok(StateReply::Deleted),
                other => good.request(other),
            }),
            ("ignores the range's end", |good, mut request| {
                if let StateRequest::Scan { until, .. } = &mut request {
                    *until = None;
                }
                good.request(request)
            }),
            ("lets a lapsed holder write", |good, mut request| {
                if let StateRequest::Swap { under, .. } = &mut request {
                    *under = None;
                }
                good.request(request)
            }),
        ];
        for (name, fault) in faults {
            let good = StateModelSubject::default();
            let mut subject = Broken { good, fault };
            let found = state_scripts().iter().any(|script| script.run(&mut subject).is_err());
            assert!(found, "no script finds a store that {name}");
        }
    }
}
