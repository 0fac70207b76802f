//! Types shared by all of Elastin: ids, epochs, messages, the schema of an application, and the statistics that
//! elasticity decides on.
//!
//! Plain data only: no I/O, no clock, no randomness, no decisions. Every other crate may depend on this one, and this
//! one depends on no other.

mod epoch;
mod id;
mod message;
mod reminder;
mod resource;
mod schema;
mod snapshot;
mod text;
mod time;
mod trace;

pub use epoch::{ActivationEpoch, SlotEpoch};
pub use id::{ActorId, ActorType, CallId, ChainId, KEY_BYTES_MAX, Key, KeyTooLong, Method, NodeId, Property, TenantId};
pub use message::{
    CallError, Caller, Header, Message, NotDelivered, Outcome, Overloaded, Rejected, Request, RequestContext, Unknown,
};
pub use reminder::{REMINDER_NAME_BYTES_MAX, Reminder};
pub use resource::{PerResource, Resource, Usage};
pub use schema::{ActorSchema, FunctionSchema, ParameterSchema, PropertySchema, Schema, SchemaError};
pub use snapshot::{ActorStats, CallIn, CallOut, FunctionStats, References, ServerState, ServerStats, Snapshot};
pub use text::{ShortText, Text};
pub use time::Time;
pub use trace::{NotATraceParent, TraceContext};
