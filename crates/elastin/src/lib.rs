//! Programmable elasticity for stateful services.
