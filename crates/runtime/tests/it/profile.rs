//! Snapshots of actors and their server.

// A reference caches its cell; it is compared and hashed by its id alone.
#![allow(clippy::mutable_key_type)]

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::pair::Pair;
use elastin::{Actor, Ctx, HoldsReferences, Ref, handlers};
use elastin_actor::schema_of;
use elastin_runtime::{Interest, NodeSnapshot, Runtime};
use elastin_types::{ActorStats, ActorType, Caller, Method, NodeId, Property};
use serde::{Deserialize, Serialize};

#[derive(Actor, Serialize, Deserialize, Default)]
struct File {
    bytes: Vec<u8>,
}

#[handlers]
impl File {
    fn read(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn write(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
    }
}

type Files = Vec<Ref<File>>;

#[derive(Actor, Serialize, Deserialize, Default)]
struct Folder {
    files: Files,
    newest: Option<Ref<File>>,
    by_name: BTreeMap<String, Ref<File>>,
    parents: HashMap<u64, Vec<Ref<Folder>>>,
    pinned: BTreeSet<Ref<File>>,
    recent: Recent,
    opened: u64,
}

#[derive(HoldsReferences, Serialize, Deserialize, Default)]
struct Recent {
    #[references]
    read: VecDeque<Ref<File>>,
    #[references]
    written: Option<Ref<File>>,
    limit: usize,
}

#[handlers]
impl Folder {
    fn add(&mut self, ctx: &Ctx, name: String) {
        let file: Ref<File> = ctx.actor(name.as_str());
        self.files.push(file.clone());
        self.newest = Some(file.clone());
        self.by_name.insert(name, file);
    }

    async fn open(&mut self, calls: u64) -> u64 {
        self.opened += 1;
        let mut read = 0;
        for call in 0..calls {
            let file = &self.files[call as usize % self.files.len()];
            read += file.read().await.unwrap();
        }
        read
    }

    async fn wait(&mut self) -> u64 {
        tokio::task::yield_now().await;
        self.opened
    }

    fn burn(&mut self, for_us: u64) {
        let end = Instant::now() + Duration::from_micros(for_us);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }
}

fn of<'a>(snapshot: &'a NodeSnapshot, reference: &elastin_types::ActorId) -> &'a ActorStats {
    snapshot
        .actors
        .iter()
        .find(|actor| actor.actor == *reference)
        .expect("the actor is listed")
}

#[test]
fn properties_are_found_by_type() {
    let schema = schema_of::<Folder>();
    let properties: Vec<_> = schema
        .properties
        .iter()
        .map(|p| (p.name.as_str(), p.target.as_str()))
        .collect();
    let expected = [
        ("files", "File"),
        ("newest", "File"),
        ("by_name", "File"),
        ("parents", "Folder"),
        ("pinned", "File"),
        ("recent", "File"),
    ];
    assert_eq!(properties, expected);
    let open = schema.function("open").unwrap();
    assert_eq!(
        (open.parameters[0].name.as_str(), open.parameters[0].type_name.as_str()),
        ("calls", "u64")
    );
    assert_eq!(
        schema_of::<File>().function("write").unwrap().parameters[0].type_name,
        "Vec<u8>"
    );
    assert!(schema_of::<File>().function("read").unwrap().read_only);
}

#[tokio::test]
async fn turns_can_suspend_after_a_snapshot() {
    let runtime = Runtime::builder().register::<Folder>().register::<File>();
    let runtime = runtime.workers(1).build().unwrap();
    let folder: Ref<Folder> = runtime.client().actor("folder");
    for _ in 0..3 {
        for _ in 0..10 {
            assert_eq!(folder.wait().await, Ok(0));
        }
        // A snapshot frees the cold state of idle actors.
        runtime.snapshot(&Interest::All);
    }
}

#[tokio::test]
async fn a_snapshot_has_edges_references_and_sizes() {
    let runtime = Runtime::builder()
        .register::<Folder>()
        .register::<File>()
        .node(NodeId(3))
        .workers(1)
        .build()
        .unwrap();
    let folder: Ref<Folder> = runtime.client().actor("folder");
    let (a, b): (Ref<File>, Ref<File>) = (runtime.client().actor("a"), runtime.client().actor("b"));
    folder.add("a".into()).await.unwrap();
    folder.add("b".into()).await.unwrap();
    a.write(vec![1; 5000]).await.unwrap();
    for _ in 0..25 {
        assert_eq!(folder.open(4).await, Ok(10_000));
    }
    let snapshot = runtime.snapshot(&Interest::All);
    assert_eq!(snapshot.server.actors, 3);
    assert_eq!(snapshot.actors.len(), 3);

    let stats = of(&snapshot, folder.id());
    let files = |name: &str| {
        let property = Property::of(name);
        let references = stats
            .references
            .iter()
            .find(|references| references.property == property)
            .unwrap();
        references.actors.clone()
    };
    assert_eq!(files("files"), [a.id().clone(), b.id().clone()]);
    assert_eq!(files("newest"), [b.id().clone()]);
    let opens = stats
        .calls_in
        .iter()
        .find(|call| call.method == Method::of("open"))
        .unwrap();
    assert_eq!((&opens.caller, opens.count), (&Caller::Client(NodeId(3)), 25));
    assert_eq!(opens.bytes, 25);
    let reads: Vec<_> = stats
        .calls_out
        .iter()
        .map(|call| (call.callee.clone(), call.count, call.node))
        .collect();
    assert_eq!(
        reads,
        [
            (a.id().clone(), 50, Some(NodeId(3))),
            (b.id().clone(), 50, Some(NodeId(3)))
        ]
    );

    let stats = of(&snapshot, a.id());
    assert!(stats.used.mem > 5000.0, "{}", stats.used.mem);
    let reads = stats
        .calls_in
        .iter()
        .find(|call| call.method == Method::of("read"))
        .unwrap();
    assert_eq!((&reads.caller, reads.count), (&Caller::Actor(folder.id().clone()), 50));

    // A period without calls: references are still known, edges are gone.
    let snapshot = runtime.snapshot(&always(&[ActorType::of("Folder")]));
    assert_eq!(snapshot.actors.len(), 1);
    let stats = of(&snapshot, folder.id());
    assert_eq!(stats.calls_in.len() + stats.calls_out.len(), 0);
    assert_eq!(stats.references.len(), 3);
    assert_eq!(snapshot.server.actors, 3);
}

#[tokio::test]
async fn sampled_call_counts_are_accurate() {
    let runtime = Runtime::builder()
        .register::<Folder>()
        .register::<File>()
        .workers(1)
        .build()
        .unwrap();
    let folder: Ref<Folder> = runtime.client().actor("folder");
    folder.add("a".into()).await.unwrap();
    folder.open(100_000).await.unwrap();
    let snapshot = runtime.snapshot(&Interest::All);
    let file = snapshot
        .actors
        .iter()
        .find(|actor| actor.actor.kind == ActorType::of("File"))
        .unwrap();
    let counted = file.calls_in[0].count as f64;
    assert!((counted - 100_000.0).abs() < 100.0, "{counted}");
    // The first turn of an activation is not measured.
    assert_eq!(of(&snapshot, folder.id()).calls_in.len(), 1);
    let called = of(&snapshot, folder.id()).calls_out[0].count as f64;
    assert!((called - 100_000.0).abs() < 100.0, "{called}");
}

#[tokio::test]
async fn cpu_time_is_charged_to_the_actor_that_used_it() {
    let runtime = Runtime::builder()
        .register::<Folder>()
        .register::<File>()
        .workers(1)
        .build()
        .unwrap();
    let busy: Ref<Folder> = runtime.client().actor("busy");
    let lazy: Ref<Folder> = runtime.client().actor("lazy");
    runtime.snapshot(&Interest::All);
    for _ in 0..50 {
        busy.burn(1000).await.unwrap();
        lazy.burn(10).await.unwrap();
    }
    let snapshot = runtime.snapshot(&Interest::All);
    let cpu = |reference: &Ref<Folder>| of(&snapshot, reference.id()).used.cpu;
    // A hundred times as much on a quiet machine; on a busy one a turn may be preempted while it is measured.
    assert!(cpu(&busy) > 3.0 * cpu(&lazy), "{} and {}", cpu(&busy), cpu(&lazy));
    let server = snapshot.server.usage.cpu;
    assert!(
        cpu(&busy) + cpu(&lazy) <= server.used * 1.01,
        "{} of {}",
        cpu(&busy),
        server.used
    );
    assert!(server.percent().unwrap() > 0.0);
}

#[tokio::test]
async fn edges_between_nodes_name_both_nodes() {
    let pair = Pair::start(|builder| builder.register::<Folder>().register::<File>());
    let folder: Ref<Folder> = pair.runtime(0).client().actor("folder");
    let file: Ref<File> = pair.runtime(1).client().actor("a");
    assert_eq!(file.read().await, Ok(0));
    folder.add("a".into()).await.unwrap();
    assert_eq!(folder.open(30).await, Ok(0));
    let there = pair.runtime(1).snapshot(&Interest::All);
    let read = of(&there, file.id())
        .calls_in
        .iter()
        .find(|call| matches!(call.caller, Caller::Actor(_)))
        .unwrap();
    assert_eq!((read.count, read.node), (30, Some(NodeId(1))));
    let here = pair.runtime(0).snapshot(&Interest::All);
    let read = &of(&here, folder.id()).calls_out[0];
    assert_eq!((read.count, read.node), (30, Some(NodeId(2))));
    pair.stop().await;
}

#[derive(Actor, Deserialize, Default)]
struct Album {
    pictures: Vec<Vec<u8>>,
    cover: Option<Ref<File>>,
}

static ENCODED: AtomicUsize = AtomicUsize::new(0);

impl Serialize for Album {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        ENCODED.fetch_add(1, Ordering::SeqCst);
        let mut album = serializer.serialize_struct("Album", 2)?;
        album.serialize_field("pictures", &self.pictures)?;
        album.serialize_field("cover", &self.cover)?;
        album.end()
    }
}

#[handlers]
impl Album {
    fn add(&mut self, ctx: &Ctx, bytes: usize) {
        // Bytes that take one byte each when encoded.
        self.pictures.push(vec![1; bytes]);
        self.cover = Some(ctx.actor(self.pictures.len() as u64));
    }
}

#[tokio::test]
async fn state_size_is_measured_only_after_a_turn() {
    let runtime = Runtime::builder().register::<Album>().workers(1).build().unwrap();
    let album: Ref<Album> = runtime.client().actor(1);
    let observe = || {
        let snapshot = runtime.snapshot(&Interest::All);
        let stats = of(&snapshot, album.id());
        let cover = stats.references.iter().flat_map(|held| held.actors.clone()).next();
        (stats.used.mem, cover.map(|cover| cover.key))
    };
    for pictures in 1..=20_u64 {
        album.add(5_000).await.unwrap();
        let held = 5_000.0 * pictures as f64;
        let (size, cover) = observe();
        assert!((size / held - 1.0).abs() < 0.1, "{size} instead of {held}");
        assert_eq!(cover, Some(pictures.into()));
    }
    let encoded = ENCODED.load(Ordering::SeqCst);
    for _ in 0..5 {
        let (size, cover) = observe();
        assert!(size > 100_000.0);
        assert_eq!(cover, Some(20.into()));
    }
    assert_eq!(
        ENCODED.load(Ordering::SeqCst),
        encoded,
        "an idle state was encoded again"
    );
}

/// Actors of these types, including idle ones.
fn always(kinds: &[ActorType]) -> Interest {
    Interest::Types {
        busy: BTreeSet::new(),
        always: kinds.iter().copied().collect(),
    }
}

/// Actors of these types that were active.
fn busy(kinds: &[ActorType]) -> Interest {
    Interest::Types {
        busy: kinds.iter().copied().collect(),
        always: BTreeSet::new(),
    }
}

#[tokio::test]
async fn the_interest_may_change_at_run_time() {
    let runtime = Runtime::builder()
        .register::<Folder>()
        .register::<File>()
        .workers(1)
        .build()
        .unwrap();
    let (folder, file): (Ref<Folder>, Ref<File>) = (runtime.client().actor("f"), runtime.client().actor("a"));
    let listed = |interest: &Interest| {
        let snapshot = runtime.snapshot(interest);
        assert_eq!(snapshot.server.actors, 2, "unlisted actors must count too");
        let kinds: BTreeSet<ActorType> = snapshot.actors.iter().map(|actor| actor.actor.kind).collect();
        assert_eq!(kinds.len(), snapshot.actors.len(), "an actor was listed twice");
        kinds
    };
    let (folders, files) = (ActorType::of("Folder"), ActorType::of("File"));
    for _ in 0..3 {
        folder.burn(1).await.unwrap();
        file.read().await.unwrap();
    }
    assert_eq!(listed(&always(&[folders])), [folders].into());
    // Files were not of interest before and have been idle since.
    assert_eq!(listed(&always(&[files])), [files].into());
    assert_eq!(listed(&busy(&[files, folders])), [].into());
    folder.burn(1).await.unwrap();
    assert_eq!(listed(&busy(&[files, folders])), [folders].into());
    assert_eq!(listed(&Interest::All), [files, folders].into());
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Sleeper {}

#[handlers]
impl Sleeper {
    async fn sleep(&mut self, milliseconds: u64) {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }

    fn glance(&self) {}
}

#[tokio::test]
async fn latency_per_function_includes_suspensions() {
    let runtime = Runtime::builder().register::<Sleeper>().workers(1).build().unwrap();
    let sleeper: Ref<Sleeper> = runtime.client().actor(1);
    sleeper.glance().await.unwrap();
    for _ in 0..5 {
        sleeper.sleep(20).await.unwrap();
        sleeper.glance().await.unwrap();
    }
    let snapshot = runtime.snapshot(&Interest::All);
    let stats = of(&snapshot, sleeper.id());
    let function = |name: &str| {
        let found = stats
            .functions
            .iter()
            .find(|function| function.method == Method::of(name));
        found.expect("the function was called").clone()
    };
    let sleep = function("sleep");
    assert_eq!(sleep.count, 5);
    assert!(sleep.latency().unwrap() >= Duration::from_millis(20), "{sleep:?}");
    assert!(sleep.latency_max >= sleep.latency().unwrap());
    assert!(function("glance").latency().unwrap() < sleep.latency().unwrap());
    // It used no CPU while it slept.
    assert!(
        stats.used.cpu * snapshot.period.as_secs_f64() < 50.0,
        "{} ms/s",
        stats.used.cpu
    );
}
