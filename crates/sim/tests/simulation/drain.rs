//! Draining a large server.

use elastin_protocol::Limits;
use elastin_sim::empty_a_server;

/// `cargo xtask bench sim` drains a server of 100,000.
const ACTORS: u64 = 5000;

#[test]
fn a_server_drains_while_its_actors_are_called() {
    let drain = empty_a_server(1, ACTORS);
    assert!(drain.violations.is_empty(), "{:#?}", drain.violations);
    assert!(drain.moved >= ACTORS, "{drain:?}");
    assert!(drain.calls > 1000, "calls must overlap with the drain: {drain:?}");
    let Limits { moves_out, .. } = Limits::default();
    assert_eq!(
        drain.moves_at_once.0, moves_out,
        "the limit of concurrent moves must be used"
    );
}
