//! The threads that read all connections of this process.
//!
//! One of two leads: it asks the system which sockets have something, and runs the tasks that wait for them. A task takes frames
//! in, and runs the first actor that its mail reaches. Because an actor may take long, the other thread looks out for that: it
//! takes the lead then, with the connection that the first one has put down.
//!
//! ```text
//!   leads ────── an actor takes long ──────► ends with it, then looks out
//!   looks out ── takes the lead ───────────► leads
//! ```
//!
//! These are no threads of tokio's because of what the leader does when there is nothing to do: it looks again and again for a
//! moment before it sleeps ([`BusyPoller`]). A thread that sleeps takes tens of microseconds to wake up, which is more than all else
//! that a call takes. A task of tokio's can't look like this: whenever it gives way, another of tokio's threads is woken to see
//! whether there is something for it.
//!
//! Only connections that others have opened are read here: on those come calls. ReplyReader are read by tokio's threads, whose tasks
//! wait for them most likely.

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

use super::busy_poll::BusyPoller;
use super::connection_reader::{self, ConnectionReader};
use super::socket::Readiness;
use leader_handoff::LeaderHandoff;
use task::Task;

pub(super) use leader_handoff::Ticket;

/// What the bell is known by; sockets have the numbers after it.
const WAKE_TOKEN: Token = Token(0);

/// How many sockets the system names at once.
const EVENTS_AT_ONCE: usize = 256;

/// How long the leader waits if the system can't say which sockets have something, so that it does not ask in vain all the time.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);

/// The I/O threads of this process, once they are there.
static IO_THREADS: Mutex<Option<&'static IoThreads>> = Mutex::new(None);

/// The threads that read all connections of this process, and what they read.
pub(crate) struct IoThreads {
    registry: Registry,
    /// Wakes the leader for what is no socket's.
    bell: Waker,
    /// The leader sleeps, and wants the bell rung.
    asleep: AtomicBool,
    /// Tasks that can go on.
    ready: Mutex<VecDeque<Arc<Task>>>,
    sockets: Mutex<HashMap<Token, Arc<Readiness>>>,
    sockets_ever: AtomicUsize,
    leader_handoff: LeaderHandoff<Poller, ConnectionReader>,
}

/// What the thread that leads has: nobody else asks the system.
struct Poller {
    system: System,
    busy_poller: BusyPoller,
}

/// What the system is asked with.
struct System {
    poll: Poll,
    events: Events,
}

impl IoThreads {
    /// The I/O threads of this process: whoever is first to need them starts them.
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
            bell: Waker::new(poll.registry(), WAKE_TOKEN)?,
            asleep: AtomicBool::new(false),
            ready: Mutex::default(),
            sockets: Mutex::default(),
            sockets_ever: AtomicUsize::new(WAKE_TOKEN.0),
            leader_handoff: LeaderHandoff::default(),
        }));
        let lead = Poller {
            system: System {
                poll,
                events: Events::with_capacity(EVENTS_AT_ONCE),
            },
            busy_poller: BusyPoller::default(),
        };
        let thread = || std::thread::Builder::new().name("elastin-reader".into());
        thread().spawn(|| io_threads.live(Some(lead)))?;
        match thread().spawn(|| io_threads.live(None)) {
            Ok(_) => io_threads.leader_handoff.has_two_threads(),
            Err(error) => {
                tracing::warn!(%error, "could not start the second I/O thread; a long turn will delay other connections")
            }
        }
        Ok(io_threads)
    }

    /// Runs a task, within a tokio runtime whose timers and tasks it may use.
    pub(super) fn spawn(&'static self, handle: &Handle, future: impl Future<Output = ()> + Send + 'static) {
        self.enqueue(Task::new(self, handle.clone(), Box::pin(future)));
    }

    /// Says who is to receive what happens at a socket; by what it is known from now on.
    pub(super) fn register(&self, stream: &mut mio::net::TcpStream, readiness: &Arc<Readiness>) -> io::Result<Token> {
        let token = Token(1 + self.sockets_ever.fetch_add(1, Ordering::Relaxed));
        self.sockets.lock().insert(token, Arc::clone(readiness));
        let registered = self
            .registry
            .register(stream, token, Interest::READABLE | Interest::WRITABLE);
        if registered.is_err() {
            self.sockets.lock().remove(&token);
        }
        registered.map(|()| token)
    }

    /// A socket is about to be closed.
    pub(super) fn deregister(&self, stream: &mut mio::net::TcpStream, token: Token) {
        // The system forgets a closed socket anyway.
        let _ = self.registry.deregister(stream);
        self.sockets.lock().remove(&token);
    }

    /// See [`LeaderHandoff::put_down`].
    pub(super) fn put_down(&self, reading: ConnectionReader) -> Result<Ticket, ConnectionReader> {
        self.leader_handoff.put_down(reading)
    }

    /// See [`LeaderHandoff::take_back`].
    pub(super) fn take_back(&self, ticket: Ticket) -> Option<ConnectionReader> {
        self.leader_handoff.take_back(ticket)
    }

    fn enqueue(&self, task: Arc<Task>) {
        self.ready.lock().push_back(task);
        if self.asleep.swap(false, Ordering::SeqCst)
            && let Err(error) = self.bell.wake()
        {
            tracing::error!(%error, "the thread that reads connections can't be woken");
        }
    }

    /// The life of a thread, which begins with the lead or looks out for it.
    fn live(&'static self, lead: Option<Poller>) {
        if let Some(lead) = lead {
            self.lead(lead);
        }
        loop {
            let (lead, connection) = self.leader_handoff.wait_for_lead();
            tracing::debug!("an actor runs for long, and another thread reads its connection");
            connection_reader::read_on(self, connection);
            self.lead(lead);
        }
    }

    /// Runs tasks until the lead is lost to the other thread.
    fn lead(&self, mut lead: Poller) {
        loop {
            // What these make ready comes after a look at the sockets.
            let ready = self.ready.lock().len();
            for _ in 0..ready {
                let Some(task) = self.ready.lock().pop_front() else {
                    break;
                };
                let leader_token = self.leader_handoff.lay(lead);
                task.run();
                match self.leader_handoff.pick_up(leader_token) {
                    Some(still) => lead = still,
                    None => return,
                }
            }
            self.wait(&mut lead);
        }
    }

    /// Waits until there is something to do, or does not if there is.
    fn wait(&self, lead: &mut Poller) {
        let Poller { system, busy_poller } = lead;
        if self.has_ready() {
            return self.ask(system, Some(Duration::ZERO));
        }
        busy_poller.busy_poll(|| {
            self.ask(system, Some(Duration::ZERO));
            self.has_ready()
        });
        if self.has_ready() {
            return;
        }
        self.asleep.store(true, Ordering::SeqCst);
        // Whoever has made something ready before it could see that this thread sleeps did not ring.
        let timeout = self.has_ready().then_some(Duration::ZERO);
        self.ask(system, timeout);
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Whether somebody else could be read now.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.lock().is_empty()
    }

    /// Asks the system which sockets have something, and tells those who wait for it.
    fn ask(&self, system: &mut System, timeout: Option<Duration>) {
        if let Err(error) = system.poll.poll(&mut system.events, timeout) {
            if error.kind() != io::ErrorKind::Interrupted {
                tracing::error!(%error, "the system can't say which connections have something");
                std::thread::sleep(PAUSE_AFTER_ERROR);
            }
            return;
        }
        for event in &system.events {
            let readiness = self.sockets.lock().get(&event.token()).cloned();
            if let Some(readiness) = readiness {
                readiness.tell(event);
            }
        }
    }
}

#[cfg(test)]
mod tests;
