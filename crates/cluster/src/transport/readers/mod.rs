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
//! moment before it sleeps ([`Looking`]). A thread that sleeps takes tens of microseconds to wake up, which is more than all else
//! that a call takes. A task of tokio's can't look like this: whenever it gives way, another of tokio's threads is woken to see
//! whether there is something for it.
//!
//! Only connections that others have opened are read here: on those come calls. Replies are read by tokio's threads, whose tasks
//! wait for them most likely.

mod lookout;
mod task;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mio::{Events, Interest, Poll, Registry, Token, Waker};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::looking::Looking;
use super::reading::{self, Reading};
use super::socket::Readiness;
use lookout::Lookout;
use task::Task;

pub(super) use lookout::Ticket;

/// What the bell is known by; sockets have the numbers after it.
const BELL: Token = Token(0);

/// How many sockets the system names at once.
const EVENTS_AT_ONCE: usize = 256;

/// How long the leader waits if the system can't say which sockets have something, so that it does not ask in vain all the time.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);

/// The readers of this process, once they are there.
static READERS: Mutex<Option<&'static Readers>> = Mutex::new(None);

/// The threads that read all connections of this process, and what they read.
pub(crate) struct Readers {
    registry: Registry,
    /// Wakes the leader for what is no socket's.
    bell: Waker,
    /// The leader sleeps, and wants the bell rung.
    asleep: AtomicBool,
    /// Tasks that can go on.
    ready: Mutex<VecDeque<Arc<Task>>>,
    sockets: Mutex<HashMap<Token, Arc<Readiness>>>,
    sockets_ever: AtomicUsize,
    lookout: Lookout<Lead, Reading>,
}

/// What the thread that leads has: nobody else asks the system.
struct Lead {
    system: System,
    looking: Looking,
}

/// What the system is asked with.
struct System {
    poll: Poll,
    events: Events,
}

impl Readers {
    /// The readers of this process: whoever is first to need them starts them.
    pub(super) fn of_process() -> io::Result<&'static Readers> {
        let mut readers = READERS.lock();
        if let Some(readers) = *readers {
            return Ok(readers);
        }
        let started = Self::start()?;
        *readers = Some(started);
        Ok(started)
    }

    fn start() -> io::Result<&'static Readers> {
        let poll = Poll::new()?;
        let readers: &'static Readers = Box::leak(Box::new(Readers {
            registry: poll.registry().try_clone()?,
            bell: Waker::new(poll.registry(), BELL)?,
            asleep: AtomicBool::new(false),
            ready: Mutex::default(),
            sockets: Mutex::default(),
            sockets_ever: AtomicUsize::new(BELL.0),
            lookout: Lookout::default(),
        }));
        let lead = Lead {
            system: System {
                poll,
                events: Events::with_capacity(EVENTS_AT_ONCE),
            },
            looking: Looking::default(),
        };
        let thread = || std::thread::Builder::new().name("elastin-reader".into());
        thread().spawn(|| readers.live(Some(lead)))?;
        match thread().spawn(|| readers.live(None)) {
            Ok(_) => readers.lookout.has_two_threads(),
            Err(error) => tracing::warn!(%error, "no thread to look out for actors that take long"),
        }
        Ok(readers)
    }

    /// Runs a task, within a tokio runtime whose timers and tasks it may use.
    pub(super) fn spawn(&'static self, handle: &Handle, future: impl Future<Output = ()> + Send + 'static) {
        self.enqueue(Task::new(self, handle.clone(), Box::pin(future)));
    }

    /// Says who is to hear what happens at a socket; by what it is known from now on.
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

    /// See [`Lookout::put_down`].
    pub(super) fn put_down(&self, reading: Reading) -> Result<Ticket, Reading> {
        self.lookout.put_down(reading)
    }

    /// See [`Lookout::take_back`].
    pub(super) fn take_back(&self, ticket: Ticket) -> Option<Reading> {
        self.lookout.take_back(ticket)
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
    fn live(&'static self, lead: Option<Lead>) {
        if let Some(lead) = lead {
            self.lead(lead);
        }
        loop {
            let (lead, connection) = self.lookout.wait_for_lead();
            tracing::debug!("an actor runs for long, and another thread reads its connection");
            reading::read_on(self, connection);
            self.lead(lead);
        }
    }

    /// Runs tasks until the lead is lost to the other thread.
    fn lead(&self, mut lead: Lead) {
        loop {
            // What these make ready comes after a look at the sockets.
            let ready = self.ready.lock().len();
            for _ in 0..ready {
                let Some(task) = self.ready.lock().pop_front() else {
                    break;
                };
                let laid = self.lookout.lay(lead);
                task.run();
                match self.lookout.pick_up(laid) {
                    Some(still) => lead = still,
                    None => return,
                }
            }
            self.wait(&mut lead);
        }
    }

    /// Waits until there is something to do, or does not if there is.
    fn wait(&self, lead: &mut Lead) {
        let Lead { system, looking } = lead;
        if self.has_ready() {
            return self.ask(system, Some(Duration::ZERO));
        }
        looking.look(|| {
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
