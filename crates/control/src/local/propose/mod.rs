//! Propose: the sources of proposals, and the round that collects them.

mod colocate;
mod companions;
mod evaluate;
mod report;
mod round;
mod separate;
mod split_unit;

pub(crate) use evaluate::evaluate;
pub(crate) use report::Reporting;
pub(crate) use round::Round;
pub(crate) use split_unit::OversizedUnits;
