//! Replaces the other libraries if they are not built.

use anyhow::{Result, bail};

use crate::contestant::Contestant;

/// No contestants.
pub(crate) async fn connect() -> Result<Vec<Box<dyn Contestant>>> {
    bail!("this was built without the other libraries; `only floors` does not need them")
}

/// No server is available either.
pub(crate) async fn serve(name: &str) -> Result<()> {
    bail!("unknown server: {name}")
}
