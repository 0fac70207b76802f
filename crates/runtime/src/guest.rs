//! Turns that an application's own threads go on with.
//!
//! A call by a task of the application runs on that task's thread. If its handler waits for something, most likely a thread
//! of the same tokio runtime hears of it first, and the caller waits there for the reply. To wake a worker in between would
//! cost two wake-ups of sleeping threads, many times what most turns take. So the turn goes on at home: as a task of the
//! runtime in which it began. What comes after it, other mail for example, is again a matter of the workers.

use tokio::runtime::{Handle, RuntimeFlavor};

use crate::scheduler::Task;
use crate::{errand, worker};

/// How often a turn waits at home. One that waits more often lasts so long that a wake-up does not count any more, and a worker
/// goes on with actors that call each other quicker than a task that is spawned for each.
const WAITS_AT_HOME: u32 = 16;

/// Who goes on with a turn that waits for something.
#[derive(Clone, Debug)]
pub(crate) enum RunBy {
    /// Whoever of the workers has time.
    Workers,
    /// The tokio runtime in which it began, while it waits for the first few times.
    Home { runtime: Handle, waits_left: u32 },
}

impl RunBy {
    /// Who goes on with a turn that has begun on this thread, and not out of a mailbox. A thread that is a worker takes turns
    /// from everywhere, one that brings mail has a connection to read, and a runtime of one thread is perhaps driven by nobody.
    pub(crate) fn this_thread() -> Self {
        if worker::is_one() || errand::runs() {
            return Self::Workers;
        }
        match Handle::try_current() {
            Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => Self::Home {
                runtime,
                waits_left: WAITS_AT_HOME,
            },
            _ => Self::Workers,
        }
    }

    /// The same for when the turn waits once more.
    pub(crate) fn next(self) -> Self {
        match self {
            Self::Home { waits_left: 0, .. } | Self::Workers => Self::Workers,
            Self::Home { runtime, waits_left } => Self::Home {
                runtime,
                waits_left: waits_left - 1,
            },
        }
    }
}

/// Runs an activation in an application's runtime soon.
pub(crate) fn run_at(home: &Handle, task: Task) {
    let guest = Guest(Some(task));
    home.spawn(async move { guest.run() });
}

/// An activation that is to run in an application's runtime.
struct Guest(Option<Task>);

impl Guest {
    fn run(mut self) {
        let task = self.0.take().expect("a guest runs once");
        let scheduler = task.scheduler();
        // Only workers keep to a CPU share.
        if scheduler.is_limited() || scheduler.is_fenced() {
            self.0 = Some(task);
            return;
        }
        task.run();
    }
}

impl Drop for Guest {
    /// If the runtime ends before, or may not run it any more, a worker does.
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.scheduler().clone().offer(task);
        }
    }
}
