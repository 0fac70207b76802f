//! The task that reads a connection which this process has opened, and callers who look for what it is about to read.
//!
//! A lone call is quickest if nobody has to be woken for its reply. So who has made one, and waits for it alone, goes on with the
//! task that reads on its own thread for a moment. If the reply does not come in that time, the task waits for it as ever.
//!
//! ```text
//!   call ──► looks: the task goes on here, of which tokio knows nothing ──► the reply ──► disarmed: most likely it calls again
//!                 └── not there in time ──► tokio wakes the task ──► the task wakes the caller
//! ```
//!
//! While it is disarmed nobody is woken by what comes either, because nobody waits for it. That ends as soon as somebody else sends
//! something, and by itself after a moment.
//!
//! The task itself looks for replies when it has just sent what many callers left to it: a thread of tokio's that sleeps and is woken
//! has another one woken, which takes half of the callers to its core.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;

use super::busy_poll::BusyPoller;
use super::outgoing_socket::OutgoingSocket;

/// The task that reads a connection. It lives as long as tokio keeps it.
pub(super) struct ReplyReader {
    // Whoever has the lock goes on with the task. Tokio's thread waits for it if somebody looks, which takes a moment.
    task: Mutex<Task>,
    /// It is to be disarmed no more. Whoever has had the task sees to that.
    rearms: AtomicBool,
    socket: OutgoingSocket,
    read_hint: Arc<ReadHint>,
    handle: Handle,
}

/// What the task has to expect, as it says itself.
#[derive(Default)]
pub(crate) struct ReadHint(AtomicU8);

impl ReadHint {
    /// Something may come or not.
    const ANYTHING: u8 = 0;
    /// PendingCalls were told: it gives way to them, and goes on as soon as they have had their turn.
    pub(super) const CALLERS: u8 = 1;
    /// They have sent what they had, and replies to many calls are worth a look.
    const REPLIES: u8 = 2;
    /// Others may wait, but a look is of no use: it has to be told of what comes.
    pub(super) const READINESS: u8 = 3;

    pub(super) fn set(&self, expected: u8) {
        self.0.store(expected, Ordering::Relaxed);
    }

    /// It waits for what comes from now on. What callers have sent `has_left`, or another task has to write it first.
    pub(super) fn callers_have_sent(&self, has_left: bool) {
        if self.is(Self::CALLERS) {
            self.set(if has_left { Self::REPLIES } else { Self::READINESS });
        }
    }

    fn is(&self, what: u8) -> bool {
        self.0.load(Ordering::Relaxed) == what
    }
}

struct Task {
    /// None when it is over.
    future: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Lets tokio go on with it; none before tokio has begun.
    waker: Option<Waker>,
    busy_poller: BusyPoller,
}

impl ReplyReader {
    /// Runs the task that reads this socket.
    pub(super) fn spawn(
        handle: &Handle,
        socket: OutgoingSocket,
        read_hint: Arc<ReadHint>,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> Weak<ReplyReader> {
        let replies = Arc::new(ReplyReader {
            task: Mutex::new(Task {
                future: Some(Box::pin(future)),
                waker: None,
                busy_poller: BusyPoller::default(),
            }),
            rearms: AtomicBool::new(false),
            socket,
            read_hint,
            handle: handle.clone(),
        });
        let known_as = Arc::downgrade(&replies);
        handle.spawn(poll_fn(move |context| {
            let polled = replies.go_on(context.waker());
            replies.rearm_if_requested();
            polled
        }));
        known_as
    }

    /// Goes on with the task on tokio's thread. If replies to many calls are on their way it looks for them.
    fn go_on(&self, waker: &Waker) -> Poll<()> {
        let mut task = self.task.lock();
        if task.go_on(waker).is_pending() {
            if self.read_hint.is(ReadHint::REPLIES) {
                let is_there = || !self.read_hint.is(ReadHint::REPLIES);
                self.busy_poll_with(&mut task, is_there, || self.read_hint.is(ReadHint::CALLERS));
                if !is_there() {
                    self.read_hint.set(ReadHint::ANYTHING);
                }
            } else if self.read_hint.is(ReadHint::READINESS) {
                self.read_hint.set(ReadHint::ANYTHING);
                if self.socket.rearm() {
                    task.ask(waker.clone());
                }
            }
        }
        task.is_over()
    }

    /// Goes on with the task on this thread for a moment, until `is_there`. Stays disarmed after that if `nobody_waits`.
    pub(super) fn busy_poll(&self, is_there: impl Fn() -> bool, nobody_waits: impl FnOnce() -> bool) {
        match self.task.try_lock() {
            Some(mut task) => self.busy_poll_with(&mut task, is_there, nobody_waits),
            // Somebody else is at it, who does not know of this one.
            None => self.rearms.store(true, Ordering::SeqCst),
        }
        self.rearm_if_requested();
    }

    fn busy_poll_with(&self, task: &mut Task, is_there: impl Fn() -> bool, nobody_waits: impl FnOnce() -> bool) {
        let Some(waker) = task.waker.clone() else { return };
        let _within = self.handle.enter();
        let mut busy_poller = std::mem::take(&mut task.busy_poller);
        let mut has_looked = false;
        let found = busy_poller.busy_poll(|| {
            if !std::mem::replace(&mut has_looked, true) {
                self.socket.begin_busy_poll();
            }
            task.poll(&waker).is_ready() || is_there()
        });
        task.busy_poller = busy_poller;
        let asks = match has_looked {
            true => self.socket.end_busy_poll(found && nobody_waits()),
            false => self.socket.rearm(),
        };
        // If it gives way to callers it has been woken, and asks when it goes on.
        if asks && !self.read_hint.is(ReadHint::CALLERS) {
            task.ask(waker);
        }
    }

    /// Somebody may wait for what comes: it is disarmed no more.
    pub(super) fn rearm(&self) {
        self.rearms.store(true, Ordering::SeqCst);
        self.rearm_if_requested();
    }

    /// Ends what should have ended while this thread had the task.
    fn rearm_if_requested(&self) {
        // Looked at again when the task is free, because whoever could not have it has left it to this thread.
        while self.rearms.load(Ordering::SeqCst) {
            let Some(task) = self.task.try_lock() else { return };
            self.rearms.store(false, Ordering::SeqCst);
            // It goes on somewhere else: what comes is taken in, for which this thread may not be free.
            if self.socket.rearm()
                && let Some(waker) = &task.waker
            {
                waker.wake_by_ref();
            }
        }
    }
}

impl Task {
    /// Goes on with it, so that this waker is woken when there is more to do.
    fn go_on(&mut self, waker: &Waker) -> Poll<()> {
        if !self.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.waker = Some(waker.clone());
        }
        self.poll(waker)
    }

    fn is_over(&self) -> Poll<()> {
        match self.future {
            Some(_) => Poll::Pending,
            None => Poll::Ready(()),
        }
    }

    /// Goes on with it, so that it is woken by all that it waits for.
    fn ask(&mut self, waker: Waker) {
        if self.poll(&waker).is_ready() {
            waker.wake();
        }
    }

    fn poll(&mut self, waker: &Waker) -> Poll<()> {
        let Some(future) = &mut self.future else {
            return Poll::Ready(());
        };
        // It gives way by itself, and what it does is no part of what its caller may do.
        let mut future = unconstrained(future.as_mut());
        let polled = catch_unwind(AssertUnwindSafe(|| {
            Pin::new(&mut future).poll(&mut Context::from_waker(waker))
        }));
        if polled.is_err() {
            tracing::error!("a panic has ended the task that reads a connection");
        }
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) | Err(_) => {
                self.future = None;
                Poll::Ready(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;

    use super::*;

    /// A connection whose bytes are counted as they are read, and its other end.
    struct Counted {
        replies: Weak<ReplyReader>,
        bytes: Arc<AtomicUsize>,
        other: TcpStream,
    }

    /// Both ends of a connection.
    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (other, _) = listener.accept().await.unwrap();
        other.set_nodelay(true).unwrap();
        (ours, other)
    }

    impl Counted {
        async fn start() -> Self {
            let (ours, other) = connection().await;
            let socket = OutgoingSocket::new(ours).unwrap();
            let bytes = Arc::new(AtomicUsize::new(0));
            let (mut reads, count) = (socket.clone(), Arc::clone(&bytes));
            let replies = ReplyReader::spawn(&Handle::current(), socket, Arc::default(), async move {
                let mut room = [0; 1000];
                while let Ok(read @ 1..) = reads.read(&mut room).await {
                    count.fetch_add(read, Ordering::SeqCst);
                }
            });
            Self { replies, bytes, other }
        }

        fn came(&self) -> usize {
            self.bytes.load(Ordering::SeqCst)
        }

        async fn wait_for(&self, bytes: usize) {
            let came = async {
                while self.came() < bytes {
                    tokio::task::yield_now().await;
                }
            };
            let in_time = timeout(Duration::from_secs(10), came).await;
            assert!(in_time.is_ok(), "{} of {bytes} bytes came", self.came());
        }

        fn socket(&self) -> OutgoingSocket {
            self.replies.upgrade().unwrap().socket.clone()
        }

        /// Has another byte sent, and looks until that many have come.
        async fn find(&mut self, bytes: usize) {
            // Tokio goes on with the task, which asks to read.
            tokio::task::yield_now().await;
            self.other.write_all(&[0]).await.unwrap();
            while self.came() < bytes {
                self.busy_poll(bytes);
            }
        }

        fn busy_poll(&self, bytes: usize) {
            if let Some(replies) = self.replies.upgrade() {
                replies.busy_poll(|| self.came() >= bytes, || true);
            }
        }
    }

    #[tokio::test]
    async fn nothing_is_lost_between_looks_and_tokio() {
        let mut counted = Counted::start().await;
        let mut sent = 0;
        for round in 1..2_000 {
            // Now and then more than is read at once.
            let bytes = if round % 100 == 0 { 2_500 } else { round % 7 + 1 };
            if round % 3 == 0 {
                counted.busy_poll(sent + 1);
            }
            counted.other.write_all(&vec![0; bytes]).await.unwrap();
            sent += bytes;
            if round % 2 == 0 {
                counted.busy_poll(sent);
            }
            if round % 5 == 0 {
                counted.wait_for(sent).await;
            }
        }
        counted.wait_for(sent).await;
        assert_eq!(counted.came(), sent);
    }

    #[tokio::test]
    async fn who_looks_finds_what_is_there_without_tokio() {
        let mut counted = Counted::start().await;
        counted.other.write_all(&[0]).await.unwrap();
        counted.wait_for(1).await;
        counted.other.write_all(&[0; 10]).await.unwrap();
        // Nothing is awaited from here on, so this runtime's only thread reads nothing.
        for _ in 0..1_000 {
            counted.busy_poll(11);
        }
        assert_eq!(counted.came(), 11);
    }

    #[tokio::test]
    async fn what_comes_unasked_after_a_look_is_read_in_the_end() {
        let mut counted = Counted::start().await;
        for round in 1..=5 {
            counted.find(2 * round - 1).await;
            assert!(counted.socket().is_disarmed(), "most likely somebody looks again");
            counted.other.write_all(&[0]).await.unwrap();
            counted.wait_for(2 * round).await;
        }
    }

    #[tokio::test]
    async fn a_muted_connection_is_heard_as_soon_as_somebody_waits() {
        let mut counted = Counted::start().await;
        counted.find(1).await;
        // Whoever is told so while another goes on with the task leaves it to that one.
        for is_at_it in [false, true] {
            let replies = counted.replies.upgrade().unwrap();
            counted.find(counted.came() + 1).await;
            assert!(counted.socket().is_disarmed());
            let task = is_at_it.then(|| replies.task.lock());
            replies.rearm();
            assert_eq!(counted.socket().is_disarmed(), is_at_it);
            if let Some(task) = task {
                drop(task);
                replies.busy_poll(|| false, || true);
            }
            assert!(!counted.socket().is_disarmed());
        }
    }

    #[tokio::test]
    async fn who_has_a_connection_heard_does_not_take_in_what_came() {
        let mut counted = Counted::start().await;
        counted.find(1).await;
        counted.other.write_all(&[0]).await.unwrap();
        counted.replies.upgrade().unwrap().rearm();
        assert_eq!(counted.came(), 1, "it may have a lock that is needed for that");
        counted.wait_for(2).await;
    }

    #[tokio::test]
    async fn who_looks_for_replies_in_vain_is_told_of_them() {
        let (ours, mut other) = connection().await;
        let socket = OutgoingSocket::new(ours).unwrap();
        let (read_hint, bytes) = (Arc::new(ReadHint::default()), Arc::new(AtomicUsize::new(0)));
        let (mut reads, says, count) = (socket.clone(), Arc::clone(&read_hint), Arc::clone(&bytes));
        let replies = ReplyReader::spawn(&Handle::current(), socket.clone(), Arc::clone(&read_hint), async move {
            loop {
                // As if callers had just sent something.
                says.set(ReadHint::CALLERS);
                says.callers_have_sent(true);
                match reads.read(&mut [0]).await {
                    Ok(read @ 1..) => count.fetch_add(read, Ordering::SeqCst),
                    _ => break,
                };
            }
        });
        for round in 1..100 {
            // It has looked, and waits.
            tokio::task::yield_now().await;
            assert!(read_hint.is(ReadHint::ANYTHING) && !socket.is_disarmed());
            other.write_all(&[0]).await.unwrap();
            while bytes.load(Ordering::SeqCst) < round {
                tokio::task::yield_now().await;
            }
        }
        drop(other);
        timeout(Duration::from_secs(10), async {
            while replies.strong_count() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("the task ends");
    }

    #[tokio::test]
    async fn a_task_that_has_to_be_told_of_what_comes_is_not_muted() {
        let (ours, mut other) = connection().await;
        let socket = OutgoingSocket::new(ours).unwrap();
        let read_hint = Arc::new(ReadHint::default());
        let (mut reads, says) = (socket.clone(), Arc::clone(&read_hint));
        let replies = ReplyReader::spawn(&Handle::current(), socket.clone(), Arc::clone(&read_hint), async move {
            while let Ok(1..) = reads.read(&mut [0]).await {
                says.set(ReadHint::READINESS);
            }
        });
        tokio::task::yield_now().await;
        other.write_all(&[0]).await.unwrap();
        let replies = replies.upgrade().unwrap();
        while !read_hint.is(ReadHint::READINESS) {
            replies.busy_poll(|| read_hint.is(ReadHint::READINESS), || true);
        }
        assert!(socket.is_disarmed());
        let waker = replies.task.lock().waker.clone().unwrap();
        assert!(replies.go_on(&waker).is_pending());
        assert!(!socket.is_disarmed() && read_hint.is(ReadHint::ANYTHING));
    }

    #[tokio::test]
    async fn who_looks_while_another_waits_leaves_nothing_muted() {
        let mut counted = Counted::start().await;
        counted.other.write_all(&[0]).await.unwrap();
        let replies = counted.replies.upgrade().unwrap();
        tokio::task::yield_now().await;
        replies.busy_poll(|| counted.came() == 1, || false);
        assert!(!counted.socket().is_disarmed());
    }

    #[tokio::test]
    async fn the_end_of_a_connection_ends_its_task_whoever_sees_it() {
        for looks in [true, false] {
            let mut counted = Counted::start().await;
            counted.other.write_all(&[0]).await.unwrap();
            counted.wait_for(1).await;
            counted.other.shutdown().await.unwrap();
            if looks {
                counted.busy_poll(2);
            }
            let ended = async {
                while counted.replies.strong_count() > 0 {
                    tokio::task::yield_now().await;
                }
            };
            timeout(Duration::from_secs(10), ended).await.expect("the task ends");
        }
    }

    #[tokio::test]
    async fn a_panic_ends_the_task_and_not_who_looks() {
        let (ours, _other) = connection().await;
        let socket = OutgoingSocket::new(ours).unwrap();
        let mut polls = 0;
        let replies = ReplyReader::spawn(
            &Handle::current(),
            socket,
            Arc::default(),
            poll_fn(move |_| {
                polls += 1;
                assert!(polls < 2, "on purpose");
                Poll::Pending
            }),
        );
        tokio::task::yield_now().await;
        replies.upgrade().unwrap().busy_poll(|| false, || true);
        assert!(replies.upgrade().unwrap().task.lock().future.is_none());
    }
}
