//! Provisioning of servers.

mod process;

pub(crate) use process::{Exited, ProcessProvisioner};
