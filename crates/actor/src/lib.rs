//! The actor API: traits, references, context.
