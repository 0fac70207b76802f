//! A task of the I/O threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::IoThreads;

/// A future that the I/O threads poll.
pub(super) struct IoTask {
    io_threads: &'static IoThreads,
    handle: Handle,
    /// None when it has completed. Locked during a poll, which takes long for at most one task at a time.
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    /// Whether it is in the run queue.
    queued: AtomicBool,
    /// Whether it was woken while another thread polled it.
    missed: AtomicBool,
}

impl IoTask {
    /// A task that is ready, to be enqueued by the caller.
    pub(super) fn new(
        io_threads: &'static IoThreads,
        handle: Handle,
        future: Pin<Box<dyn Future<Output = ()> + Send>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            io_threads,
            handle,
            future: Mutex::new(Some(future)),
            queued: AtomicBool::new(true),
            missed: AtomicBool::new(false),
        })
    }

    /// Polls it. If another thread is still polling it, that one wakes it again.
    pub(super) fn run(self: Arc<Self>) {
        // Cleared first, so that wakes during the poll enqueue it again.
        self.queued.store(false, Ordering::SeqCst);
        let future = self.future.try_lock().or_else(|| {
            self.missed.store(true, Ordering::SeqCst);
            // The other thread may have checked `missed` before it was set.
            self.future.try_lock()
        });
        let Some(mut future) = future else { return };
        if let Some(running) = future.as_mut() {
            let waker = Waker::from(Arc::clone(&self));
            let _within = self.handle.enter();
            let polled = catch_unwind(AssertUnwindSafe(|| {
                running.as_mut().poll(&mut Context::from_waker(&waker))
            }));
            match polled {
                Ok(polled) if polled.is_pending() => {}
                Ok(_) => *future = None,
                Err(_) => {
                    tracing::error!("the task that reads a connection panicked");
                    *future = None;
                }
            }
        }
        drop(future);
        if self.missed.swap(false, Ordering::SeqCst) {
            self.wake_by_ref();
        }
    }
}

impl Wake for IoTask {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::SeqCst) {
            let io_threads = self.io_threads;
            io_threads.enqueue(self);
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.load(Ordering::SeqCst) {
            Arc::clone(self).wake();
        }
    }
}
