//! Admit: the target of a move checks its room and promises it, before the move starts.

mod answer;
mod ask;

pub(crate) use answer::Admission;
pub(crate) use ask::{OpenQuery, Queries};
