//! Simulated worlds: random faults, crashes at each step of a move, planted bugs, and costs.

mod delays;
mod drain;
mod moves;
mod planted;
mod sweep;
