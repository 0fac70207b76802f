//! Clusters of real processes for tests: an application whose actors notice when a call is lost, runs twice, or comes out
//! of order.

mod actors;
mod bell;
mod dice;

pub use actors::{Burner, Feeder, Journal, Ledger, Log};
pub use bell::Bell;
pub use dice::Dice;

/// The application of the tests.
pub fn app() -> elastin::App {
    elastin::Elastin::app()
        .name("testkit")
        .actor::<Journal>()
        .actor::<Ledger>()
        .actor::<Feeder>()
        .actor::<Burner>()
        .actor::<Bell>()
}
