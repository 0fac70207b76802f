//! Deterministic simulator for Elastin's protocols and decisions.
