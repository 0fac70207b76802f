//! What is there instead of the other libraries if they are not built.

use anyhow::{Result, bail};

use crate::contestant::Contestant;

/// Nobody.
pub(crate) async fn connect() -> Result<Vec<Box<dyn Contestant>>> {
    bail!("this was built without the other libraries; `only floors` does not need them")
}

/// No process is called either.
pub(crate) async fn serve(what: &str) -> Result<()> {
    bail!("there is no server called {what}")
}
