//! The program whose processes are the servers of clusters in tests. `set-reminders DIRECTORY COUNT` is a whole cluster
//! of its own, which a test kills. `call NAME ETCD CERTIFICATES` is a client, which calls until SIGTERM and then
//! compares its outcomes with the contents of the actors.

use std::io::Write;
use std::process::ExitCode;

use elastin::{Cluster, ClusterAddress};
use elastin_testkit::{Load, ReminderActor, app, await_service, violations};
use tokio::signal::unix::{SignalKind, signal};

/// When the reminders are due: long enough after they are set that the cluster is killed before.
const DUE_AFTER_MS: u64 = 2000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["set-reminders", directory, count] => set_reminders(directory, count),
        ["call", name, etcd, certificates] => call(name, etcd, certificates),
        _ => return app().main(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a cluster that sets reminders, prints that, and runs until it is killed.
#[tokio::main(flavor = "current_thread")]
async fn set_reminders(directory: &str, count: &str) -> anyhow::Result<()> {
    let cluster = app().embedded().data(directory).start().await?;
    let client = cluster.client().await?;
    for key in 0..count.parse()? {
        let set = client.actor::<ReminderActor>(key).set("due".into(), DUE_AFTER_MS).await;
        set.map_err(|error| anyhow::anyhow!("{error:?}"))?;
    }
    std::io::stdout().write_all(b"set\n")?;
    std::future::pending().await
}

/// Calls ledgers until it gets SIGTERM; then prints the violations, or that there are none.
#[tokio::main(flavor = "current_thread")]
async fn call(name: &str, etcd: &str, certificates: &str) -> anyhow::Result<()> {
    elastin::log_to_stderr();
    let mut terminate = signal(SignalKind::terminate())?;
    let address = ClusterAddress {
        etcd: etcd.split(',').map(str::to_owned).collect(),
        certificates: Some(certificates.into()),
        ..ClusterAddress::default()
    };
    let cluster = Cluster::connect(&app(), &address, name).await?;
    let client = cluster.client();
    await_service(client).await;
    let load = Load::start(client);
    std::io::stdout().write_all(b"calls\n")?;
    terminate.recv().await;
    let history = load.end().await;
    let found = violations(&history, client).await;
    anyhow::ensure!(found.is_empty(), "{}", found.join("\n"));
    writeln!(std::io::stdout(), "nothing is wrong: {:?}", history.counts())?;
    cluster.leave().await;
    Ok(())
}
