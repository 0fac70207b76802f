//! Turns that hold up their threads: other frames of the same connection are served meanwhile.

use elastin_testkit::{Gate, embedded};

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_turn_does_not_delay_other_calls_of_its_caller() {
    let cluster = embedded(1, env!("CARGO_BIN_EXE_testkit-server")).await;
    let client = cluster.client().await.expect("a client connects");
    let (waits, opens) = (client.actor::<Gate>(1), client.actor::<Gate>(2));
    // Activates both, with cheap turns, so that the next ones are candidates for inline runs.
    for gate in [&waits, &opens] {
        assert!(!gate.is_awaited().await.expect("a gate answers"));
    }
    for _ in 0..5 {
        let waiting = {
            let waits = waits.clone();
            tokio::spawn(async move { waits.wait().await })
        };
        while !opens.is_awaited().await.expect("a gate answers") {
            assert!(!waiting.is_finished(), "the wait timed out");
        }
        opens.open().await.expect("a gate answers");
        let opened = waiting.await.expect("it does not panic").expect("a gate answers");
        assert!(opened, "the gate was opened while it waited");
    }
    cluster.shutdown().await;
}
