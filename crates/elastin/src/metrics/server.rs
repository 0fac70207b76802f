//! Collects the metrics of a server.

use std::net::SocketAddr;
use std::sync::Arc;

use elastin_cluster::NodeDriver;
use elastin_runtime::Runtime;
use elastin_stores::MeasuredState;
use elastin_types::ServerStats;
use parking_lot::Mutex;

use super::{Measures, MetricsServer, ServerMeasures};

/// The measurements of the last period, for the metrics endpoint.
#[derive(Default)]
pub(crate) struct LastPeriod {
    pub(crate) server: Option<ServerStats>,
    pub(crate) mailbox_messages: u64,
}

/// The sources of a server's metrics.
pub(crate) struct ServerMetrics {
    pub(crate) name: String,
    pub(crate) runtime: Runtime,
    pub(crate) driver: NodeDriver,
    pub(crate) state: Arc<MeasuredState>,
    pub(crate) last_period: Arc<Mutex<LastPeriod>>,
}

impl ServerMetrics {
    /// Serves the metrics. A failure is logged only, because hosting actors matters more.
    pub(crate) async fn serve(self, address: Option<SocketAddr>) -> Option<MetricsServer> {
        match MetricsServer::start(address?, move || self.measure()).await {
            Ok(server) => Some(server),
            Err(error) => {
                tracing::error!(%error, "this server runs without metrics");
                None
            }
        }
    }

    fn measure(&self) -> Measures {
        let last_period = self.last_period.lock();
        Measures {
            name: self.name.clone(),
            server: Some(ServerMeasures {
                work: self.runtime.stats(),
                types: self.runtime.totals(),
                usage: last_period.server.clone(),
                mailbox_messages: last_period.mailbox_messages,
            }),
            store: self.state.measures(),
            driver: self.driver.measures(),
            servers: None,
        }
    }
}
