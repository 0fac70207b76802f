//! An actor that returns the context of its calls, and that can block its thread.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use elastin::prelude::*;

/// Polling interval of a blocked probe.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Returns the context of its calls, and can block its thread.
#[derive(Actor, Serialize, Deserialize, Default)]
pub struct Probe;

#[handlers]
impl Probe {
    /// Logs its turn, and lets the first of the other probes relay to the rest. Returns the `traceparent` of
    /// each turn, its own first; nothing for turns without a trace.
    async fn relay(&self, ctx: &Ctx, others: Vec<u64>) -> Result<Vec<Option<String>>, String> {
        tracing::info!("relayed");
        let mut traces = vec![ctx.trace().map(|trace| trace.to_string())];
        if let [next, rest @ ..] = &*others {
            let relayed = ctx.actor::<Probe>(*next).relay(rest.to_vec()).await;
            traces.extend(relayed.map_err(|error| error.to_string())?);
        }
        Ok(traces)
    }

    /// The wall clock of its server, in milliseconds since 1970.
    async fn wall_clock_ms(&self) -> u64 {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        since_1970.map_or(0, |time| time.as_millis() as u64)
    }

    /// Blocks its thread until there is a file of this name.
    fn hold_until(&mut self, file: String) {
        while !Path::new(&file).exists() {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
