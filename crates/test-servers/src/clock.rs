//! Processes with a wrong clock.

use std::path::PathBuf;
use std::process::Command;

use crate::process::BackendError;

/// The directory of libraries, with a subdirectory for each architecture.
const LIBRARIES: &str = "/usr/lib";

/// Shifts the wall clock of a program by this, such as `+1h`. The clock keeps its speed, and the monotonic clock is not
/// affected.
pub fn with_wrong_clock(command: &mut Command, by: &str) -> Result<(), BackendError> {
    command
        .env("LD_PRELOAD", library()?)
        .env("FAKETIME", by)
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Ok(())
}

/// The library that is preloaded to replace the system's clock.
fn library() -> Result<PathBuf, BackendError> {
    let architectures = std::fs::read_dir(LIBRARIES)?.flatten();
    let mut libraries = architectures.map(|architecture| architecture.path().join("faketime/libfaketimeMT.so.1"));
    libraries
        .find(|library| library.is_file())
        .ok_or_else(|| BackendError::NotInstalled {
            program: "libfaketime".to_owned(),
            package: "faketime",
        })
}
