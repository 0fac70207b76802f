//! The I/O threads, which read all accepted connections of this process.
//!
//! There are two threads, a leader and a follower. The leader polls the system for ready sockets and runs the tasks that wait for
//! them. A task passes received frames to their receiver, and runs the follow-up. A follow-up may take long, so the
//! follower monitors it: it becomes the leader then, and takes over the connection that the first thread has offered.
//!
//! ```text
//!   leader ──── a follow-up takes long ─────► completes it, then follows
//!   follower ── takes over ─────────────────► leads
//! ```
//!
//! These are not tokio workers, because the leader busy-polls before it parks ([`BusyPoller`]): waking a parked thread takes longer
//! than the rest of a call. A tokio task can't busy-poll like this: whenever it yields, tokio unparks another worker to look for
//! tasks.
//!
//! Only connections that peers have opened are read here, because calls arrive on those. Replies are read by tokio's workers,
//! whose tasks most likely await them.

mod leader_handoff;
mod task;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mio::{Events, Interest, Poll, Registry, Token, Waker};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::accepted_reader::AcceptedReader;
use super::accepted_socket::Readiness;
use super::busy_poll::BusyPoller;
use crate::tuning::{IO_ERROR_PAUSE, SOCKET_EVENTS_MAX};
use leader_handoff::LeaderHandoff;
use task::IoTask;

pub(super) use leader_handoff::ConnectionToken;

/// The token of the leader's waker; those of sockets follow it.
const WAKE_TOKEN: Token = Token(0);

/// The I/O threads of this process, once started.
static IO_THREADS: Mutex<Option<&'static IoThreads>> = Mutex::new(None);

/// State shared by the two I/O threads.
pub(crate) struct IoThreads {
    registry: Registry,
    /// Wakes the leader for a task that is ready without a socket event.
    waker: Waker,
    /// Whether the leader is parked and needs a wake.
    parked: AtomicBool,
    /// The run queue.
    ready: Mutex<VecDeque<Arc<IoTask>>>,
    sockets: Mutex<HashMap<Token, Arc<Readiness>>>,
    last_token: AtomicUsize,
    leader_handoff: LeaderHandoff<Poller, AcceptedReader>,
}

/// The leader's state: only the leader polls the system.
struct Poller {
    selector: Selector,
    busy_poller: BusyPoller,
}

/// Polls the system for socket events.
struct Selector {
    poll: Poll,
    events: Events,
}

impl IoThreads {
    /// The I/O threads of this process, which the first call starts.
    pub(super) fn of_process() -> io::Result<&'static IoThreads> {
        let mut io_threads = IO_THREADS.lock();
        if let Some(io_threads) = *io_threads {
            return Ok(io_threads);
        }
        let started = Self::start()?;
        *io_threads = Some(started);
        Ok(started)
    }

    fn start() -> io::Result<&'static IoThreads> {
        let poll = Poll::new()?;
        let io_threads: &'static IoThreads = Box::leak(Box::new(IoThreads {
            registry: poll.registry().try_clone()?,
            waker: Waker::new(poll.registry(), WAKE_TOKEN)?,
            parked: AtomicBool::new(false),
            ready: Mutex::default(),
            sockets: Mutex::default(),
            last_token: AtomicUsize::new(WAKE_TOKEN.0),
            leader_handoff: LeaderHandoff::default(),
        }));
        let poller = Poller {
            selector: Selector {
                poll,
                events: Events::with_capacity(SOCKET_EVENTS_MAX),
            },
            busy_poller: BusyPoller::default(),
        };
        let thread = || std::thread::Builder::new().name("elastin-reader".into());
        thread().spawn(|| io_threads.run(Some(poller)))?;
        match thread().spawn(|| io_threads.run(None)) {
            Ok(_) => io_threads.leader_handoff.add_follower(),
            Err(error) => {
                tracing::warn!(%error, "could not start the second I/O thread; a long turn will delay other connections")
            }
        }
        Ok(io_threads)
    }

    /// Spawns a task. It runs inside the context of a tokio runtime, whose timers and tasks it may use.
    pub(super) fn spawn(&'static self, handle: &Handle, future: impl Future<Output = ()> + Send + 'static) {
        self.enqueue(IoTask::new(self, handle.clone(), Box::pin(future)));
    }

    /// Registers a socket, whose events are recorded in `readiness`.
    pub(super) fn register(&self, stream: &mut mio::net::TcpStream, readiness: &Arc<Readiness>) -> io::Result<Token> {
        let token = Token(1 + self.last_token.fetch_add(1, Ordering::Relaxed));
        self.sockets.lock().insert(token, Arc::clone(readiness));
        let registered = self
            .registry
            .register(stream, token, Interest::READABLE | Interest::WRITABLE);
        if registered.is_err() {
            self.sockets.lock().remove(&token);
        }
        registered.map(|()| token)
    }

    /// Deregisters a socket that is about to be closed.
    pub(super) fn deregister(&self, stream: &mut mio::net::TcpStream, token: Token) {
        // Closing the socket deregisters it anyway.
        let _ = self.registry.deregister(stream);
        self.sockets.lock().remove(&token);
    }

    /// See [`LeaderHandoff::offer_connection`].
    pub(super) fn offer_connection(&self, reader: AcceptedReader) -> Result<ConnectionToken, AcceptedReader> {
        self.leader_handoff.offer_connection(reader)
    }

    /// See [`LeaderHandoff::reclaim_connection`].
    pub(super) fn reclaim_connection(&self, token: ConnectionToken) -> Option<AcceptedReader> {
        self.leader_handoff.reclaim_connection(token)
    }

    fn enqueue(&self, task: Arc<IoTask>) {
        self.ready.lock().push_back(task);
        if self.parked.swap(false, Ordering::SeqCst)
            && let Err(error) = self.waker.wake()
        {
            tracing::error!(%error, "could not wake the I/O thread");
        }
    }

    /// The loop of a thread: the first one starts as the leader, the second one as the follower.
    fn run(&'static self, poller: Option<Poller>) {
        if let Some(poller) = poller {
            self.lead(poller);
        }
        loop {
            let (poller, connection) = self.leader_handoff.wait_for_takeover();
            tracing::debug!("a follow-up takes long: the other I/O thread takes over its connection");
            connection.take_over();
            self.lead(poller);
        }
    }

    /// Runs tasks until the other thread takes over.
    fn lead(&self, mut poller: Poller) {
        loop {
            // Tasks that these make ready run after the sockets are polled.
            let ready = self.ready.lock().len();
            for _ in 0..ready {
                let Some(task) = self.ready.lock().pop_front() else {
                    break;
                };
                let leader_token = self.leader_handoff.offer_poller(poller);
                task.run();
                match self.leader_handoff.reclaim_poller(leader_token) {
                    Some(reclaimed) => poller = reclaimed,
                    None => return,
                }
            }
            self.wait(&mut poller);
        }
    }

    /// Waits for ready tasks. If there are some, polls the sockets without waiting.
    fn wait(&self, poller: &mut Poller) {
        let Poller { selector, busy_poller } = poller;
        if self.has_ready() {
            return self.poll_sockets(selector, Some(Duration::ZERO));
        }
        busy_poller.busy_poll(|| {
            self.poll_sockets(selector, Some(Duration::ZERO));
            self.has_ready()
        });
        if self.has_ready() {
            return;
        }
        self.parked.store(true, Ordering::SeqCst);
        // A task enqueued before `parked` was set has woken no thread.
        let timeout = self.has_ready().then_some(Duration::ZERO);
        self.poll_sockets(selector, timeout);
        self.parked.store(false, Ordering::SeqCst);
    }

    /// Whether the run queue has tasks.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.lock().is_empty()
    }

    /// Polls the system for socket events, and wakes the tasks that wait for them.
    fn poll_sockets(&self, selector: &mut Selector, timeout: Option<Duration>) {
        if let Err(error) = selector.poll.poll(&mut selector.events, timeout) {
            if error.kind() != io::ErrorKind::Interrupted {
                tracing::error!(%error, "could not poll the system for socket events; retrying");
                std::thread::sleep(IO_ERROR_PAUSE);
            }
            return;
        }
        for event in &selector.events {
            let readiness = self.sockets.lock().get(&event.token()).cloned();
            if let Some(readiness) = readiness {
                readiness.record(event);
            }
        }
    }
}

#[cfg(test)]
mod tests;
