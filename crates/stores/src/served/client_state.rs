//! The state of a client: queued requests, requests in flight, and watches. No I/O.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use elastin_protocol::store::{
    CoordinationError, CoordinationReply, Done, Revision, StateError, StateReply, StoreFailure, WatchSink,
};

use super::wire::{Answer, Ask, ClientFrame, FRAME_BYTES_MAX};

/// The most requests queued or in flight.
const REQUESTS_MAX: usize = 65_536;
/// The most bytes queued for sending: a few states of the largest size.
const OUTBOX_BYTES_MAX: usize = 256 << 20;

/// The callback of a request, with a predicate of its valid replies.
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

    /// Fails a request whose frame is too long.
    fn refuse(self, bytes: usize) {
        let limit = FRAME_BYTES_MAX;
        match self {
            Waiter::State(done, _) => done(Err(StateError::TooLarge { bytes, limit })),
            Waiter::Coordination(done, _) => {
                let reason = format!("the request has {bytes} bytes, more than the {limit} allowed");
                done(Err(CoordinationError::Invalid(reason)));
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

/// The server violated the protocol, and the connection must be closed.
#[derive(Debug, thiserror::Error)]
#[error("the server sent an answer of another kind than the request")]
pub(crate) struct UnexpectedAnswer;

struct Pending {
    waiter: Waiter,
    /// When it was passed to the connection; `None` while it is queued.
    sent: Option<Instant>,
}

struct Watch {
    prefix: String,
    /// The revision to resume from on a new connection.
    next: Revision,
    /// `None` during its own call.
    sink: Option<WatchSink>,
}

/// The state behind a client's lock. Callbacks are called outside the lock.
#[derive(Default)]
pub(crate) struct ClientState {
    closed: bool,
    last_id: u64,
    /// Frames to send, with the size of their payload.
    outbox: VecDeque<(ClientFrame, usize)>,
    outbox_bytes: usize,
    pending: BTreeMap<u64, Pending>,
    watches: BTreeMap<u64, Watch>,
}

impl ClientState {
    /// Queues a request. If it is rejected, the waiter is returned with the reason.
    pub(crate) fn ask(&mut self, ask: Ask, bytes: usize, waiter: Waiter) -> Result<(), (Waiter, StoreFailure)> {
        if self.closed {
            return Err((waiter, StoreFailure::Closed));
        }
        if self.pending.len() >= REQUESTS_MAX || (self.outbox_bytes + bytes > OUTBOX_BYTES_MAX && self.outbox_bytes > 0)
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

    /// Starts a watch and returns its id. If it is rejected, the sink is returned with the reason.
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

    /// The next frame to send. From now on its request may be applied.
    pub(crate) fn next_to_send(&mut self, now: Instant) -> Option<ClientFrame> {
        let (frame, bytes) = self.outbox.pop_front()?;
        self.outbox_bytes -= bytes;
        if let Some(pending) = self.pending.get_mut(&frame.id) {
            pending.sent = Some(now);
        }
        Some(frame)
    }

    /// Withdraws a request whose frame turned out to be too long.
    pub(crate) fn refuse(&mut self, id: u64, bytes: usize) -> Option<impl FnOnce() + use<>> {
        let waiter = self.pending.remove(&id)?.waiter;
        Some(move || waiter.refuse(bytes))
    }

    /// Routes an answer. The delivery must run outside the lock.
    pub(crate) fn answered(&mut self, id: u64, answer: Answer) -> Result<Delivery, UnexpectedAnswer> {
        let Answer::Watch(batch) = answer else {
            let pending = self.pending.remove(&id).ok_or(UnexpectedAnswer)?;
            return Ok(Delivery::Waiter(pending.waiter, answer));
        };
        // A batch may still arrive after the watch has ended.
        let Some(watch) = self.watches.get_mut(&id) else {
            return Ok(Delivery::Ignored);
        };
        let sink = watch.sink.take().expect("batches are delivered one at a time");
        match &batch {
            Ok(batch) => watch.next = batch.revision.next(),
            // The server has dropped it too.
            Err(_) => self.unwatch(id),
        }
        Ok(Delivery::Watch { id, sink, batch })
    }

    /// Puts a sink back after its call, unless its watch has ended.
    pub(crate) fn return_sink(&mut self, id: u64, sink: WatchSink) {
        if let Some(watch) = self.watches.get_mut(&id) {
            watch.sink = Some(sink);
        }
    }

    /// When the oldest request in flight was sent.
    pub(crate) fn oldest_sent(&self) -> Option<Instant> {
        // Requests are sent in the order of their ids.
        self.pending.values().next()?.sent
    }

    /// Starts over on a new connection: watches resume before queued requests are sent.
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

    /// Takes the waiters of requests that were sent and may have been applied.
    pub(crate) fn take_sent(&mut self) -> Vec<Waiter> {
        let unsent = self.pending.iter().find(|(_, pending)| pending.sent.is_none());
        let first_unsent = unsent.map_or(u64::MAX, |(id, _)| *id);
        let waiting = self.pending.split_off(&first_unsent);
        let sent = std::mem::replace(&mut self.pending, waiting);
        sent.into_values().map(|pending| pending.waiter).collect()
    }

    /// Takes the waiters of all requests, none of which was applied.
    pub(crate) fn take_waiting(&mut self) -> Vec<Waiter> {
        self.outbox.clear();
        self.outbox_bytes = 0;
        let pending = std::mem::take(&mut self.pending);
        pending.into_values().map(|pending| pending.waiter).collect()
    }

    /// Rejects everything from now on and returns the sinks of all watches.
    pub(crate) fn close(&mut self) -> Vec<WatchSink> {
        self.closed = true;
        let watches = std::mem::take(&mut self.watches);
        watches.into_values().filter_map(|watch| watch.sink).collect()
    }
}

/// An answer with its recipient.
pub(crate) enum Delivery {
    Waiter(Waiter, Answer),
    Watch {
        id: u64,
        sink: WatchSink,
        batch: Result<elastin_protocol::store::WatchBatch, CoordinationError>,
    },
    Ignored,
}

impl Delivery {
    /// Calls the recipient; the sink of a watch is returned for the next batch.
    pub(crate) fn deliver(self) -> Result<Option<(u64, WatchSink)>, UnexpectedAnswer> {
        match self {
            Delivery::Waiter(waiter, answer) => waiter.answer(answer).map(|()| None),
            Delivery::Watch { id, mut sink, batch } => {
                sink(batch);
                Ok(Some((id, sink)))
            }
            Delivery::Ignored => Ok(None),
        }
    }
}
