//! One node's execution of actors.
