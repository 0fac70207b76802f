//! The thread that runs a member's tasks.

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// The number of times that [`Tasks::settle`] yields. Woken tasks run before a task that has yielded, and tokio polls
/// the network in between.
const YIELDS: u32 = 2;

/// One thread for all tasks of a member except turns. Stops on drop, also inside a tokio runtime.
pub(super) struct Tasks(Option<Runtime>);

impl Tasks {
    pub(super) fn start(name: &str) -> std::io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(name)
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    pub(super) fn handle(&self) -> &Handle {
        self.0.as_ref().expect("the thread is running").handle()
    }

    /// A task that completes once every runnable task has run and is idle again. It fails only if the thread was
    /// stopped, and then no task runs.
    pub(super) fn settle(&self) -> JoinHandle<()> {
        self.handle().spawn(async {
            for _ in 0..YIELDS {
                tokio::task::yield_now().await;
            }
        })
    }

    /// Stops the thread and drops its tasks.
    pub(super) fn stop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.stop();
    }
}
