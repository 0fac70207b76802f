//! A small disk that can be filled up.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::process::{BackendError, run};

/// How much is written at a time to fill it.
const BALLAST_BYTES: usize = 64 << 10;

/// A small in-memory disk. It is removed when it is dropped, so its users must end before.
#[derive(Debug)]
pub struct Disk {
    directory: TempDir,
}

impl Disk {
    /// An empty disk of this many bytes. An error most likely means that this user may not create one.
    pub fn create(bytes: u64) -> Result<Disk, BackendError> {
        let directory = tempfile::tempdir()?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes},mode=0755"), "elastin-test"]);
        run(mount.arg(directory.path()))?;
        Ok(Disk { directory })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Fills it up, to the last byte.
    pub fn fill(&self) -> Result<(), BackendError> {
        let mut ballast = std::fs::File::create(self.ballast())?;
        let mut bytes = vec![7; BALLAST_BYTES];
        loop {
            match ballast.write(&bytes) {
                Ok(written) if written > 0 => {}
                // The remaining room may be less than the last write.
                _ if bytes.len() > 1 => bytes.truncate(bytes.len() / 2),
                _ => return Ok(()),
            }
        }
    }

    /// Frees the room that [`Disk::fill`] took.
    pub fn free(&self) -> Result<(), BackendError> {
        Ok(std::fs::remove_file(self.ballast())?)
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Detached at once, and gone with the last process that has a file of it open.
        if let Err(error) = run(Command::new("umount").arg("--lazy").arg(self.path())) {
            eprintln!("a disk of a test was left behind: {error}");
        }
    }
}
