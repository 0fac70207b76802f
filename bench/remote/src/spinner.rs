//! Processes that keep the cores awake: they run only when nothing else wants to, so that waking up an idle core is not
//! what is measured.

use anyhow::Result;
use tokio::process::{Child, Command};

/// One spinner per core; they end when these are dropped.
pub(crate) fn start() -> Result<Vec<Child>> {
    let cores = std::thread::available_parallelism()?.get();
    let program = std::env::current_exe()?;
    (0..cores)
        .map(|_| {
            let mut command = Command::new("chrt");
            command.args(["--idle", "0"]).arg(&program).arg("spin");
            Ok(command.kill_on_drop(true).spawn()?)
        })
        .collect()
}

/// What such a process does.
pub(crate) fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}
