//! The scripts over a link that breaks before every single step, and over a slow one: a client sees no gaps and no
//! repetitions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use elastin_protocol::store::conformance::{CoordinationSubject, StateSubject, coordination_scripts, state_scripts};
use elastin_protocol::store::{
    Coordination, CoordinationError, CoordinationReply, CoordinationRequest, Revision, StateError, StateReply,
    StateRequest, StateStore, WatchBatch,
};
use elastin_test_servers::Proxy;
use elastin_types::{ActorId, ActorType};

use crate::blocking::{CoordinationUnderTest, LIMIT, StateUnderTest, ask_coordination, ask_state};

/// The delay of each piece of data on a slow link, in both directions.
const DELAY: Duration = Duration::from_millis(10);

/// The quality of a link.
#[derive(Clone, Copy)]
pub(crate) enum Link {
    BreaksBeforeEveryStep,
    IsSlow,
}

impl Link {
    pub(crate) const ALL: [Link; 2] = [Link::BreaksBeforeEveryStep, Link::IsSlow];
}

/// Runs all state scripts on an empty store behind this proxy.
pub(crate) fn check_state(link: Link, proxy: &Proxy, store: Arc<dyn StateStore>) {
    let mut subject = StateUnderTest(store);
    let check = |subject: &mut dyn StateSubject| {
        for script in state_scripts() {
            script.run(subject).unwrap();
        }
    };
    match link {
        Link::BreaksBeforeEveryStep => check(&mut Cut { proxy, subject }),
        Link::IsSlow => {
            proxy.delay(DELAY);
            check(&mut subject);
            proxy.delay(Duration::ZERO);
        }
    }
}

/// Runs all coordination scripts on an empty store behind this proxy.
pub(crate) fn check_coordination(link: Link, proxy: &Proxy, store: Arc<dyn Coordination>) {
    let mut subject = CoordinationUnderTest::new(store);
    let check = |subject: &mut dyn CoordinationSubject| {
        for script in coordination_scripts() {
            script.run(subject).unwrap();
        }
    };
    match link {
        Link::BreaksBeforeEveryStep => check(&mut Cut { proxy, subject }),
        Link::IsSlow => {
            proxy.delay(DELAY);
            check(&mut subject);
            proxy.delay(Duration::ZERO);
        }
    }
}

/// A subject whose link is cut before every step.
struct Cut<'a, S> {
    proxy: &'a Proxy,
    subject: S,
}

impl<S> Cut<'_, S> {
    /// Cuts the link, and waits until the store answers over a new connection.
    fn cut(&self, answers: impl Fn(&S) -> bool) {
        self.proxy.break_connections();
        let until = Instant::now() + LIMIT;
        while !answers(&self.subject) {
            assert!(
                Instant::now() < until,
                "the store does not answer over a new connection"
            );
            std::thread::yield_now();
        }
    }
}

impl Cut<'_, StateUnderTest> {
    fn cut_state(&self) {
        let actor = ActorId::new(ActorType::of("Nobody"), 0);
        let load = StateRequest::Load { actor };
        self.cut(|subject| ask_state(&*subject.0, load.clone()).is_ok());
    }
}

impl Cut<'_, CoordinationUnderTest> {
    fn cut_coordination(&self) {
        let get = CoordinationRequest::Get { key: "nothing".into() };
        self.cut(|subject| ask_coordination(&*subject.store, get.clone()).is_ok());
    }
}

impl StateSubject for Cut<'_, StateUnderTest> {
    fn request(&mut self, request: StateRequest) -> Result<StateReply, StateError> {
        self.cut_state();
        self.subject.request(request)
    }

    fn pass(&mut self, time: Duration) {
        self.subject.pass(time);
    }
}

impl CoordinationSubject for Cut<'_, CoordinationUnderTest> {
    fn request(&mut self, request: CoordinationRequest) -> Result<CoordinationReply, CoordinationError> {
        self.cut_coordination();
        self.subject.request(request)
    }

    fn watch(&mut self, prefix: &str, from: Revision) {
        self.cut_coordination();
        self.subject.watch(prefix, from);
    }

    fn next(&mut self, watch: usize) -> Option<Result<WatchBatch, CoordinationError>> {
        self.cut_coordination();
        self.subject.next(watch)
    }

    fn end(&mut self) {
        self.subject.end();
    }
}
