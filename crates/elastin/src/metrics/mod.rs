//! Metrics of a process in the Prometheus text format: see `docs/observability.md`.
//!
//! ```text
//!   runtime, stores, transport ──► Measures (plain data) ──► text::render (pure) ──► http (GET /metrics)
//! ```

mod http;
mod measures;
mod server;
mod text;
mod writer;

pub use http::MetricsError;
pub(crate) use http::MetricsServer;
pub(crate) use measures::{Measures, ServerMeasures};
pub(crate) use server::{LastPeriod, ServerMetrics};

#[cfg(test)]
mod tests;
