//! The stores from outside: conformance, faults and recovery.

mod blocking;
mod conformance;
mod embedded;
mod served;
