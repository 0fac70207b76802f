//! What a cluster is set to, kept in coordination so that every node has the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use elastin_control::Settings;
use elastin_protocol::store::{
    Commit, Coordination, CoordinationError, CoordinationReply, CoordinationRequest, KeyState,
};
use elastin_stores::CoordinationExt;
use serde::{Deserialize, Serialize};

use crate::PolicySource;

const SETTINGS_KEY: &str = "settings";
/// How long a server that starts waits for coordination to answer at all, and between two tries.
const PATIENCE: Duration = Duration::from_secs(30);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// What every node of a cluster is set to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClusterSettings {
    pub(crate) policy: PolicySource,
    pub(crate) period: Duration,
    pub(crate) servers_min: u32,
    pub(crate) servers_max: u32,
}

impl ClusterSettings {
    /// What a cluster is set to whose servers come and go by other hands than ours.
    pub(crate) fn of_first_server(policy: PolicySource, period: Duration) -> Self {
        Self {
            policy,
            period,
            servers_min: 1,
            servers_max: u32::MAX,
        }
    }

    /// What elasticity managers are set to.
    pub(crate) fn elasticity(&self) -> Settings {
        Settings {
            period: self.period,
            servers_min: self.servers_min,
            servers_max: self.servers_max,
            ..Settings::default()
        }
    }

    pub(crate) async fn store(&self, coordination: &dyn Coordination) -> Result<(), CoordinationError> {
        let bytes = serde_json::to_vec(self).expect("settings are plain data");
        coordination.call(Commit::put(SETTINGS_KEY, bytes)).await.map(drop)
    }

    /// The settings of the cluster, which are these if it has none yet.
    pub(crate) async fn load_or_store(self, coordination: &Arc<dyn Coordination>) -> anyhow::Result<ClusterSettings> {
        let bytes = serde_json::to_vec(&self).expect("settings are plain data");
        let first = Commit::put(SETTINGS_KEY, bytes).when(SETTINGS_KEY, KeyState::Absent);
        match patiently(coordination, || first.clone()).await {
            Ok(_) => Ok(self),
            Err(CoordinationError::ConditionFailed { .. }) => Self::load(coordination).await,
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn load(coordination: &Arc<dyn Coordination>) -> anyhow::Result<ClusterSettings> {
        let get = || CoordinationRequest::Get {
            key: SETTINGS_KEY.into(),
        };
        let entry = match patiently(coordination, get).await? {
            CoordinationReply::Got { entry, .. } => entry,
            other => unreachable!("a get is answered by Got, not {other:?}"),
        };
        let entry =
            entry.ok_or_else(|| anyhow::anyhow!("the cluster has no settings: was it started by a supervisor?"))?;
        Ok(serde_json::from_slice(&entry.value)?)
    }
}

/// Asks until it is answered: a server may well be started while coordination elects a leader or comes up itself. Only for
/// requests that do no harm when they are carried out twice.
async fn patiently<R: Into<CoordinationRequest>>(
    coordination: &Arc<dyn Coordination>,
    request: impl Fn() -> R,
) -> Result<CoordinationReply, CoordinationError> {
    let began = Instant::now();
    loop {
        match coordination.call(request()).await {
            Err(CoordinationError::Failed(failure)) if began.elapsed() < PATIENCE => {
                tracing::warn!(%failure, "coordination does not answer; trying again");
                tokio::time::sleep(ASK_AGAIN_AFTER).await;
            }
            answer => return answer,
        }
    }
}
