//! Elastin's cluster protocols as pure state machines.
