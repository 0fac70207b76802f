//! Cluster-wide settings, kept in coordination so that every node uses the same.

use std::sync::Arc;
use std::time::Duration;

use elastin_control::Settings;
use elastin_protocol::store::{
    Commit, Coordination, CoordinationError, CoordinationReply, CoordinationRequest, KeyState,
};
use elastin_stores::{CoordinationExt, call_with_retries};
use serde::{Deserialize, Serialize};

use crate::PolicySource;

const SETTINGS_KEY: &str = "settings";

/// Cluster-wide settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClusterSettings {
    pub(crate) policy: PolicySource,
    pub(crate) period: Duration,
    pub(crate) servers_min: u32,
    pub(crate) servers_max: u32,
}

impl ClusterSettings {
    /// The settings of a cluster without a supervisor, whose size an operator decides.
    pub(crate) fn of_first_server(policy: PolicySource, period: Duration) -> Self {
        Self {
            policy,
            period,
            servers_min: 1,
            servers_max: u32::MAX,
        }
    }

    /// The settings of the elasticity managers.
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

    /// Loads the cluster's settings, or stores these if it has none yet.
    pub(crate) async fn load_or_store(self, coordination: &Arc<dyn Coordination>) -> anyhow::Result<ClusterSettings> {
        let bytes = serde_json::to_vec(&self).expect("settings are plain data");
        let first = Commit::put(SETTINGS_KEY, bytes).when(SETTINGS_KEY, KeyState::Absent);
        match call_with_retries(&**coordination, first).await {
            Ok(_) => Ok(self),
            Err(CoordinationError::ConditionFailed { .. }) => Self::load(coordination).await,
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn load(coordination: &Arc<dyn Coordination>) -> anyhow::Result<ClusterSettings> {
        let get = CoordinationRequest::Get {
            key: SETTINGS_KEY.into(),
        };
        let entry = match call_with_retries(&**coordination, get).await? {
            CoordinationReply::Got { entry, .. } => entry,
            other => unreachable!("a get is answered by Got, not {other:?}"),
        };
        let entry = entry.ok_or_else(|| anyhow::anyhow!("the cluster has no settings: start its supervisor first"))?;
        Ok(serde_json::from_slice(&entry.value)?)
    }
}
