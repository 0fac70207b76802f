//! The program whose processes are the servers of clusters in tests. `set-bells DIRECTORY COUNT` is a whole cluster of its
//! own, which a test kills.

use std::io::Write;
use std::process::ExitCode;

use elastin_testkit::{Bell, app};

/// How long after they were set the bells are due: long enough that the cluster is killed before.
const DUE_AFTER_MS: u64 = 2000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [command, directory, count] if command == "set-bells" => match set_bells(directory, count) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::FAILURE
            }
        },
        _ => app().main(),
    }
}

/// Runs a cluster in which bells are set; says so, and goes on until it is killed.
#[tokio::main(flavor = "current_thread")]
async fn set_bells(directory: &str, count: &str) -> anyhow::Result<()> {
    let cluster = app().embedded().data(directory).start().await?;
    let client = cluster.client().await?;
    for bell in 0..count.parse()? {
        let set = client.actor::<Bell>(bell).set("ring".into(), DUE_AFTER_MS).await;
        set.map_err(|error| anyhow::anyhow!("{error:?}"))?;
    }
    std::io::stdout().write_all(b"set\n")?;
    std::future::pending().await
}
