//! Members that join with the name of another member.

use std::time::Duration;

use elastin_cluster::{Role, Security};

use super::InProcess;
use crate::address::Stores;
use crate::member::MemberOptions;
use crate::{Cluster, Elastin};

/// A join fails after three of these: the name of a member that has just died is free by then.
const LEASE: Duration = Duration::from_millis(300);

/// Joins as a client of this name.
async fn join(cluster: &InProcess, name: &str) -> anyhow::Result<Cluster> {
    let Stores { coordination, state } = cluster.servers.stores.clone();
    let options = MemberOptions {
        lease_ttl: LEASE,
        ..MemberOptions::new(name, Role::Client, coordination, state, Security::Trusting)
    };
    Cluster::join(&cluster.servers.app, options).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joining_with_a_taken_name_is_refused() {
    let cluster = Elastin::app().in_process().start().await.unwrap();
    for taken in ["server-1", "test"] {
        let before = cluster.cluster.member().me;
        let refused = join(&cluster, taken).await.err().expect("the name is taken");
        assert_eq!(
            refused.to_string(),
            format!("there is already a member called `{taken}`")
        );
        assert_eq!(cluster.cluster.member().me, before);
        assert_eq!(cluster.server_names(), ["server-1"]);
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_free_after_its_member_has_left() {
    let cluster = Elastin::app().in_process().start().await.unwrap();
    for _ in 0..2 {
        let client = join(&cluster, "passer-by").await.expect("the name is free");
        client.leave().await;
    }
    cluster.shutdown().await;
}
