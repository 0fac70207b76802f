//! The servers of a cluster in one process.

use std::collections::BTreeMap;
use std::time::Duration;

use elastin_clock::Clock;
use elastin_cluster::{NodeDriver, Planted, Security};
use elastin_runtime::Runtime;
use tokio::sync::oneshot;

use super::JOIN_TIME_MAX;
use super::tasks::Tasks;
use crate::App;
use crate::address::Stores;
use crate::member::LOOPBACK;
use crate::server::{self, ClusterContext, NodeOptions};

/// The servers of a cluster, and the settings of further ones.
pub(super) struct Servers {
    pub(super) app: App,
    pub(super) stores: Stores,
    pub(super) period: Duration,
    pub(super) lease_ttl: Duration,
    pub(super) clock: Clock,
    pub(super) running: BTreeMap<String, Running>,
    /// The number of servers started so far.
    pub(super) started: u32,
}

/// A running server.
pub(super) struct Running {
    pub(super) tokio: Tasks,
    pub(super) runtime: Runtime,
    pub(super) driver: NodeDriver,
    pub(super) ended: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl Servers {
    /// Starts a server and waits until it has joined. Returns its name.
    pub(super) async fn start(&mut self) -> anyhow::Result<String> {
        self.started += 1;
        let name = format!("server-{}", self.started);
        let tokio = Tasks::start(&name)?;
        let (joining, joined) = oneshot::channel();
        let context = ClusterContext {
            stores: self.stores.clone(),
            security: Security::Trusting,
            supervised: false,
        };
        let options = NodeOptions {
            name: name.clone(),
            cpu_share: None,
            busy_poll: true,
            listen: LOOPBACK,
            advertise: None,
            lease_ttl: self.lease_ttl,
            period: self.period,
            planted: Planted::default(),
            net_mbit: None,
            metrics: None,
            clock: self.clock.of(&name),
        };
        let on_joined = move |runtime: &Runtime, driver: &NodeDriver| {
            let _ = joining.send((runtime.clone(), driver.clone()));
        };
        let never = std::future::pending;
        let server = server::serve(self.app.clone(), context, options, never(), never(), on_joined);
        let ended = tokio.handle().spawn(server);
        match tokio::time::timeout(JOIN_TIME_MAX, joined).await {
            Ok(Ok((runtime, driver))) => {
                let running = Running {
                    tokio,
                    runtime,
                    driver,
                    ended,
                };
                self.running.insert(name.clone(), running);
                Ok(name)
            }
            failed => {
                let why = if failed.is_ok() { ended.await?.err() } else { None };
                Err(why.unwrap_or_else(|| anyhow::anyhow!("{name} did not join within {JOIN_TIME_MAX:?}")))
            }
        }
    }
}

impl Running {
    /// Stops the server as a crash would: no drain, no leave.
    pub(super) async fn end(mut self) {
        self.runtime.fence(true);
        self.driver.close();
        self.ended.abort();
        self.tokio.stop();
        self.runtime.shutdown(Duration::ZERO).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.runtime.fence(true);
    }
}
