//! Each checker detects its violation, and nothing else.

use elastin_protocol::{Limits, MoveError, MoveId, TableSizes};
use elastin_types::{CallError, NotDelivered, SlotEpoch, Unknown};

use super::*;
use crate::world::{Moving, actor};

const CLIENT: Caller = Caller::Client(NodeId(9));

fn epoch(counter: u32) -> ActivationEpoch {
    ActivationEpoch {
        slot: SlotEpoch(1),
        counter,
    }
}

fn call(sequence: u64) -> CallId {
    CallId {
        origin: NodeId(9),
        sequence,
    }
}

/// A turn of an actor's activation with this counter, of the message with this number.
fn turn<'a>(actor: &'a ActorId, counter: u32, number: u64) -> Turn<'a> {
    Turn {
        node: NodeId(u64::from(counter)),
        actor,
        epoch: epoch(counter),
        call: call(number),
        request: None,
        caller: &CLIENT,
        sender_incarnation: 0,
        number,
        state: State {
            effects: number,
            ..State::default()
        },
    }
}

#[test]
fn overlapping_and_stale_turns_are_detected() {
    let (one, mut checker) = (actor(1), OneActivation::default());
    assert_eq!(checker.turn_starts(&turn(&one, 1, 1)), Ok(()));
    assert!(
        checker.turn_starts(&turn(&one, 2, 2)).is_err(),
        "the first turn has not ended"
    );
    checker.turn_ends(&one, epoch(2));
    assert_eq!(checker.turn_starts(&turn(&one, 3, 3)), Ok(()));
    checker.node_stops(NodeId(3));
    assert!(
        checker.turn_starts(&turn(&one, 2, 4)).is_err(),
        "it is an earlier activation"
    );
    assert_eq!(OneActivation::default().turn_starts(&turn(&one, 1, 1)), Ok(()));
}

#[test]
fn reordered_messages_are_detected() {
    let (one, two, mut checker) = (actor(1), actor(2), OrderPerPair::default());
    assert_eq!(checker.turn_starts(&turn(&one, 1, 1)), Ok(()));
    assert_eq!(checker.turn_starts(&turn(&one, 1, 3)), Ok(()), "the second may be lost");
    assert!(checker.turn_starts(&turn(&one, 1, 2)).is_err());
    assert_eq!(checker.turn_starts(&turn(&two, 1, 1)), Ok(()), "another receiver");
    let mut later_incarnation = turn(&one, 1, 1);
    later_incarnation.sender_incarnation = 7;
    assert_eq!(
        checker.turn_starts(&later_incarnation),
        Ok(()),
        "another incarnation of the sender"
    );
}

#[test]
fn wrong_outcomes_are_detected() {
    let one = actor(1);
    let not_delivered = Err(CallError::NotDelivered(NotDelivered::NotHere));
    let unknown = Err(CallError::Unknown(Unknown::NodeLost));
    let check = |ran: bool, outcome: &Outcome, runs_later: bool| {
        let mut checker = TrueOutcomes::default();
        checker.call_begins(call(1), false, None);
        if ran {
            checker.turn_starts(&turn(&one, 1, 1))?;
        }
        checker.call_ends(call(1), outcome)?;
        if runs_later {
            checker.turn_starts(&turn(&one, 1, 1))?;
        }
        Ok::<(), Violation>(())
    };
    let answered = Ok(bytes::Bytes::new());
    assert_eq!(check(true, &answered, false), Ok(()));
    assert!(check(false, &answered, false).is_err(), "it has not run");
    assert!(check(true, &answered, true).is_err(), "it runs twice");
    assert_eq!(check(false, &not_delivered, false), Ok(()));
    assert!(check(true, &not_delivered, false).is_err(), "it has run");
    assert!(check(false, &not_delivered, true).is_err(), "it runs later");
    assert_eq!(check(true, &unknown, false), Ok(()));
    assert_eq!(check(false, &unknown, true), Ok(()));

    let mut checker = TrueOutcomes::default();
    checker.call_begins(call(1), false, None);
    assert_eq!(checker.open(|_| true), [call(1)]);
    assert_eq!(checker.call_ends(call(1), &unknown), Ok(()));
    assert!(checker.call_ends(call(1), &unknown).is_err(), "it ends twice");
    assert!(checker.open(|_| true).is_empty());

    let mut checker = TrueOutcomes::default();
    checker.nothing_is_lost = true;
    checker.call_begins(call(1), false, None);
    assert!(checker.call_ends(call(1), &unknown).is_err(), "no node was lost");
}

#[test]
fn lost_state_is_detected() {
    let (one, mut checker) = (actor(1), StateMoves::default());
    assert_eq!(checker.turn_starts(&turn(&one, 1, 1)), Ok(()));
    assert_eq!(checker.turn_starts(&turn(&one, 1, 2)), Ok(()));
    assert!(checker.turn_starts(&turn(&one, 2, 2)).is_err(), "an old image");
    let mut saved = turn(&one, 3, 6);
    saved.state.incarnation = 2;
    saved.state.initial_effects = 5;
    assert_eq!(
        checker.turn_starts(&saved),
        Ok(()),
        "a new incarnation continues from the saved state"
    );
    checker.frozen(&one, epoch(3), 2);
    checker.frozen(&one, epoch(1), 1);
    checker.moves(&one, epoch(4), NodeId(4));
    let mut moved = turn(&one, 4, 7);
    moved.state.incarnation = 2;
    assert_eq!(checker.turn_starts(&moved), Ok(()));
    moved.state.incarnation = 3;
    assert!(
        checker.turn_starts(&moved).is_err(),
        "it starts without its state after a move"
    );
}

#[test]
fn requests_that_run_twice_are_detected() {
    let (one, mut checker, mut outcomes) = (actor(1), OncePerRequest::default(), TrueOutcomes::default());
    let request = Some(RequestId {
        origin: NodeId(9),
        number: 1,
    });
    let attempt = |number: u64, incarnation: u64| {
        let mut turn = turn(&one, 1, number);
        turn.request = request;
        turn.state.incarnation = incarnation;
        turn
    };
    assert_eq!(checker.turn_starts(&turn(&one, 1, 1)), Ok(()), "no request");
    assert_eq!(checker.turn_starts(&attempt(2, 1)), Ok(()));
    assert!(checker.turn_starts(&attempt(3, 1)).is_err());
    assert_eq!(
        checker.turn_starts(&attempt(3, 2)),
        Ok(()),
        "another incarnation has no record of it"
    );

    let answered = Ok(bytes::Bytes::new());
    for number in [2, 3, 4] {
        outcomes.call_begins(call(number), false, request);
    }
    assert!(outcomes.call_ends(call(4), &answered).is_err(), "none has run");
    assert_eq!(outcomes.turn_starts(&attempt(2, 1)), Ok(()));
    assert_eq!(outcomes.call_ends(call(3), &answered), Ok(()), "another one has run");
}

#[test]
fn split_groups_are_detected() {
    let check = |results: [Result<ActivationEpoch, MoveError>; 2]| {
        let mut checker = WholeGroups::default();
        checker.begins([MoveId(1), MoveId(2)].into_iter());
        checker.ends(MoveId(1), results[0])?;
        checker.ends(MoveId(2), results[1])?;
        checker.ends(MoveId(3), Err(MoveError::NotFrozen))
    };
    assert_eq!(check([Ok(epoch(2)), Ok(epoch(2))]), Ok(()));
    assert_eq!(check([Err(MoveError::NotFrozen), Err(MoveError::NotFrozen)]), Ok(()));
    assert_eq!(
        check([Ok(epoch(2)), Err(MoveError::TargetLost)]),
        Ok(()),
        "a crash may separate them"
    );
    assert!(check([Ok(epoch(2)), Err(MoveError::NotFrozen)]).is_err());
    assert!(check([Err(MoveError::TargetUnfit), Ok(epoch(2))]).is_err());
}

#[test]
fn actions_after_the_end_of_a_lease_are_detected() {
    let mut checker = NothingAfterTheLease::default();
    assert_eq!(checker.acts(NodeId(1), Time(5), "runs"), Ok(()));
    checker.taken_over(NodeId(1), Time(6));
    assert!(checker.acts(NodeId(1), Time(7), "runs").is_err());
    assert_eq!(checker.acts(NodeId(2), Time(7), "runs"), Ok(()));
}

#[test]
fn a_lost_acknowledged_turn_is_detected() {
    let (one, mut checker) = (actor(1), StoredStates::default());
    checker.answered(call(1), &one, 4);
    assert_eq!(checker.loaded(&one, 3), Ok(()), "the caller has no reply yet");
    checker.acknowledged(call(1));
    assert!(checker.loaded(&one, 3).is_err());
    assert_eq!(checker.loaded(&one, 4), Ok(()));
}

#[test]
fn stale_writes_are_detected() {
    let (one, mut checker) = (actor(1), StoredStates::default());
    assert!(checker.runs(&one, epoch(1)).is_err(), "nothing is claimed");
    assert_eq!(checker.written(&one, epoch(1)), Ok(()));
    assert_eq!(checker.runs(&one, epoch(1)), Ok(()));
    assert!(
        checker.runs(&one, epoch(2)).is_err(),
        "only an earlier epoch is claimed"
    );
    checker.turn_starts(&turn(&one, 2, 1));
    assert!(checker.written(&one, epoch(1)).is_err(), "a later activation runs");
    assert_eq!(checker.written(&one, epoch(2)), Ok(()));
    assert!(checker.written(&one, epoch(1)).is_err(), "the epoch decreased");
}

#[test]
fn moves_that_never_end_are_detected() {
    let moving = |ended: Option<u64>| Moving {
        actor: actor(1),
        source: NodeId(1),
        to: NodeId(2),
        began: Time(0),
        ended: ended.map(|seconds| (Time(seconds * 1_000_000_000), Ok(epoch(2)))),
    };
    let check = |ended, is_alive| check_moves(&[(MoveId(1), moving(ended))].into(), Time(60_000_000_000), |_| is_alive);
    assert_eq!(check(Some(2), true), Ok(()));
    assert!(check(Some(40), true).is_err());
    assert!(check(None, true).is_err());
    assert_eq!(check(None, false), Ok(()), "its source is dead");
}

#[test]
fn tables_beyond_their_limits_are_detected() {
    let limits = Limits::default();
    let held_most = limits.held_per_actor + 5;
    let sizes = TableSizes {
        held_most,
        ..TableSizes::default()
    };
    assert_eq!(check_bounds(NodeId(1), &sizes, &limits, 5), Ok(()));
    let held_most = held_most + 1;
    assert!(check_bounds(NodeId(1), &TableSizes { held_most, ..sizes }, &limits, 5).is_err());
}
