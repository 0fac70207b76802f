//! The stores from outside: conformance, faults and recovery.

mod agreement;
mod blocking;
mod conformance;
mod embedded;
mod links;
mod served;
mod served_faults;
mod torn;
