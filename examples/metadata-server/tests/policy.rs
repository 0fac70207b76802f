//! The policy on real processes: the hot folder moves to a server of its own together with its files, and no call
//! fails.

use std::time::{Duration, Instant};

use elastin::{Change, DecisionOutcome, Embedded};
use metadata_server::{Load, Shape};

/// The number of actors of the first completed move: the hot folder and its files.
fn moved(cluster: &Embedded) -> Option<usize> {
    cluster.decisions().iter().find_map(|decision| match &decision.change {
        Change::Move { with, .. } if decision.outcome == DecisionOutcome::Done => Some(1 + with.len()),
        _ => None,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hot_folder_and_its_files_get_a_server_of_their_own() {
    let cluster = metadata_server::app()
        .embedded()
        .cpu_share(0.2)
        .period(Duration::from_secs(2))
        .program(env!("CARGO_BIN_EXE_metadata-server"))
        .start()
        .await
        .expect("the cluster starts");
    let client = cluster.client().await.expect("a client connects");
    let shape = Shape::default();
    let load = Load::start(&[client], shape).await.expect("the folders are created");

    let began = Instant::now();
    let moved = loop {
        if let Some(moved) = moved(&cluster) {
            break moved;
        }
        assert!(
            began.elapsed() < Duration::from_secs(120),
            "nothing moved: {:#?}",
            cluster.servers()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(
        moved,
        1 + shape.files as usize,
        "the folder moves together with its files"
    );

    let (report, audit) = load.finish().await.expect("the folders answer");
    assert_eq!((report.failed, report.first_error), (0, None));
    assert_eq!(audit.out_of_order, 0, "requests of one client keep their order");
    assert_eq!(audit.opened, report.calls, "every call ran once");
    assert!(cluster.servers().len() >= 2);
    cluster.shutdown().await;
}
