//! Runs coordination requests, ends leases and serves watches over whatever keeps the model.

use std::time::Duration;

use elastin_protocol::store::{
    CoordinationError, CoordinationModel, CoordinationReply, CoordinationRequest, Done, Revision, StoreFailure,
    Touched, WatchSink,
};
use elastin_types::Time;

use crate::watchers::{WatchId, Watchers};
use crate::worker::{Engine, contain};

pub(crate) type CoordinationDone = Done<CoordinationReply, CoordinationError>;

/// What the worker of a coordination store can be told.
pub(crate) enum CoordinationJob {
    Request {
        request: CoordinationRequest,
        done: CoordinationDone,
    },
    Watch {
        id: WatchId,
        prefix: String,
        from: Revision,
        sink: WatchSink,
    },
    Unwatch {
        id: WatchId,
    },
}

/// Keeps a model over restarts, or does not.
pub(crate) trait Journal: Send + 'static {
    /// The model as it was kept last. Its leases live for their whole time from `now` on.
    fn load(&mut self, now: Time) -> Result<CoordinationModel, StoreFailure>;

    /// Keeps what was touched. If that fails, the model in memory is no longer to be trusted: load it again.
    fn keep(&mut self, model: &CoordinationModel, touched: &Touched) -> Result<(), StoreFailure>;
}

/// A lease that should have ended so long ago shows that the store itself was stopped or blocked, and could not hear signs
/// of life. It is well above the delays of a busy machine.
const STALL: Duration = Duration::from_millis(200);
/// How much longer leases live after a stall than it took: time for the signs of life that are waiting to be read.
const STALL_GRACE: Duration = Duration::from_millis(500);
/// How long to wait before the journal is tried again after it failed, if nobody asks for it before.
const RETRY: Duration = Duration::from_secs(1);

pub(crate) struct CoordinationEngine<J> {
    journal: J,
    /// `None` after the journal failed, until it can be loaded again.
    model: Option<CoordinationModel>,
    /// When to try to load the model again, if there is none.
    retry_at: Time,
    watchers: Watchers,
}

/// A request of the batch that is being carried out.
struct Pending {
    /// A copy of a request that has nothing to keep, to do it again if the batch could not be kept.
    again: Option<CoordinationRequest>,
    done: CoordinationDone,
    result: Result<CoordinationReply, CoordinationError>,
}

impl<J: Journal> CoordinationEngine<J> {
    /// An engine that goes on where the journal ends.
    pub(crate) fn load(mut journal: J) -> Result<Self, StoreFailure> {
        let model = Some(journal.load(Time::ZERO)?);
        Ok(Self {
            journal,
            model,
            retry_at: Time::ZERO,
            watchers: Watchers::default(),
        })
    }

    fn carry_out(&mut self, now: Time, jobs: Vec<CoordinationJob>) -> Vec<Pending> {
        let mut model = recover(&mut self.model, &mut self.journal, now);
        if let Ok(model) = &mut model {
            excuse_stall(model, now);
        }
        let mut pending = Vec::with_capacity(jobs.len());
        for job in jobs {
            match job {
                CoordinationJob::Request { request, done } => {
                    let again = (!request.is_write()).then(|| request.clone());
                    let result = handle(&mut model, now, request);
                    pending.push(Pending { again, done, result });
                }
                CoordinationJob::Watch { id, prefix, from, sink } => self.watchers.add(id, prefix, from, sink),
                CoordinationJob::Unwatch { id } => self.watchers.remove(id),
            }
        }
        pending
    }

    /// Makes the batch durable. If that fails, its writes fail; reads see what is there without them, and signs of life
    /// are heard.
    fn keep(&mut self, now: Time, pending: &mut [Pending]) {
        let Some(model) = &mut self.model else { return };
        model.expire(now);
        let touched = model.take_touched();
        if touched.is_empty() {
            return;
        }
        let Err(failure) = self.journal.keep(model, &touched) else {
            return;
        };
        tracing::error!(%failure, "coordination could not be kept");
        self.model = None;
        let mut model = recover(&mut self.model, &mut self.journal, now);
        for job in pending {
            job.result = match job.again.take() {
                Some(request) => handle(&mut model, now, request),
                None => Err(failure.clone().into()),
            };
        }
    }
}

/// The model, loaded again if it was lost.
fn recover<'m>(
    model: &'m mut Option<CoordinationModel>,
    journal: &mut impl Journal,
    now: Time,
) -> Result<&'m mut CoordinationModel, StoreFailure> {
    let good = match model.take() {
        Some(good) => good,
        None => journal.load(now)?,
    };
    Ok(model.insert(good))
}

/// Gives leases time if the store was stalled.
fn excuse_stall(model: &mut CoordinationModel, now: Time) {
    if let Some(end) = model.next_end()
        && now > end + STALL
    {
        let stall = now.since(end);
        tracing::warn!(?stall, "coordination was stalled; leases live longer");
        model.postpone_ends(stall + STALL_GRACE);
    }
}

fn handle(
    model: &mut Result<&mut CoordinationModel, StoreFailure>,
    now: Time,
    request: CoordinationRequest,
) -> Result<CoordinationReply, CoordinationError> {
    match model {
        Ok(model) => model.handle(now, request),
        Err(failure) => Err(failure.clone().into()),
    }
}

impl<J: Journal> Engine<CoordinationJob> for CoordinationEngine<J> {
    fn run(&mut self, now: Time, jobs: Vec<CoordinationJob>) {
        let mut pending = self.carry_out(now, jobs);
        self.keep(now, &mut pending);
        for Pending { done, result, .. } in pending {
            contain(|| done(result));
        }
        match &self.model {
            Some(model) => self.watchers.deliver(model),
            None => self.retry_at = now + RETRY,
        }
    }

    fn wake_at(&self) -> Option<Time> {
        match &self.model {
            Some(model) => model.next_end(),
            None => Some(self.retry_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use elastin_protocol::store::{Commit, LeaseId, StoredLease};
    use parking_lot::Mutex;

    use super::*;

    const TTL: Duration = Duration::from_secs(1);

    /// A journal that holds one lease, and what a test does to it.
    #[derive(Clone, Default)]
    struct Disk {
        full: Arc<Mutex<bool>>,
        unreadable: Arc<Mutex<bool>>,
    }

    fn unless(broken: &Mutex<bool>) -> Result<(), StoreFailure> {
        if *broken.lock() {
            return Err(StoreFailure::DiskFull);
        }
        Ok(())
    }

    const LEASE: LeaseId = LeaseId(1);

    impl Journal for Disk {
        fn load(&mut self, now: Time) -> Result<CoordinationModel, StoreFailure> {
            unless(&self.unreadable)?;
            let leases = vec![StoredLease { lease: LEASE, ttl: TTL }];
            Ok(CoordinationModel::restore(now, Revision(0), LEASE, Vec::new(), leases))
        }

        fn keep(&mut self, _model: &CoordinationModel, _touched: &Touched) -> Result<(), StoreFailure> {
            unless(&self.full)
        }
    }

    type Replies = Vec<Result<CoordinationReply, CoordinationError>>;

    /// Runs one batch with these requests.
    fn ask(engine: &mut CoordinationEngine<Disk>, now: Time, requests: Vec<CoordinationRequest>) -> Replies {
        let replies = Arc::new(Mutex::new(Vec::new()));
        let job = |request| {
            let replies = replies.clone();
            let done = Box::new(move |result| replies.lock().push(result));
            CoordinationJob::Request { request, done }
        };
        engine.run(now, requests.into_iter().map(job).collect());
        replies.lock().split_off(0)
    }

    fn keep_alive() -> CoordinationRequest {
        CoordinationRequest::KeepAlive { lease: LEASE }
    }

    fn put() -> CoordinationRequest {
        Commit::put("k", "v").into()
    }

    #[test]
    fn a_lease_ends_when_the_store_could_have_heard_of_it() {
        let mut engine = CoordinationEngine::load(Disk::default()).unwrap();
        let end = engine.wake_at().unwrap();
        assert_eq!(end, Time::ZERO + TTL);
        engine.run(end, Vec::new());
        let late = ask(&mut engine, end, vec![keep_alive()]);
        assert_eq!(late, [Err(CoordinationError::LeaseUnknown)]);
    }

    #[test]
    fn a_lease_does_not_end_while_the_store_is_stalled() {
        let mut engine = CoordinationEngine::load(Disk::default()).unwrap();
        let much_later = Time::ZERO + 60 * TTL;
        engine.run(much_later, Vec::new());
        let heard = ask(&mut engine, much_later, vec![keep_alive()]);
        assert_eq!(heard, [Ok(CoordinationReply::KeptAlive { ttl: TTL })]);
        // Without a sign of life it ends soon after.
        let mut engine = CoordinationEngine::load(Disk::default()).unwrap();
        engine.run(much_later, Vec::new());
        let end = engine.wake_at().unwrap();
        assert_eq!(end, much_later + STALL_GRACE);
        let late = ask(&mut engine, end, vec![keep_alive()]);
        assert_eq!(late, [Err(CoordinationError::LeaseUnknown)]);
    }

    #[test]
    fn signs_of_life_are_heard_on_a_full_disk() {
        let disk = Disk::default();
        let mut engine = CoordinationEngine::load(disk.clone()).unwrap();
        *disk.full.lock() = true;
        let now = Time::ZERO + TTL / 2;
        let replies = ask(&mut engine, now, vec![put(), keep_alive()]);
        let heard = Ok(CoordinationReply::KeptAlive { ttl: TTL });
        assert_eq!(replies, [Err(StoreFailure::DiskFull.into()), heard]);
        assert_eq!(engine.wake_at(), Some(now + TTL));
    }

    #[test]
    fn a_broken_journal_is_tried_again_without_being_asked() {
        let disk = Disk::default();
        let mut engine = CoordinationEngine::load(disk.clone()).unwrap();
        *disk.full.lock() = true;
        *disk.unreadable.lock() = true;
        let now = Time::ZERO + TTL / 2;
        let refused = ask(&mut engine, now, vec![put()]);
        assert_eq!(refused, [Err(StoreFailure::DiskFull.into())]);
        let retry = engine.wake_at().unwrap();
        assert_eq!(retry, now + RETRY);
        engine.run(retry, Vec::new());
        assert_eq!(engine.wake_at(), Some(retry + RETRY));
        *disk.full.lock() = false;
        *disk.unreadable.lock() = false;
        let good = retry + RETRY;
        engine.run(good, Vec::new());
        assert_eq!(engine.wake_at(), Some(good + TTL), "the lease has its whole time again");
        assert!(ask(&mut engine, good, vec![put()])[0].is_ok());
    }
}
