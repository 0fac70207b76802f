//! Processes whose clock is wrong.

use std::path::PathBuf;
use std::process::Command;

use crate::process::BackendError;

/// Where libraries are, one directory for each kind of machine.
const LIBRARIES: &str = "/usr/lib";

/// Shifts the wall clock of a program by this, such as `+1h`. Its clock runs as fast as any, and the
/// monotonic one is right.
pub fn with_wrong_clock(command: &mut Command, by: &str) -> Result<(), BackendError> {
    command
        .env("LD_PRELOAD", library()?)
        .env("FAKETIME", by)
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Ok(())
}

/// The library that stands between a program and the system's clock.
fn library() -> Result<PathBuf, BackendError> {
    let machines = std::fs::read_dir(LIBRARIES)?.flatten();
    let mut libraries = machines.map(|machine| machine.path().join("faketime/libfaketimeMT.so.1"));
    libraries
        .find(|library| library.is_file())
        .ok_or_else(|| BackendError::NotInstalled {
            program: "libfaketime".to_owned(),
            package: "faketime",
        })
}
