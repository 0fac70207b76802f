//! What a client knows: requests that wait or are under way, and watches. No I/O.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use elastin_protocol::store::{
    CoordinationError, CoordinationReply, Done, Revision, StateError, StateReply, StoreFailure, WatchSink,
};

use super::wire::{Answer, Ask, ClientFrame, FRAME_BYTES_MAX};

/// How many requests may wait or be under way.
const PENDING_MAX: usize = 65_536;
/// How many bytes may wait to be sent: a few states of the largest size.
const OUTBOX_BYTES_MAX: usize = 256 << 20;

/// Who waits for a reply, and which replies there can be.
pub(crate) enum Waiter {
    State(Done<StateReply, StateError>, fn(&StateReply) -> bool),
    Coordination(
        Done<CoordinationReply, CoordinationError>,
        fn(&CoordinationReply) -> bool,
    ),
}

impl Waiter {
    pub(crate) fn fail(self, failure: StoreFailure) {
        match self {
            Waiter::State(done, _) => done(Err(failure.into())),
            Waiter::Coordination(done, _) => done(Err(failure.into())),
        }
    }

    /// Ends a request whose message is too long to be sent.
    fn refuse(self, bytes: usize) {
        let limit = FRAME_BYTES_MAX;
        match self {
            Waiter::State(done, _) => done(Err(StateError::TooLarge { bytes, limit })),
            Waiter::Coordination(done, _) => {
                let what = format!("{bytes} bytes are more than the {limit} allowed");
                done(Err(CoordinationError::Invalid(what)));
            }
        }
    }

    fn answer(self, answer: Answer) -> Result<(), UnexpectedAnswer> {
        match (self, answer) {
            (Waiter::State(done, expects), Answer::State(result)) if result.as_ref().is_ok_and(expects) => done(result),
            (Waiter::State(done, _), Answer::State(result @ Err(_))) => done(result),
            (Waiter::Coordination(done, expects), Answer::Coordination(result))
                if result.as_ref().is_ok_and(expects) =>
            {
                done(result);
            }
            (Waiter::Coordination(done, _), Answer::Coordination(result @ Err(_))) => done(result),
            (waiter, _) => {
                let reason = UnexpectedAnswer.to_string();
                waiter.fail(StoreFailure::Interrupted { reason });
                return Err(UnexpectedAnswer);
            }
        }
        Ok(())
    }
}

/// The server does not keep to the protocol. The connection is of no more use.
#[derive(Debug, thiserror::Error)]
#[error("the server answered something else than what was asked")]
pub(crate) struct UnexpectedAnswer;

struct Pending {
    waiter: Waiter,
    /// When it was given to the connection; `None` while it waits.
    sent: Option<Instant>,
}

struct Watch {
    prefix: String,
    /// Where to go on on a new connection.
    next: Revision,
    /// `None` while it is being called.
    sink: Option<WatchSink>,
}

/// The state behind a client's lock. Callbacks are called outside of it.
#[derive(Default)]
pub(crate) struct ClientState {
    closed: bool,
    last_id: u64,
    /// Requests that wait to be sent, with the bytes they carry.
    outbox: VecDeque<(ClientFrame, usize)>,
    outbox_bytes: usize,
    pending: BTreeMap<u64, Pending>,
    watches: BTreeMap<u64, Watch>,
}

impl ClientState {
    /// Queues a request. If it can't be taken, the waiter comes back with the reason.
    pub(crate) fn ask(&mut self, ask: Ask, bytes: usize, waiter: Waiter) -> Result<(), (Waiter, StoreFailure)> {
        if self.closed {
            return Err((waiter, StoreFailure::Closed));
        }
        if self.pending.len() >= PENDING_MAX || (self.outbox_bytes + bytes > OUTBOX_BYTES_MAX && self.outbox_bytes > 0)
        {
            return Err((waiter, StoreFailure::Overloaded));
        }
        let id = self.next_id();
        self.pending.insert(id, Pending { waiter, sent: None });
        self.outbox.push_back((ClientFrame { id, ask }, bytes));
        self.outbox_bytes += bytes;
        Ok(())
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Starts a watch; its id, or its sink with the reason why not.
    pub(crate) fn watch(
        &mut self,
        prefix: String,
        next: Revision,
        sink: WatchSink,
    ) -> Result<u64, (WatchSink, StoreFailure)> {
        if self.closed {
            return Err((sink, StoreFailure::Closed));
        }
        let id = self.next_id();
        let from = next;
        let ask = Ask::Watch {
            prefix: prefix.clone(),
            from,
        };
        self.outbox.push_back((ClientFrame { id, ask }, 0));
        let sink = Some(sink);
        self.watches.insert(id, Watch { prefix, next, sink });
        Ok(id)
    }

    /// Ends a watch.
    pub(crate) fn unwatch(&mut self, id: u64) {
        if self.watches.remove(&id).is_some() {
            let ask = Ask::Unwatch;
            self.outbox.push_back((ClientFrame { id, ask }, 0));
        }
    }

    /// The next request to send. From now on it may be applied.
    pub(crate) fn next_to_send(&mut self, now: Instant) -> Option<ClientFrame> {
        let (frame, bytes) = self.outbox.pop_front()?;
        self.outbox_bytes -= bytes;
        if let Some(pending) = self.pending.get_mut(&frame.id) {
            pending.sent = Some(now);
        }
        Some(frame)
    }

    /// Takes a request back that turned out to be too long.
    pub(crate) fn refuse(&mut self, id: u64, bytes: usize) -> Option<impl FnOnce() + use<>> {
        let waiter = self.pending.remove(&id)?.waiter;
        Some(move || waiter.refuse(bytes))
    }

    /// Who waits for this answer, and what is to be done outside the lock to tell them.
    pub(crate) fn answered(&mut self, id: u64, answer: Answer) -> Result<Told, UnexpectedAnswer> {
        let Answer::Watch(batch) = answer else {
            let pending = self.pending.remove(&id).ok_or(UnexpectedAnswer)?;
            return Ok(Told::Waiter(pending.waiter, answer));
        };
        // A watch that was ended may still get something.
        let Some(watch) = self.watches.get_mut(&id) else {
            return Ok(Told::Nobody);
        };
        let sink = watch.sink.take().expect("one batch is delivered at a time");
        match &batch {
            Ok(batch) => watch.next = batch.revision.next(),
            // The server forgets it too.
            Err(_) => self.unwatch(id),
        }
        Ok(Told::Watch { id, sink, batch })
    }

    /// Takes a sink back that was called, unless its watch has ended.
    pub(crate) fn return_sink(&mut self, id: u64, sink: WatchSink) {
        if let Some(watch) = self.watches.get_mut(&id) {
            watch.sink = Some(sink);
        }
    }

    /// When the oldest request that waits for its reply was sent.
    pub(crate) fn oldest_sent(&self) -> Option<Instant> {
        // Requests are sent in the order of their ids.
        self.pending.values().next()?.sent
    }

    /// Starts over on a new connection: watches go on where they were, before all that waits.
    pub(crate) fn connected(&mut self) {
        self.outbox
            .retain(|(frame, _)| matches!(frame.ask, Ask::State(_) | Ask::Coordination(_)));
        for (id, watch) in self.watches.iter().rev() {
            let ask = Ask::Watch {
                prefix: watch.prefix.clone(),
                from: watch.next,
            };
            self.outbox.push_front((ClientFrame { id: *id, ask }, 0));
        }
    }

    /// The connection is lost: those whose requests were sent, and may have been applied.
    pub(crate) fn take_sent(&mut self) -> Vec<Waiter> {
        let unsent = self.pending.iter().find(|(_, pending)| pending.sent.is_none());
        let first_unsent = unsent.map_or(u64::MAX, |(id, _)| *id);
        let waiting = self.pending.split_off(&first_unsent);
        let sent = std::mem::replace(&mut self.pending, waiting);
        sent.into_values().map(|pending| pending.waiter).collect()
    }

    /// There is no connection to be had: those whose requests wait, and were not applied.
    pub(crate) fn take_waiting(&mut self) -> Vec<Waiter> {
        self.outbox.clear();
        self.outbox_bytes = 0;
        let pending = std::mem::take(&mut self.pending);
        pending.into_values().map(|pending| pending.waiter).collect()
    }

    /// Takes nothing any more; the sinks of all watches.
    pub(crate) fn close(&mut self) -> Vec<WatchSink> {
        self.closed = true;
        let watches = std::mem::take(&mut self.watches);
        watches.into_values().filter_map(|watch| watch.sink).collect()
    }
}

/// Who is to be told an answer.
pub(crate) enum Told {
    Waiter(Waiter, Answer),
    Watch {
        id: u64,
        sink: WatchSink,
        batch: Result<elastin_protocol::store::WatchBatch, CoordinationError>,
    },
    Nobody,
}

impl Told {
    /// Tells them; a sink comes back to be used again.
    pub(crate) fn tell(self) -> Result<Option<(u64, WatchSink)>, UnexpectedAnswer> {
        match self {
            Told::Waiter(waiter, answer) => waiter.answer(answer).map(|()| None),
            Told::Watch { id, mut sink, batch } => {
                sink(batch);
                Ok(Some((id, sink)))
            }
            Told::Nobody => Ok(None),
        }
    }
}
