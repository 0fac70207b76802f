//! Metadata Server: a folder that gets half of the load ends up with its files on a dedicated server.

use std::collections::BTreeSet;
use std::time::Duration;

use elastin_control::Settings;
use elastin_types::{ActorId, Method, NodeId};

use crate::model::{ActorModel, Flow, Load, Model, Nested};
use crate::schemas::{actor, references, schema};

pub(crate) const POLICY: &str = "
server.cpu.perc > 80 and client.call(Folder(fo).open).perc > 40 and File(fi) in ref(fo.files)
    => reserve(fo, cpu); colocate(fo, fi);
";
pub(crate) const GEM: NodeId = NodeId(1000);

pub(crate) fn settings() -> Settings {
    Settings {
        period: Duration::from_secs(10),
        ..Settings::default()
    }
}

/// A folder and its eight files.
pub(crate) fn group(folder: u64) -> BTreeSet<ActorId> {
    let files = (0..8).map(|file| actor("File", folder * 8 + file));
    files.chain([actor("Folder", folder)]).collect()
}

/// Four folders with eight files each on one server; the first folder gets half of the requests.
pub(crate) fn metadata() -> Model {
    let schema = schema(&["Folder open : files File", "File read"]);
    let mut model = Model::new(schema, POLICY, settings());
    model.load = Load::Closed {
        clients: 16.0,
        think_ms: 2.0,
    };
    let server = model.add_server();
    model.add_gem(GEM);
    for folder in 0..4 {
        let files: Vec<ActorId> = (0..8).map(|file| actor("File", folder * 8 + file)).collect();
        for file in &files {
            model.add_actor(file.clone(), server, ActorModel::default());
        }
        let nested = files.iter().map(|file| Nested {
            target: file.clone(),
            method: Method::of("read"),
            cpu_ms: 1.0,
            part: 1.0 / 8.0,
        });
        model.flows.push(Flow {
            target: actor("Folder", folder),
            method: Method::of("open"),
            cpu_ms: 1.0,
            net_bytes: 0.0,
            nested: nested.collect(),
            weight: if folder == 0 { 3.0 } else { 1.0 },
        });
        let references = references("files", files);
        let folder = actor("Folder", folder);
        model.add_actor(
            folder,
            server,
            ActorModel {
                references,
                state_bytes: 1000.0,
            },
        );
    }
    model
}

#[test]
fn the_hot_folder_and_its_files_get_a_server_of_their_own() {
    let mut model = metadata();
    let before = model.served();
    model.run(4);
    let [first, second] = model.servers()[..] else {
        panic!("one server was added, not {:?}", model.servers());
    };
    assert_eq!(model.on(second), group(0));
    assert_eq!(model.on(first).len(), 27);
    assert_eq!(model.moves.len(), 9, "each actor moved once");
    assert!(
        model.served() > 1.9 * before,
        "{} from {before} requests per second",
        model.served()
    );
}

#[test]
fn decisions_are_recorded_in_order() {
    let mut model = metadata();
    model.run(6);
    let values = "(server.cpu.perc 100.0 > 80, client.call(Folder(fo).open).perc 50.0 > 40)";
    assert_eq!(
        model.story(),
        [
            format!("1 server was added: rule 1 reserves Folder/0 {values}"),
            format!("Folder/0 with 8 more moved n1 → n2: rule 1 reserves it {values}"),
        ]
    );
}

#[test]
fn nothing_moves_once_settled() {
    for drawn in 1..=5 {
        let mut model = metadata();
        model.noise = 0.04;
        model.drawn = drawn;
        model.run(6);
        assert_eq!(model.moves.len(), 9);
        model.run(50);
        assert_eq!(model.moves.len(), 9, "{:#?}", model.story());
        assert_eq!(model.servers().len(), 2);
    }
}

#[test]
fn an_empty_server_is_used_before_a_new_one_is_requested() {
    let mut model = metadata();
    let spare = model.add_server();
    model.run(6);
    assert_eq!(model.servers().len(), 2);
    assert_eq!(model.on(spare), group(0));
}

#[test]
fn remote_files_follow_to_the_reserved_server_in_one_period() {
    let mut model = metadata();
    let other = model.add_server();
    let empty = model.add_server();
    // The first actor keeps the other server non-empty; the second, which no rule mentions, keeps it from leaving.
    model.add_actor(actor("File", 100), other, ActorModel::default());
    for file in [1, 4] {
        model.place.insert(actor("File", file), other);
    }
    model.run(6);
    assert_eq!(model.on(empty), group(0));
    let of_group = model.moves.iter().filter(|(_, actor, ..)| group(0).contains(actor));
    let times: Vec<u64> = of_group.map(|(at, ..)| at.0).collect();
    assert_eq!(times.len(), 9);
    let spread = times.iter().max().unwrap() - times.iter().min().unwrap();
    assert!(spread < 1_000_000_000, "all within a second, not {spread} ns");
}

#[test]
fn at_the_maximum_the_refusal_is_recorded() {
    let mut model = metadata();
    model.restrict(Settings {
        servers_max: 1,
        ..settings()
    });
    model.run(6);
    assert_eq!(model.moves, []);
    let (_, last) = model.records.last().expect("there is a record");
    assert_eq!(
        last.explain(&model.schema),
        "Folder/0 did not move away from n1: rule 1 reserves it (server.cpu.perc 100.0 > 80, \
         client.call(Folder(fo).open).perc 50.0 > 40), but the cluster has as many servers as it may have"
    );
}

#[test]
fn the_added_server_leaves_when_the_reservation_ends() {
    let mut model = metadata();
    model.run(6);
    assert_eq!(model.servers().len(), 2);
    model.load = Load::Closed {
        clients: 0.2,
        think_ms: 2.0,
    };
    model.flows[0].weight = 0.01;
    model.run(20);
    assert_eq!(model.servers(), [NodeId(1)], "{:#?}", model.story());
    assert_eq!(model.on(NodeId(1)).len(), 36);
    let story = model.story();
    let released = "n2 is released by Folder/0: it no longer needs the server that rule 1 reserved";
    assert!(story.iter().any(|line| line == released), "{story:#?}");
}
