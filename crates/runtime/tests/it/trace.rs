//! Traces: a call's trace context is passed along calls and between nodes, and each turn is its own span.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, OnceLock};

use crate::common::pair::Pair;
use elastin::{Actor, Ctx, Ref, handlers};
use elastin_runtime::Runtime;
use elastin_types::TraceContext;
use serde::{Deserialize, Serialize};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// Spans and events recorded by a subscriber.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Recorded>>);

#[derive(Default)]
struct Recorded {
    /// The fields of each span, with the name of the subscriber's own parent if it has one.
    spans: BTreeMap<u64, BTreeMap<String, String>>,
    /// Each event's message with its span.
    events: Vec<(String, Option<u64>)>,
}

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = self.0.entry(field.name().to_owned()).or_default();
        text.clear();
        write!(text, "{value:?}").unwrap();
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl<S: Subscriber + for<'l> LookupSpan<'l>> Layer<S> for Seen {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().target() != "elastin::turn" {
            return;
        }
        let mut fields = BTreeMap::new();
        attributes.record(&mut Fields(&mut fields));
        if let Some(parent) = context.span(id).and_then(|span| span.parent()) {
            fields.insert("leaked parent".into(), parent.name().into());
        }
        self.0.lock().unwrap().spans.insert(id.into_u64(), fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _context: Context<'_, S>) {
        if let Some(fields) = self.0.lock().unwrap().spans.get_mut(&id.into_u64()) {
            values.record(&mut Fields(fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = BTreeMap::new();
        event.record(&mut Fields(&mut fields));
        let span = context.current_span().id().map(Id::into_u64);
        let message = fields.remove("message").unwrap_or_default();
        self.0.lock().unwrap().events.push((message, span));
    }
}

/// The global subscriber of this process: turns run on many threads.
fn seen() -> &'static Seen {
    static SEEN: OnceLock<Seen> = OnceLock::new();
    SEEN.get_or_init(|| {
        let seen = Seen::default();
        tracing::subscriber::set_global_default(tracing_subscriber::registry().with(seen.clone())).unwrap();
        seen
    })
}

impl Seen {
    /// The fields of the only span with this id in the trace.
    fn span(&self, place: TraceContext) -> BTreeMap<String, String> {
        let recorded = self.0.lock().unwrap();
        let wanted = hex(&place.span_id);
        let found = recorded.spans.values().find(|span| span["span_id"] == wanted);
        found.expect("each turn of a sampled trace is a span").clone()
    }

    /// The id of the span that an event was in.
    fn event_in(&self, message: &str) -> Option<String> {
        let recorded = self.0.lock().unwrap();
        let (_, span) = recorded
            .events
            .iter()
            .find(|(known, _)| known == message)
            .expect("the event was logged");
        span.map(|span| recorded.spans[&span]["span_id"].clone())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Inner {}

#[handlers]
impl Inner {
    async fn observe(&mut self, ctx: &Ctx, waits: bool, mark: String) -> Option<String> {
        tracing::info!("inner begins {mark}");
        if waits {
            tokio::task::yield_now().await;
        }
        tracing::info!("inner ends {mark}");
        ctx.trace().map(|trace| trace.to_string())
    }
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Outer {}

#[handlers]
impl Outer {
    /// Returns its own trace context, and that of the turn that it calls.
    async fn around(&mut self, ctx: &Ctx, waits: bool, mark: String) -> (Option<String>, Option<String>) {
        let inner: Ref<Inner> = ctx.actor("inner");
        let below = inner.observe(waits, mark.clone()).await.unwrap();
        tracing::info!("outer ends {mark}");
        (ctx.trace().map(|trace| trace.to_string()), below)
    }
}

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Calls with a trace, and checks that the turns are nested spans that do not leak into one another.
async fn check(outer: &Ref<Outer>, waits: bool, mark: &str) {
    let parent: TraceContext = PARENT.parse().unwrap();
    let (outer_place, inner_place) = outer.around(waits, mark.into()).with_trace(parent).await.unwrap();
    let place = |text: Option<String>| {
        text.expect("the turn belongs to the trace")
            .parse::<TraceContext>()
            .unwrap()
    };
    let (outer_place, inner_place) = (place(outer_place), place(inner_place));
    assert_eq!(outer_place.trace_id, parent.trace_id);
    assert_eq!(inner_place.trace_id, parent.trace_id);
    let (outer_span, inner_span) = (seen().span(outer_place), seen().span(inner_place));
    assert_eq!(outer_span["parent_span_id"], hex(&parent.span_id));
    assert_eq!(inner_span["parent_span_id"], hex(&outer_place.span_id));
    assert_eq!(
        (outer_span["actor"].as_str(), outer_span["function"].as_str()),
        ("Outer/outer", "around")
    );
    assert_eq!(
        (inner_span["actor"].as_str(), inner_span["function"].as_str()),
        ("Inner/inner", "observe")
    );
    for span in [&outer_span, &inner_span] {
        assert!(!span.contains_key("leaked parent"), "{span:?}");
    }
    let inner_id = Some(hex(&inner_place.span_id));
    assert_eq!(seen().event_in(&format!("inner begins {mark}")), inner_id);
    assert_eq!(seen().event_in(&format!("inner ends {mark}")), inner_id);
    assert_eq!(
        seen().event_in(&format!("outer ends {mark}")),
        Some(hex(&outer_place.span_id))
    );
}

#[tokio::test]
async fn turns_of_a_sampled_trace_are_nested_spans() {
    seen();
    let runtime = Runtime::builder()
        .register::<Outer>()
        .register::<Inner>()
        .workers(1)
        .build()
        .unwrap();
    let outer: Ref<Outer> = runtime.client().actor("outer");
    check(&outer, false, "inline").await;
    check(&outer, true, "suspended").await;
    // Without a trace there is no span; an unsampled trace is passed along without spans.
    assert_eq!(outer.around(false, "none".into()).await, Ok((None, None)));
    assert_eq!(seen().event_in("inner begins none"), None);
    let silent: TraceContext = PARENT.replace("-01", "-00").parse().unwrap();
    let (outer_place, inner_place) = outer.around(false, "silent".into()).with_trace(silent).await.unwrap();
    assert!(outer_place.is_some() && inner_place.is_some() && outer_place != inner_place);
    assert_eq!(seen().event_in("inner begins silent"), None);
}

#[tokio::test]
async fn a_trace_continues_on_another_node() {
    seen();
    let pair = Pair::start(|builder| builder.register::<Outer>().register::<Inner>());
    let outer: Ref<Outer> = pair.runtime(0).client().actor("outer");
    let inner: Ref<Inner> = pair.runtime(1).client().actor("inner");
    inner.observe(false, "there".into()).await.unwrap();
    assert_eq!(pair.place(inner.id()).node, 1);
    check(&outer, true, "across").await;
    assert_eq!(pair.place(outer.id()).node, 0);
    pair.stop().await;
}
