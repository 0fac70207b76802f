//! A recorded run, encoded and decoded, leads a new manager to the same decisions.

use elastin_control::{Decision, Lem, LemCommand, LemEvent};
use elastin_types::{NodeId, Time};

use crate::metadata::metadata;

fn records(commands: Vec<LemCommand>) -> Vec<Decision> {
    let decision = |command| match command {
        LemCommand::Record(decision) => Some(*decision),
        _ => None,
    };
    commands.into_iter().filter_map(decision).collect()
}

#[test]
fn a_recorded_run_replayed_gives_the_same_decisions() {
    let mut model = metadata();
    model.noise = 0.05;
    model.recording = Some((NodeId(1), Vec::new()));
    model.run(8);
    let (node, recording) = model.recording.take().expect("a recording was started");
    let bytes = serde_json::to_vec(&recording).expect("events are plain data");
    let recording: Vec<(Time, LemEvent)> = serde_json::from_slice(&bytes).expect("events are plain data");

    let replay = || {
        let mut lem = Lem::new(model.config(node));
        let mut out = Vec::new();
        for (now, event) in &recording {
            lem.handle(*now, event.clone(), &mut out);
        }
        out
    };
    assert_eq!(replay(), replay(), "all commands, not only the records");
    let of_this_lem = |decision: &&Decision| model.decisions.contains_key(&decision.id);
    let again = records(replay());
    assert!(
        again.iter().filter(of_this_lem).count() >= 3,
        "the move was proposed, started and done"
    );
    for decision in &again {
        let recorded = model.records.iter().any(|(_, recorded)| recorded == decision);
        assert!(
            recorded,
            "not decided in the recorded run: {}",
            decision.explain(&model.schema)
        );
    }
}
