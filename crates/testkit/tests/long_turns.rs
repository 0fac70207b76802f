//! Turns that hold up their threads: other frames of the same connection are served meanwhile.

use elastin_testkit::{Gate, embedded};

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_takes_long_does_not_hold_up_other_calls_of_its_caller() {
    let cluster = embedded(1, env!("CARGO_BIN_EXE_testkit-server")).await;
    let client = cluster.client().await.expect("a client connects");
    let (waits, opens) = (client.actor::<Gate>(1), client.actor::<Gate>(2));
    // Both are active, so that nothing but their turns takes time; and the turns so far were short.
    for gate in [&waits, &opens] {
        assert!(!gate.is_awaited().await.expect("a gate answers"));
    }
    for _ in 0..5 {
        let waiting = {
            let waits = waits.clone();
            tokio::spawn(async move { waits.wait().await })
        };
        while !opens.is_awaited().await.expect("a gate answers") {
            assert!(!waiting.is_finished(), "it waited until it gave up");
        }
        opens.open().await.expect("a gate answers");
        let opened = waiting.await.expect("it does not panic").expect("a gate answers");
        assert!(opened, "the gate was opened while it waited");
    }
    cluster.shutdown().await;
}
