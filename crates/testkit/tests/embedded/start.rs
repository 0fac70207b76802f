//! How an embedded cluster starts when its servers don't at first, or never.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use elastin::EmbeddedError;
use elastin_testkit::app;

#[tokio::test]
async fn a_server_that_ends_before_it_has_joined_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("server");
    // Fails when it is started for the first time.
    let script = format!(
        "#!/bin/sh\nmkdir {}/failed 2> /dev/null && exit 1\nexec {} \"$@\"\n",
        directory.path().display(),
        env!("CARGO_BIN_EXE_testkit-server")
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let cluster = app().embedded().servers(2).program(&program).start().await.unwrap();
    assert_eq!(cluster.servers().len(), 2);
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_program_that_is_no_server_is_reported() {
    let started = app().embedded().servers(1).program("/bin/false").start().await;
    let error = started.err().expect("it ends at once");
    assert!(matches!(error, EmbeddedError::ServersEnd { .. }), "{error}");
    assert!(error.to_string().contains("exit status: 1"), "{error}");
}
