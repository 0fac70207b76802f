//! Implementations of coordination and state stores.
