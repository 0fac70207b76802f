//! The stores from outside: conformance, faults and recovery.

mod blocking;
mod broken_links;
mod conformance;
mod embedded;
mod served;
