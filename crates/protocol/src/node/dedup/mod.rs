//! Deduplication of retried calls: an activation runs at most one of the calls of a request.
//!
//! Callers retry calls whose outcome is unknown. `open` has the requests of callers on this node, `table` the records
//! of the actors hosted here.

mod open;
mod table;

pub(super) use open::OpenRequests;
pub(crate) use table::{Arrival, DedupTable};
pub use table::{MovedRequest, RequestId};
