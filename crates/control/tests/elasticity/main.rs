//! The managers together, in a small model of a cluster: each policy of paper 000 comes out as it is meant.

mod colocate;
mod estore;
mod faults;
mod halo;
mod invariants;
mod media;
mod metadata;
mod model;
mod pagerank;
mod placement;
mod replay;
mod reserve;
mod schemas;
mod separate;
mod several_gems;
