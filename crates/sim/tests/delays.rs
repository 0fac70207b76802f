//! What the protocol costs in message delays.

use elastin_sim::{Delays, count_delays};

#[test]
fn calls_and_moves_take_few_message_delays() {
    let delays = count_delays();
    // A change here is a change of what users wait for.
    let expected = Delays {
        first_activation: 3,
        unknown_place: 3,
        known_place: 2,
        frozen: 4,
    };
    assert_eq!(delays, expected);
}
