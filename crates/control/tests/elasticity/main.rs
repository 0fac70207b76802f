//! The managers together, in a small cluster model: each policy of PLASMA (EuroSys 2020) has the intended effect.

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
