//! Tests of the runtime through its public interface, in one binary: linking one is faster than linking many.

extern crate elastin_actor as elastin;

mod caller_resume;
mod calls;
mod common;
mod context;
mod evolution;
mod interleaving;
mod lifecycle;
mod moves;
mod names;
mod persist;
mod profile;
mod spin_wait;
mod tells;
mod trace;
mod turns;
