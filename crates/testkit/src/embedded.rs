//! An embedded cluster of server processes with the defaults of most tests.

use std::path::PathBuf;

use elastin::Embedded;

/// Starts an embedded cluster. `program` must call [`App::main`](elastin::App::main) with the application of the tests.
///
/// # Panics
/// If it does not start.
pub async fn embedded(servers: u32, program: impl Into<PathBuf>) -> Embedded {
    let builder = crate::app().embedded().servers(servers).program(program);
    builder.start().await.expect("the cluster starts")
}

/// The names of a cluster's servers.
pub fn server_names(cluster: &Embedded) -> Vec<String> {
    cluster.servers().into_iter().map(|server| server.name).collect()
}
