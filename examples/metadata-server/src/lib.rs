//! The Metadata Server of the PLASMA paper (sections 3.3 and 5.3) as an Elastin application: clients open folders with
//! files, and one folder is hot.

mod actors;
mod load;

pub use actors::{Audit, Entry, File, Folder, OpenError, Stat};
pub use load::{Load, LoadReport, Shape, percentile};

use elastin::{App, policy};

/// The application: its actors and its policy.
pub fn app() -> App {
    elastin::Elastin::app()
        .name("metadata-server")
        .actor::<Folder>()
        .actor::<File>()
        .policy(policy!("policy.epl"))
}
