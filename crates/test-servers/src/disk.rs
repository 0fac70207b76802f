//! A small disk that can be filled up.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::process::{BackendError, run};

/// The size of a write that fills the disk.
const WRITE_BYTES: usize = 64 << 10;

/// A small in-memory disk. It is unmounted when this is dropped, so its users must end before.
#[derive(Debug)]
pub struct Disk {
    directory: TempDir,
}

impl Disk {
    /// Mounts an empty disk of this size. An error most likely means that this user may not mount one.
    pub fn create(bytes: u64) -> Result<Disk, BackendError> {
        let directory = tempfile::tempdir()?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes},mode=0755"), "elastin-test"]);
        run(mount.arg(directory.path()))?;
        Ok(Disk { directory })
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Fills the disk to the last byte.
    pub fn fill(&self) -> Result<(), BackendError> {
        let mut filling = std::fs::File::create(self.filling())?;
        let mut bytes = vec![7; WRITE_BYTES];
        loop {
            match filling.write(&bytes) {
                Ok(written) if written > 0 => {}
                // The remaining space may be less than the last write.
                _ if bytes.len() > 1 => bytes.truncate(bytes.len() / 2),
                _ => return Ok(()),
            }
        }
    }

    /// Frees the space that [`Disk::fill`] has used.
    pub fn free(&self) -> Result<(), BackendError> {
        Ok(std::fs::remove_file(self.filling())?)
    }

    fn filling(&self) -> PathBuf {
        self.path().join("filling")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A lazy unmount detaches it at once, and completes when the last process closes its files.
        if let Err(error) = run(Command::new("umount").arg("--lazy").arg(self.path())) {
            eprintln!("could not unmount the disk of a test: {error}");
        }
    }
}
