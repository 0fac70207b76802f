//! The cost of the protocol in message delays.

use elastin_sim::{Delays, count_delays};

#[test]
fn calls_and_moves_take_few_message_delays() {
    let delays = count_delays();
    // A change here changes the latency that users see.
    let expected = Delays {
        first_activation: 3,
        unknown_place: 3,
        known_place: 2,
        frozen: 4,
    };
    assert_eq!(delays, expected);
}
