//! A task of the threads that read connections.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::IoThreads;

/// Something that goes on whenever it is woken.
pub(super) struct Task {
    io_threads: &'static IoThreads,
    handle: Handle,
    /// None when it is over. Locked while it is run, which for one task at a time may take long.
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    /// It is among those that are ready.
    queued: AtomicBool,
    /// It was ready while another thread ran it.
    missed: AtomicBool,
}

impl Task {
    /// A task that is ready.
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

    /// Goes on with it. If another thread is still at it, that one does.
    pub(super) fn run(self: Arc<Self>) {
        // From now on it can be woken again.
        self.queued.store(false, Ordering::SeqCst);
        let future = self.future.try_lock().or_else(|| {
            self.missed.store(true, Ordering::SeqCst);
            // The other thread may have come to its end before it could see that.
            self.future.try_lock()
        });
        let Some(mut future) = future else { return };
        if let Some(going_on) = future.as_mut() {
            let waker = Waker::from(Arc::clone(&self));
            let _within = self.handle.enter();
            let polled = catch_unwind(AssertUnwindSafe(|| {
                going_on.as_mut().poll(&mut Context::from_waker(&waker))
            }));
            match polled {
                Ok(polled) if polled.is_pending() => {}
                Ok(_) => *future = None,
                Err(_) => {
                    tracing::error!("a panic has ended the task that reads a connection");
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

impl Wake for Task {
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
