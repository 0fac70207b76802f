//! Macros of the actor API.
