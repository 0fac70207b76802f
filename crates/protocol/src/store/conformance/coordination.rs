//! Script runner for coordination.

use elastin_types::Time;

use super::Mismatch;
use super::names::Names;
use crate::store::{
    Change, CoordinationError, CoordinationModel, CoordinationReply, CoordinationRequest, KeyState, LeaseId, Revision,
    WatchBatch, Write,
};

/// A conformance script for coordination. Each uses its own keys.
#[derive(Clone, Debug)]
pub struct CoordinationScript {
    /// Its name.
    pub name: &'static str,
    /// Its steps.
    pub steps: Vec<CoordinationStep>,
}

/// One step of a script. Revisions and leases are names.
#[derive(Clone, Debug)]
pub enum CoordinationStep {
    /// Sends a request and checks its result. An expected time to live is a lower bound.
    Ask {
        /// The request.
        request: CoordinationRequest,
        /// The expected result.
        expected: Result<CoordinationReply, CoordinationError>,
    },
    /// Starts a watch; watches are numbered from 0.
    Watch {
        /// Prefix of its keys.
        prefix: String,
        /// The revision that it starts after.
        after: Revision,
    },
    /// Expects a watch to deliver these changes next, in any number of batches.
    Await {
        /// The watch.
        watch: usize,
        /// The changes.
        changes: Vec<Change>,
    },
}

/// An implementation under test.
pub trait CoordinationSubject {
    /// Executes one request.
    fn request(&mut self, request: CoordinationRequest) -> Result<CoordinationReply, CoordinationError>;

    /// Starts a watch. Watches are numbered from 0 within a script.
    fn watch(&mut self, prefix: &str, from: Revision);

    /// The next batch of a watch; `None` if nothing arrives for much longer than any lease of the scripts lives.
    fn next(&mut self, watch: usize) -> Option<Result<WatchBatch, CoordinationError>>;

    /// Ends all watches at the end of a script.
    fn end(&mut self);
}

/// Bindings of a script's symbolic revisions and leases.
#[derive(Default)]
struct Bindings {
    revisions: Names,
    leases: Names,
}

impl CoordinationScript {
    /// Runs the script over an implementation.
    pub fn run(&self, subject: &mut dyn CoordinationSubject) -> Result<(), Mismatch> {
        let mut bindings = Bindings::default();
        let outcome = self.steps.iter().enumerate().try_for_each(|(index, step)| {
            step.run(&mut bindings, subject).map_err(|(expected, actual)| Mismatch {
                script: self.name,
                step: index + 1,
                expected,
                actual,
            })
        });
        subject.end();
        outcome
    }
}

impl CoordinationStep {
    fn run(&self, bindings: &mut Bindings, subject: &mut dyn CoordinationSubject) -> Result<(), (String, String)> {
        match self {
            CoordinationStep::Ask { request, expected } => {
                let actual = subject.request(bindings.request(request.clone()));
                bindings.compare(expected.clone(), actual)
            }
            CoordinationStep::Watch { prefix, after } => {
                let after = Revision(bindings.revisions.number(after.0));
                subject.watch(prefix, after.next());
                Ok(())
            }
            CoordinationStep::Await { watch, changes } => {
                let mut actual = Vec::new();
                while actual.len() < changes.len() {
                    match subject.next(*watch) {
                        Some(Ok(batch)) => actual.extend(batch.changes),
                        ended => return Err((format!("{changes:?}"), format!("{actual:?}, then {ended:?}"))),
                    }
                }
                bindings.compare(changes.clone(), actual)
            }
        }
    }
}

/// A reply or a change, with revisions and leases inside.
trait Numbered: Clone + PartialEq + std::fmt::Debug {
    fn each_number(&mut self, apply: &mut dyn FnMut(Number<'_>));

    /// Adopts allowed deviations from `actual`: a time to live may be longer than expected.
    fn allow(&mut self, _actual: &Self) {}
}

enum Number<'a> {
    Revision(&'a mut Revision),
    Lease(&'a mut LeaseId),
}

impl Bindings {
    fn compare<N: Numbered>(&mut self, mut expected: N, actual: N) -> Result<(), (String, String)> {
        let expected_text = format!("{expected:?}");
        expected.allow(&actual);
        let (revisions, leases) = numbers(&mut actual.clone());
        let (revision_names, lease_names) = numbers(&mut expected);
        let fits = self.revisions.bind_all(&revision_names, &revisions) && self.leases.bind_all(&lease_names, &leases);
        if fits {
            expected.each_number(&mut |number| self.replace(number));
            if expected == actual {
                return Ok(());
            }
        }
        Err((expected_text, format!("{actual:?}")))
    }

    fn replace(&self, number: Number<'_>) {
        match number {
            Number::Revision(revision) => revision.0 = self.revisions.number(revision.0),
            Number::Lease(lease) => lease.0 = self.leases.number(lease.0),
        }
    }

    fn request(&self, mut request: CoordinationRequest) -> CoordinationRequest {
        match &mut request {
            CoordinationRequest::KeepAlive { lease } | CoordinationRequest::Revoke { lease } => {
                self.replace(Number::Lease(lease));
            }
            CoordinationRequest::Commit(commit) => {
                for condition in &mut commit.conditions {
                    if let KeyState::ModifiedAt(revision) = &mut condition.state {
                        self.replace(Number::Revision(revision));
                    }
                }
                for write in &mut commit.writes {
                    if let Write::Put { lease: Some(lease), .. } = write {
                        self.replace(Number::Lease(lease));
                    }
                }
            }
            _ => {}
        }
        request
    }
}

fn numbers(numbered: &mut impl Numbered) -> (Vec<u64>, Vec<u64>) {
    let (mut revisions, mut leases) = (Vec::new(), Vec::new());
    numbered.each_number(&mut |number| match number {
        Number::Revision(revision) => revisions.push(revision.0),
        Number::Lease(lease) => leases.push(lease.0),
    });
    (revisions, leases)
}

impl Numbered for Result<CoordinationReply, CoordinationError> {
    fn each_number(&mut self, apply: &mut dyn FnMut(Number<'_>)) {
        match self {
            Ok(CoordinationReply::Granted { lease, .. }) => apply(Number::Lease(lease)),
            Ok(CoordinationReply::Committed { revision }) => apply(Number::Revision(revision)),
            Ok(CoordinationReply::Got { entry, revision }) => {
                entry.iter_mut().for_each(|entry| each_number(entry, apply));
                apply(Number::Revision(revision));
            }
            Ok(CoordinationReply::Entries { entries, revision, .. }) => {
                entries.iter_mut().for_each(|entry| each_number(entry, apply));
                apply(Number::Revision(revision));
            }
            Err(CoordinationError::ConditionFailed {
                current: Some(entry), ..
            }) => each_number(entry, apply),
            _ => {}
        }
    }

    fn allow(&mut self, actual: &Self) {
        match (self, actual) {
            (Ok(CoordinationReply::Granted { ttl: least, .. }), Ok(CoordinationReply::Granted { ttl, .. }))
            | (Ok(CoordinationReply::KeptAlive { ttl: least }), Ok(CoordinationReply::KeptAlive { ttl }))
                if *ttl >= *least =>
            {
                *least = *ttl;
            }
            _ => {}
        }
    }
}

impl Numbered for Vec<Change> {
    fn each_number(&mut self, apply: &mut dyn FnMut(Number<'_>)) {
        for change in self {
            match change {
                Change::Put(entry) => each_number(entry, apply),
                Change::Deleted { revision, .. } => apply(Number::Revision(revision)),
            }
        }
    }
}

fn each_number(entry: &mut crate::store::Entry, apply: &mut dyn FnMut(Number<'_>)) {
    apply(Number::Revision(&mut entry.created));
    apply(Number::Revision(&mut entry.modified));
    entry.lease.iter_mut().for_each(|lease| apply(Number::Lease(lease)));
}

/// The model itself, in virtual time.
#[derive(Debug, Default)]
pub struct CoordinationModelSubject {
    model: CoordinationModel,
    now: Time,
    watches: Vec<(String, Revision)>,
}

impl CoordinationSubject for CoordinationModelSubject {
    fn request(&mut self, request: CoordinationRequest) -> Result<CoordinationReply, CoordinationError> {
        self.model.handle(self.now, request)
    }

    fn watch(&mut self, prefix: &str, from: Revision) {
        self.watches.push((prefix.to_owned(), from));
    }

    fn next(&mut self, watch: usize) -> Option<Result<WatchBatch, CoordinationError>> {
        let (prefix, from) = &mut self.watches[watch];
        loop {
            match self.model.changes(prefix, *from) {
                Ok(batch) => {
                    *from = (*from).max(batch.revision.next());
                    if !batch.changes.is_empty() {
                        return Some(Ok(batch));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
            // Nothing more happens until a lease ends.
            self.now = self.model.next_end()?;
            self.model.expire(self.now);
        }
    }

    fn end(&mut self) {
        self.watches.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::coordination_scripts;
    use super::*;

    #[test]
    fn the_model_follows_every_script() {
        let mut subject = CoordinationModelSubject::default();
        for script in coordination_scripts() {
            script.run(&mut subject).unwrap();
        }
    }

    #[test]
    fn each_request_expects_the_replies_that_the_scripts_give_it() {
        let steps = || coordination_scripts().into_iter().flat_map(|script| script.steps);
        for (number, step) in steps().enumerate() {
            let CoordinationStep::Ask {
                request,
                expected: Ok(reply),
            } = step
            else {
                continue;
            };
            assert!((request.expects())(&reply), "step {number}: {request:?} has {reply:?}");
            let mistaken = steps().find_map(|other| match other {
                CoordinationStep::Ask {
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

    type Fault = fn(&mut CoordinationModelSubject, CoordinationRequest) -> Result<CoordinationReply, CoordinationError>;

    /// The model with an injected fault that the scripts must detect.
    struct Broken {
        good: CoordinationModelSubject,
        fault: Fault,
    }

    impl CoordinationSubject for Broken {
        fn request(&mut self, request: CoordinationRequest) -> Result<CoordinationReply, CoordinationError> {
            (self.fault)(&mut self.good, request)
        }

        fn watch(&mut self, prefix: &str, from: Revision) {
            self.good.watch(prefix, from);
        }

        fn next(&mut self, watch: usize) -> Option<Result<WatchBatch, CoordinationError>> {
            self.good.next(watch)
        }

        fn end(&mut self) {
            self.good.end();
        }
    }

    #[test]
    fn the_scripts_find_broken_stores() {
        let faults: [(&str, Fault); 4] = [
            ("ignores conditions", |good, mut request| {
                if let CoordinationRequest::Commit(commit) = &mut request {
                    commit.conditions.clear();
                }
                good.request(request)
            }),
            ("binds no key to a lease", |good, mut request| {
                if let CoordinationRequest::Commit(commit) = &mut request {
                    for write in &mut commit.writes {
                        if let Write::Put { lease, .. } = write {
                            *lease = None;
                        }
                    }
                }
                good.request(request)
            }),
            ("ignores the limit", |good, mut request| {
                if let CoordinationRequest::Range { limit, .. } = &mut request {
                    *limit = 1000;
                }
                good.request(request)
            }),
            ("acknowledges a dead lease", |good, request| {
                match good.request(request) {
                    Err(CoordinationError::LeaseUnknown) => Ok(CoordinationReply::Revoked),
                    other => other,
                }
            }),
        ];
        for (name, fault) in faults {
            let good = CoordinationModelSubject::default();
            let mut subject = Broken { good, fault };
            let found = coordination_scripts()
                .iter()
                .any(|script| script.run(&mut subject).is_err());
            assert!(found, "no script finds a store that {name}");
        }
    }
}
