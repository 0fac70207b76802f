//! Clusters of real processes for tests.
