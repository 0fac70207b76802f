//! Where servers come from.

mod process;

pub(crate) use process::{Exited, ProcessProvisioner};
