//! Elastin's elasticity decisions as pure functions.
