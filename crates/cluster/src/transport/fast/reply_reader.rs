//! The task that reads a connection opened by this process, which callers may busy-poll.
//!
//! A lone call is fastest if its reply wakes no thread. A caller that is the only one waiting therefore polls the read task on
//! its own thread for a short time. If the reply takes longer, the task waits for it on tokio as usual.
//!
//! ```text
//!   call ──► busy-polls the read task, bypassing tokio ──► reply ──► disarmed: the next call most likely follows
//!                 └── timeout ──► tokio wakes the task ──► the task wakes the caller
//! ```
//!
//! While the socket is disarmed, received bytes wake no thread, because no caller waits for them. It is rearmed as soon as another
//! caller sends, or by a timeout.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;

use super::busy_poll::BusyPoller;
use super::dialled_socket::DialledSocket;
use crate::transport::link::ReplyPoller;

/// The task that reads a connection. Tokio owns it.
pub(super) struct ReplyReader {
    // The holder of the lock polls the task. Tokio's worker blocks on it while a caller busy-polls, which is short.
    task: Mutex<ReadTask>,
    /// A request to rearm the socket. The holder of the task's lock carries it out.
    rearm_requested: AtomicBool,
    socket: DialledSocket,
    /// Whether the socket may be disarmed, because it was busy-polled.
    may_be_disarmed: AtomicBool,
    /// Whether the task is woken for steps of a follow-up. Only the thread that polls the task uses it.
    has_steps: Arc<AtomicBool>,
    handle: Handle,
}

struct ReadTask {
    /// None when it has completed.
    future: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Tokio's waker; none before the first poll by tokio.
    waker: Option<Waker>,
    busy_poller: BusyPoller,
}

impl ReplyReader {
    /// Spawns the task that reads this socket.
    pub(super) fn spawn(
        handle: &Handle,
        socket: DialledSocket,
        has_steps: Arc<AtomicBool>,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> Weak<ReplyReader> {
        let reply_reader = Arc::new(ReplyReader {
            task: Mutex::new(ReadTask {
                future: Some(Box::pin(future)),
                waker: None,
                busy_poller: BusyPoller::default(),
            }),
            rearm_requested: AtomicBool::new(false),
            socket,
            may_be_disarmed: AtomicBool::new(false),
            has_steps,
            handle: handle.clone(),
        });
        let weak = Arc::downgrade(&reply_reader);
        handle.spawn(poll_fn(move |context| {
            let polled = reply_reader.poll_on_tokio(context.waker());
            reply_reader.rearm_if_requested();
            polled
        }));
        weak
    }

    /// Polls the task on tokio's worker. Other callers may wait, so the socket must be armed.
    fn poll_on_tokio(&self, waker: &Waker) -> Poll<()> {
        let mut task = self.task.lock();
        if task.poll_and_keep_waker(waker).is_pending() && !self.has_steps() && self.socket.rearm() {
            task.register(waker.clone());
        }
        task.completion()
    }

    fn has_steps(&self) -> bool {
        self.has_steps.load(Ordering::Relaxed)
    }

    fn busy_poll_with(&self, task: &mut ReadTask, is_done: &dyn Fn() -> bool, none_pending: &dyn Fn() -> bool) {
        let Some(waker) = task.waker.clone() else { return };
        let _within = self.handle.enter();
        let mut busy_poller = std::mem::take(&mut task.busy_poller);
        let mut has_polled = false;
        let found = busy_poller.busy_poll(|| {
            if !std::mem::replace(&mut has_polled, true) {
                self.socket.begin_busy_poll();
            }
            task.poll(&waker).is_ready() || is_done()
        });
        task.busy_poller = busy_poller;
        let must_register = match has_polled {
            true => self.socket.end_busy_poll(found && none_pending()),
            false => self.socket.rearm(),
        };
        // A task with steps has been woken, and registers with its next poll.
        if must_register && !self.has_steps() {
            task.register(waker);
        }
    }

    /// Carries out requests that were made while this thread held the task's lock.
    fn rearm_if_requested(&self) {
        // Checked again after the lock is released: a thread that could not take it has left its request to this one.
        while self.rearm_requested.load(Ordering::SeqCst) {
            let Some(task) = self.task.try_lock() else { return };
            self.rearm_requested.store(false, Ordering::SeqCst);
            // Woken instead of polled here: polling handles received frames, and this thread may hold locks needed for that.
            if self.socket.rearm()
                && let Some(waker) = &task.waker
            {
                waker.wake_by_ref();
            }
        }
    }
}

impl ReplyPoller for ReplyReader {
    fn busy_poll(&self, is_done: &dyn Fn() -> bool, none_pending: &dyn Fn() -> bool) {
        // Set before the pending calls are counted: a caller that is not counted sees the flag and rearms.
        self.may_be_disarmed.store(true, Ordering::SeqCst);
        match self.task.try_lock() {
            Some(mut task) => self.busy_poll_with(&mut task, is_done, none_pending),
            // The thread that polls the task does not know of this caller.
            None => self.rearm_requested.store(true, Ordering::SeqCst),
        }
        self.rearm_if_requested();
    }

    fn rearm(&self) {
        if self.may_be_disarmed.load(Ordering::SeqCst) {
            self.may_be_disarmed.store(false, Ordering::SeqCst);
            self.rearm_requested.store(true, Ordering::SeqCst);
            self.rearm_if_requested();
        }
    }
}

impl ReadTask {
    /// Polls it, and keeps tokio's waker for busy-polls.
    fn poll_and_keep_waker(&mut self, waker: &Waker) -> Poll<()> {
        if !self.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.waker = Some(waker.clone());
        }
        self.poll(waker)
    }

    fn completion(&self) -> Poll<()> {
        match self.future {
            Some(_) => Poll::Pending,
            None => Poll::Ready(()),
        }
    }

    /// Polls it, so that the waker is registered with everything that it waits for.
    fn register(&mut self, waker: Waker) {
        if self.poll(&waker).is_ready() {
            waker.wake();
        }
    }

    fn poll(&mut self, waker: &Waker) -> Poll<()> {
        let Some(future) = &mut self.future else {
            return Poll::Ready(());
        };
        // The task yields by itself, and must not consume the cooperative budget of the caller's task.
        let mut future = unconstrained(future.as_mut());
        let polled = catch_unwind(AssertUnwindSafe(|| {
            Pin::new(&mut future).poll(&mut Context::from_waker(waker))
        }));
        if polled.is_err() {
            tracing::error!("the task that reads a connection panicked");
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

    /// A connection that counts the bytes read, and its remote end.
    struct Counted {
        reply_reader: Weak<ReplyReader>,
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
            let socket = DialledSocket::new(ours).unwrap();
            let bytes = Arc::new(AtomicUsize::new(0));
            let (mut reads, count) = (socket.clone(), Arc::clone(&bytes));
            let reply_reader = ReplyReader::spawn(&Handle::current(), socket, Arc::default(), async move {
                let mut room = [0; 1000];
                while let Ok(read @ 1..) = reads.read(&mut room).await {
                    count.fetch_add(read, Ordering::SeqCst);
                }
            });
            Self {
                reply_reader,
                bytes,
                other,
            }
        }

        fn received(&self) -> usize {
            self.bytes.load(Ordering::SeqCst)
        }

        async fn wait_for(&self, bytes: usize) {
            let received = async {
                while self.received() < bytes {
                    tokio::task::yield_now().await;
                }
            };
            let in_time = timeout(Duration::from_secs(10), received).await;
            assert!(in_time.is_ok(), "received {} of {bytes} bytes", self.received());
        }

        fn socket(&self) -> DialledSocket {
            self.reply_reader.upgrade().unwrap().socket.clone()
        }

        /// Sends another byte, and busy-polls until that many were received.
        async fn send_and_find(&mut self, bytes: usize) {
            // Tokio polls the task, which registers for reads.
            tokio::task::yield_now().await;
            self.other.write_all(&[0]).await.unwrap();
            while self.received() < bytes {
                self.busy_poll(bytes);
            }
        }

        fn busy_poll(&self, bytes: usize) {
            if let Some(reply_reader) = self.reply_reader.upgrade() {
                reply_reader.busy_poll(&|| self.received() >= bytes, &|| true);
            }
        }
    }

    #[tokio::test]
    async fn no_bytes_are_lost_between_busy_polls_and_tokio() {
        let mut counted = Counted::start().await;
        let mut sent = 0;
        for round in 1..2_000 {
            // Sometimes more than one read returns.
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
        assert_eq!(counted.received(), sent);
    }

    #[tokio::test]
    async fn a_busy_poll_reads_without_tokio() {
        let mut counted = Counted::start().await;
        counted.other.write_all(&[0]).await.unwrap();
        counted.wait_for(1).await;
        counted.other.write_all(&[0; 10]).await.unwrap();
        // There is no await from here on, so this runtime's only thread does not poll the task.
        for _ in 0..1_000 {
            counted.busy_poll(11);
        }
        assert_eq!(counted.received(), 11);
    }

    #[tokio::test]
    async fn a_disarmed_socket_is_rearmed_by_the_timeout() {
        let mut counted = Counted::start().await;
        for round in 1..=5 {
            counted.send_and_find(2 * round - 1).await;
            assert!(counted.socket().is_disarmed(), "disarmed after a busy-poll");
            counted.other.write_all(&[0]).await.unwrap();
            counted.wait_for(2 * round).await;
        }
    }

    #[tokio::test]
    async fn a_disarmed_socket_is_rearmed_for_a_waiting_caller() {
        let mut counted = Counted::start().await;
        counted.send_and_find(1).await;
        // A request made while another thread polls the task is left to that thread.
        for is_polled in [false, true] {
            let reply_reader = counted.reply_reader.upgrade().unwrap();
            counted.send_and_find(counted.received() + 1).await;
            assert!(counted.socket().is_disarmed());
            let task = is_polled.then(|| reply_reader.task.lock());
            reply_reader.rearm();
            assert_eq!(counted.socket().is_disarmed(), is_polled);
            if let Some(task) = task {
                drop(task);
                reply_reader.busy_poll(&|| false, &|| true);
            }
            assert!(!counted.socket().is_disarmed());
        }
    }

    #[tokio::test]
    async fn rearming_does_not_poll_on_the_calling_thread() {
        let mut counted = Counted::start().await;
        counted.send_and_find(1).await;
        counted.other.write_all(&[0]).await.unwrap();
        counted.reply_reader.upgrade().unwrap().rearm();
        assert_eq!(counted.received(), 1, "the thread may hold a lock that the task needs");
        counted.wait_for(2).await;
    }

    #[tokio::test]
    async fn late_replies_wake_the_task_after_a_failed_busy_poll() {
        let mut counted = Counted::start().await;
        for round in 1..100 {
            tokio::task::yield_now().await;
            counted.busy_poll(round);
            assert!(!counted.socket().is_disarmed());
            counted.other.write_all(&[0]).await.unwrap();
            counted.wait_for(round).await;
        }
    }

    #[tokio::test]
    async fn a_poll_by_tokio_rearms_the_socket() {
        let mut counted = Counted::start().await;
        counted.send_and_find(1).await;
        assert!(counted.socket().is_disarmed());
        let reply_reader = counted.reply_reader.upgrade().unwrap();
        let waker = reply_reader.task.lock().waker.clone().unwrap();
        assert!(reply_reader.poll_on_tokio(&waker).is_pending());
        assert!(!counted.socket().is_disarmed());
    }

    #[tokio::test]
    async fn a_busy_poll_with_pending_calls_leaves_the_socket_armed() {
        let mut counted = Counted::start().await;
        counted.other.write_all(&[0]).await.unwrap();
        let reply_reader = counted.reply_reader.upgrade().unwrap();
        tokio::task::yield_now().await;
        reply_reader.busy_poll(&|| counted.received() == 1, &|| false);
        assert!(!counted.socket().is_disarmed());
    }

    #[tokio::test]
    async fn the_end_of_a_connection_ends_its_task() {
        for busy_polls in [true, false] {
            let mut counted = Counted::start().await;
            counted.other.write_all(&[0]).await.unwrap();
            counted.wait_for(1).await;
            counted.other.shutdown().await.unwrap();
            if busy_polls {
                counted.busy_poll(2);
            }
            let ended = async {
                while counted.reply_reader.strong_count() > 0 {
                    tokio::task::yield_now().await;
                }
            };
            timeout(Duration::from_secs(10), ended).await.expect("the task ends");
        }
    }

    #[tokio::test]
    async fn a_panic_ends_the_task_and_not_the_busy_polling_caller() {
        let (ours, _other) = connection().await;
        let socket = DialledSocket::new(ours).unwrap();
        let mut polls = 0;
        let reply_reader = ReplyReader::spawn(
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
        reply_reader.upgrade().unwrap().busy_poll(&|| false, &|| true);
        assert!(reply_reader.upgrade().unwrap().task.lock().future.is_none());
    }
}
