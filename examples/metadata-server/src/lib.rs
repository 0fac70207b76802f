//! The Metadata Server of the PLASMA paper.
