//! The stores from outside: conformance, faults and recovery.

mod agreement;
mod blocking;
mod broken_links;
mod conformance;
mod embedded;
mod served;
