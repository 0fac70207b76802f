//! The thread that a member's tasks run on.

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// How often a task that polls whether others are waiting lets them run first: a task that is woken runs before one that has let
/// others run, and what came over the network is looked for in between.
const ROUNDS: u32 = 2;

/// One thread for everything that a member does but turns. It ends with this, wherever that is dropped.
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
        self.0.as_ref().expect("it is used before it is stopped").handle()
    }

    /// What this gives ends when every task that could go on has gone on, and waits again or has ended. It fails only if the
    /// thread is stopped, and then nothing goes on.
    pub(super) fn last_in_line(&self) -> JoinHandle<()> {
        self.handle().spawn(async {
            for _ in 0..ROUNDS {
                tokio::task::yield_now().await;
            }
        })
    }

    /// Ends the thread; the tasks are dropped where they are.
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
