//! A trace of calls between real processes, read from the logs of the processes.

use std::time::Duration;

use elastin::types::TraceContext;
use elastin_testkit::Probe;

use super::start;

const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// A span, as a server has logged it.
#[derive(Debug, PartialEq, Eq, Hash, Clone)]
struct Span {
    trace: String,
    span: String,
    parent: String,
    actor: String,
}

/// The spans of the probe turns that a server has logged. Turns without a trace have none.
fn spans_in(output: &str) -> Vec<Span> {
    let turns = output
        .lines()
        .filter(|line| line.ends_with("relayed") && line.contains("turn{"));
    turns.map(span_in).collect()
}

fn span_in(line: &str) -> Span {
    let field = |name: &str| {
        let (_, rest) = line
            .split_once(&format!("{name}="))
            .unwrap_or_else(|| panic!("{name} is missing in {line}"));
        let end = rest.find([' ', '}']).expect("a field ends");
        rest[..end].trim_matches('"').to_owned()
    };
    Span {
        trace: field(" turn{trace_id").to_owned(),
        span: field(" span_id"),
        parent: field("parent_span_id"),
        actor: field("actor"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_follows_calls_across_servers() {
    let (elastin, cluster) = start("elastin_testkit=info,elastin::turn=info", &["a", "b"]).await;
    let client = cluster.client();
    for (probe, server) in [(1, "a"), (2, "b"), (3, "a")] {
        let probe = client.actor::<Probe>(probe);
        let traces = probe.relay(vec![]).deadline(CALL_DEADLINE).await.unwrap();
        assert_eq!(traces, [None], "a call without a trace starts none");
        match cluster.move_actor(probe.id(), server).await {
            Ok(()) => {}
            Err(error) => assert_eq!(error.to_string(), "the actor is already there"),
        }
    }

    let root: TraceContext = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        .parse()
        .unwrap();
    let first = client.actor::<Probe>(1);
    let call = first.relay(vec![2, 3]).with_trace(root);
    let traces = call.deadline(CALL_DEADLINE).await.unwrap();
    let traces: Vec<TraceContext> = traces
        .into_iter()
        .map(|trace| trace.expect("the trace was lost").parse().expect("a traceparent"))
        .collect();
    assert_eq!(traces.len(), 3);

    // The expected log of each server: its own turns, each below the turn that called it.
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let parents = [root, traces[0], traces[1]];
    let expected: Vec<Span> = [1, 2, 3]
        .iter()
        .zip(parents.iter().zip(&traces))
        .map(|(probe, (parent, trace))| Span {
            trace: "4bf92f3577b34da6a3ce929d0e0e4736".into(),
            span: hex(&trace.span_id),
            parent: hex(&parent.span_id),
            actor: format!("Probe/{probe}"),
        })
        .collect();
    let spans = |server: &str| spans_in(&elastin.output_of(server));
    assert_eq!(
        spans("a"),
        [expected[0].clone(), expected[2].clone()],
        "{}",
        elastin.output_of("a")
    );
    assert_eq!(spans("b"), [expected[1].clone()], "{}", elastin.output_of("b"));
    cluster.leave().await;
}
