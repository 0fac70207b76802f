//! Executes coordination requests, expires leases and delivers watches over a model kept in a [`Journal`].

use std::time::Duration;

use elastin_protocol::store::{
    CoordinationError, CoordinationModel, CoordinationReply, CoordinationRequest, Done, Revision, StoreFailure,
    Touched, WatchSink,
};
use elastin_types::Time;

use crate::watchers::{WatchId, Watchers};
use crate::worker::{Engine, contain};

pub(crate) type CoordinationDone = Done<CoordinationReply, CoordinationError>;

/// A job of a coordination store's worker.
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

/// Persistence of a coordination model.
pub(crate) trait Journal: Send + 'static {
    /// Loads the persisted model. Its leases live for their full time to live from `now` on.
    fn load(&mut self, now: Time) -> Result<CoordinationModel, StoreFailure>;

    /// Persists the touched entries. After a failure the model may be ahead of the journal and must be reloaded.
    fn persist(&mut self, model: &CoordinationModel, touched: &Touched) -> Result<(), StoreFailure>;
}

/// A lease that is overdue by this much shows that the store itself was stopped or blocked and could not receive
/// keep-alives. Well above the scheduling delays of a busy machine.
const STALL: Duration = Duration::from_millis(200);
/// Extension of leases beyond the length of a stall: time to read the keep-alives that are already queued.
const STALL_GRACE: Duration = Duration::from_millis(500);
/// The delay before a failed journal is loaded again if no request arrives earlier.
const RELOAD_DELAY: Duration = Duration::from_secs(1);

pub(crate) struct CoordinationEngine<J> {
    journal: J,
    /// `None` after the journal failed, until it can be loaded again.
    model: Option<CoordinationModel>,
    /// When to load the model again, if there is none.
    retry_at: Time,
    watchers: Watchers,
}

/// A request of the batch that is being executed.
struct Pending {
    /// A copy of a read-only request, to execute it again if the batch could not be persisted.
    read_only: Option<CoordinationRequest>,
    done: CoordinationDone,
    result: Result<CoordinationReply, CoordinationError>,
}

impl<J: Journal> CoordinationEngine<J> {
    /// Creates an engine that resumes from the journal.
    pub(crate) fn load(mut journal: J) -> Result<Self, StoreFailure> {
        let model = Some(journal.load(Time::ZERO)?);
        Ok(Self {
            journal,
            model,
            retry_at: Time::ZERO,
            watchers: Watchers::default(),
        })
    }

    fn execute(&mut self, now: Time, jobs: Vec<CoordinationJob>) -> Vec<Pending> {
        let mut model = recover(&mut self.model, &mut self.journal, now);
        if let Ok(model) = &mut model {
            extend_leases_after_stall(model, now);
        }
        let mut pending = Vec::with_capacity(jobs.len());
        for job in jobs {
            match job {
                CoordinationJob::Request { request, done } => {
                    let read_only = (!request.is_write()).then(|| request.clone());
                    let result = handle(&mut model, now, request);
                    pending.push(Pending {
                        read_only,
                        done,
                        result,
                    });
                }
                CoordinationJob::Watch { id, prefix, from, sink } => self.watchers.add(id, prefix, from, sink),
                CoordinationJob::Unwatch { id } => self.watchers.remove(id),
            }
        }
        pending
    }

    /// Makes the batch durable. If that fails, its writes fail; reads are executed again without them, and keep-alives
    /// still count.
    fn persist(&mut self, now: Time, pending: &mut [Pending]) {
        let Some(model) = &mut self.model else { return };
        model.expire(now);
        let touched = model.take_touched();
        if touched.is_empty() {
            return;
        }
        let Err(failure) = self.journal.persist(model, &touched) else {
            return;
        };
        tracing::error!(%failure, "failed to persist coordination state");
        self.model = None;
        let mut model = recover(&mut self.model, &mut self.journal, now);
        for job in pending {
            job.result = match job.read_only.take() {
                Some(request) => handle(&mut model, now, request),
                None => Err(failure.clone().into()),
            };
        }
    }
}

/// Returns the model, reloading it from the journal if it was lost.
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

/// Extends all leases if the store was stalled.
fn extend_leases_after_stall(model: &mut CoordinationModel, now: Time) {
    if let Some(end) = model.next_end()
        && now > end + STALL
    {
        let stall = now.since(end);
        tracing::warn!(?stall, "coordination was stalled; extending all leases");
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
        let mut pending = self.execute(now, jobs);
        self.persist(now, &mut pending);
        for Pending { done, result, .. } in pending {
            contain(|| done(result));
        }
        match &self.model {
            Some(model) => self.watchers.deliver(model),
            None => self.retry_at = now + RELOAD_DELAY,
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

    /// A journal with one lease, and faults that a test can switch on.
    #[derive(Clone, Default)]
    struct Disk {
        full: Arc<Mutex<bool>>,
        unreadable: Arc<Mutex<bool>>,
    }

    fn fail_if(broken: &Mutex<bool>) -> Result<(), StoreFailure> {
        if *broken.lock() {
            return Err(StoreFailure::DiskFull);
        }
        Ok(())
    }

    const LEASE: LeaseId = LeaseId(1);

    impl Journal for Disk {
        fn load(&mut self, now: Time) -> Result<CoordinationModel, StoreFailure> {
            fail_if(&self.unreadable)?;
            let leases = vec![StoredLease { lease: LEASE, ttl: TTL }];
            Ok(CoordinationModel::restore(now, Revision(0), LEASE, Vec::new(), leases))
        }

        fn persist(&mut self, _model: &CoordinationModel, _touched: &Touched) -> Result<(), StoreFailure> {
            fail_if(&self.full)
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
    fn a_lease_expires_while_the_store_is_responsive() {
        let mut engine = CoordinationEngine::load(Disk::default()).unwrap();
        let end = engine.wake_at().unwrap();
        assert_eq!(end, Time::ZERO + TTL);
        engine.run(end, Vec::new());
        let late = ask(&mut engine, end, vec![keep_alive()]);
        assert_eq!(late, [Err(CoordinationError::LeaseUnknown)]);
    }

    #[test]
    fn a_lease_does_not_expire_while_the_store_is_stalled() {
        let mut engine = CoordinationEngine::load(Disk::default()).unwrap();
        let much_later = Time::ZERO + 60 * TTL;
        engine.run(much_later, Vec::new());
        let renewed = ask(&mut engine, much_later, vec![keep_alive()]);
        assert_eq!(renewed, [Ok(CoordinationReply::KeptAlive { ttl: TTL })]);
        // Without a keep-alive it expires shortly after.
        let mut engine = CoordinationEngine::load(Disk::default()).unwrap();
        engine.run(much_later, Vec::new());
        let end = engine.wake_at().unwrap();
        assert_eq!(end, much_later + STALL_GRACE);
        let late = ask(&mut engine, end, vec![keep_alive()]);
        assert_eq!(late, [Err(CoordinationError::LeaseUnknown)]);
    }

    #[test]
    fn keep_alives_are_accepted_on_a_full_disk() {
        let disk = Disk::default();
        let mut engine = CoordinationEngine::load(disk.clone()).unwrap();
        *disk.full.lock() = true;
        let now = Time::ZERO + TTL / 2;
        let replies = ask(&mut engine, now, vec![put(), keep_alive()]);
        let renewed = Ok(CoordinationReply::KeptAlive { ttl: TTL });
        assert_eq!(replies, [Err(StoreFailure::DiskFull.into()), renewed]);
        assert_eq!(engine.wake_at(), Some(now + TTL));
    }

    #[test]
    fn a_broken_journal_is_reloaded_without_a_request() {
        let disk = Disk::default();
        let mut engine = CoordinationEngine::load(disk.clone()).unwrap();
        *disk.full.lock() = true;
        *disk.unreadable.lock() = true;
        let now = Time::ZERO + TTL / 2;
        let refused = ask(&mut engine, now, vec![put()]);
        assert_eq!(refused, [Err(StoreFailure::DiskFull.into())]);
        let retry = engine.wake_at().unwrap();
        assert_eq!(retry, now + RELOAD_DELAY);
        engine.run(retry, Vec::new());
        assert_eq!(engine.wake_at(), Some(retry + RELOAD_DELAY));
        *disk.full.lock() = false;
        *disk.unreadable.lock() = false;
        let good = retry + RELOAD_DELAY;
        engine.run(good, Vec::new());
        assert_eq!(
            engine.wake_at(),
            Some(good + TTL),
            "the lease has its full time to live again"
        );
        assert!(ask(&mut engine, good, vec![put()])[0].is_ok());
    }
}
