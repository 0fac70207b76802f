//! What a cluster is set to, kept in coordination so that every node has the same.

use std::sync::Arc;
use std::time::Duration;

use elastin_control::Settings;
use elastin_protocol::store::{Commit, Coordination, CoordinationError, CoordinationReply, CoordinationRequest};
use elastin_stores::CoordinationExt;
use serde::{Deserialize, Serialize};

use crate::PolicySource;

const SETTINGS_KEY: &str = "settings";

/// What every node of a cluster is set to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClusterSettings {
    pub(crate) policy: PolicySource,
    pub(crate) period: Duration,
    pub(crate) servers_min: u32,
    pub(crate) servers_max: u32,
}

impl ClusterSettings {
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

    pub(crate) async fn load(coordination: &Arc<dyn Coordination>) -> anyhow::Result<ClusterSettings> {
        let entry = match coordination
            .call(CoordinationRequest::Get {
                key: SETTINGS_KEY.into(),
            })
            .await?
        {
            CoordinationReply::Got { entry, .. } => entry,
            other => unreachable!("a get is answered by Got, not {other:?}"),
        };
        let entry =
            entry.ok_or_else(|| anyhow::anyhow!("the cluster has no settings: was it started by a supervisor?"))?;
        Ok(serde_json::from_slice(&entry.value)?)
    }
}
