//! Processes that keep the cores awake. They run at idle priority, to exclude the wake-up time of idle cores from the
//! measurement.

use anyhow::Result;
use tokio::process::{Child, Command};

/// Starts one spinner per core; they end when the handles are dropped.
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

/// Runs the child process.
pub(crate) fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}
