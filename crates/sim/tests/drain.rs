//! A large server is emptied in one go.

use elastin_protocol::Limits;
use elastin_sim::empty_a_server;

/// `cargo xtask bench sim` empties a server of 100,000.
const ACTORS: u64 = 5000;

#[test]
fn a_server_is_emptied_while_its_actors_are_called() {
    let drain = empty_a_server(1, ACTORS);
    assert!(drain.violations.is_empty(), "{:#?}", drain.violations);
    assert!(drain.moved >= ACTORS, "{drain:?}");
    assert!(drain.calls > 1000, "calls must fall into it: {drain:?}");
    let Limits { moves_out, .. } = Limits::default();
    assert_eq!(drain.moves_at_once.0, moves_out, "as many at once as may be");
}
