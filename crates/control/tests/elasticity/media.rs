//! Media Service: a streaming video is pinned, so a `reserve` dedicates its current server.

use elastin_types::{ActorId, Method, NodeId};

use crate::metadata::{GEM, settings};
use crate::model::{ActorModel, CORE, Flow, Model, NET, Nested};
use crate::schemas::{actor, schema};

const POLICY: &str = "
server.net.perc > 80 or server.net.perc < 60 => balance({FrontEnd}, net);
server.cpu.perc > 50 => reserve(VideoStream(v), cpu);
VideoStream(v).call(UserInfo(u).track).count > 0 => pin(v); colocate(v, u);
ReviewEditor(r).call(UserReview(u).update).count > 0 => pin(r); colocate(r, u);
true => pin(MovieReview(m));
server.cpu.perc > 90 or server.cpu.perc < 70 => balance({ReviewChecker}, cpu);
";

fn media(servers: u64) -> Model {
    let schema = schema(&[
        "FrontEnd request",
        "VideoStream watch",
        "UserInfo track",
        "ReviewEditor edit",
        "UserReview update",
        "MovieReview read",
        "ReviewChecker check",
    ]);
    let mut model = Model::new(schema, POLICY, settings());
    for _ in 0..servers {
        model.add_server();
    }
    model.add_gem(GEM);
    model
}

/// Adds an actor with the given CPU and network use, in percent of a server, that calls another.
fn serve(model: &mut Model, new: (ActorId, NodeId), method: &str, percent: (f64, f64), calls: Option<(ActorId, &str)>) {
    let (target, node) = new;
    model.add_actor(target.clone(), node, ActorModel::default());
    let nested = calls.map(|(target, method)| Nested {
        target,
        method: Method::of(method),
        cpu_ms: 0.01,
        part: 1.0,
    });
    let per_second = 100.0;
    model.flows.push(Flow {
        target,
        method: Method::of(method),
        cpu_ms: percent.0 / 100.0 * CORE / per_second,
        net_bytes: percent.1 / 100.0 * NET / per_second,
        nested: nested.into_iter().collect(),
        weight: per_second,
    });
}

#[test]
fn a_streaming_video_keeps_its_server_and_the_others_leave() {
    let mut model = media(3);
    let video = actor("VideoStream", 1);
    model.add_actor(actor("UserInfo", 1), NodeId(2), ActorModel::default());
    let calls = Some((actor("UserInfo", 1), "track"));
    serve(&mut model, (video.clone(), NodeId(1)), "watch", (45.0, 5.0), calls);
    serve(
        &mut model,
        (actor("ReviewChecker", 1), NodeId(1)),
        "check",
        (20.0, 1.0),
        None,
    );
    serve(
        &mut model,
        (actor("FrontEnd", 1), NodeId(1)),
        "request",
        (5.0, 65.0),
        None,
    );
    serve(
        &mut model,
        (actor("MovieReview", 1), NodeId(2)),
        "read",
        (5.0, 1.0),
        None,
    );
    serve(
        &mut model,
        (actor("MovieReview", 2), NodeId(3)),
        "read",
        (5.0, 1.0),
        None,
    );
    model.run(6);
    assert_eq!(model.place[&video], NodeId(1), "the video is pinned");
    let belongs = [video, actor("UserInfo", 1)];
    assert_eq!(
        model.on(NodeId(1)).into_iter().collect::<Vec<_>>(),
        sorted(&belongs),
        "{:#?}",
        model.story()
    );
    assert_eq!(model.place[&actor("MovieReview", 1)], NodeId(2));
    assert_eq!(model.place[&actor("MovieReview", 2)], NodeId(3));
    let story = model.story();
    let dedicated = "n1 is dedicated to VideoStream/1: rule 2 reserves it (server.cpu.perc 72.0 > 50)";
    assert!(story.iter().any(|line| line == dedicated), "{story:#?}");
    let moves = model.moves.len();
    model.run(30);
    assert_eq!(model.moves.len(), moves, "{:#?}", model.story());
}

#[test]
fn streaming_videos_share_their_server() {
    let mut model = media(2);
    for key in 1..=3 {
        model.add_actor(actor("UserInfo", key), NodeId(1), ActorModel::default());
        let calls = Some((actor("UserInfo", key), "track"));
        let video = (actor("VideoStream", key), NodeId(1));
        serve(&mut model, video, "watch", (25.0, 5.0), calls);
    }
    serve(
        &mut model,
        (actor("MovieReview", 1), NodeId(2)),
        "read",
        (5.0, 1.0),
        None,
    );
    model.run(20);
    assert_eq!(model.moves, [], "the videos are pinned and belong there");
    assert_eq!(model.servers().len(), 2, "{:#?}", model.story());
    let shared = model
        .story()
        .into_iter()
        .filter(|line| line.contains(" together: rule 2 reserves it"))
        .count();
    assert_eq!(shared, 2, "sharing is recorded: {:#?}", model.story());
}

#[test]
fn reviews_follow_their_editor_which_is_pinned() {
    let mut model = media(2);
    for user in 0..6 {
        let review = actor("UserReview", user);
        model.add_actor(review.clone(), NodeId(1 + user % 2), ActorModel::default());
        let editor = (actor("ReviewEditor", user), NodeId(1 + user / 3));
        serve(&mut model, editor, "edit", (5.0, 1.0), Some((review, "update")));
    }
    model.run(4);
    for user in 0..6 {
        let node = model.place[&actor("UserReview", user)];
        assert_eq!(node, model.place[&actor("ReviewEditor", user)], "{:#?}", model.story());
        assert_eq!(node, NodeId(1 + user / 3), "editors are pinned");
    }
}

#[test]
fn each_type_is_balanced_by_its_own_resource() {
    let mut model = media(4);
    // A pinned actor on each server keeps all of them.
    for node in 1..=4 {
        serve(
            &mut model,
            (actor("MovieReview", node), NodeId(node)),
            "read",
            (1.0, 1.0),
            None,
        );
    }
    for key in 0..10 {
        serve(
            &mut model,
            (actor("ReviewChecker", key), NodeId(1)),
            "check",
            (18.0, 0.0),
            None,
        );
        serve(
            &mut model,
            (actor("FrontEnd", key), NodeId(2)),
            "request",
            (0.5, 18.0),
            None,
        );
    }
    model.noise = 0.02;
    model.run(12);
    for node in model.servers() {
        let checkers = model
            .on(node)
            .into_iter()
            .filter(|id| id.kind == actor("ReviewChecker", 0).kind)
            .count();
        let front_ends = model
            .on(node)
            .into_iter()
            .filter(|id| id.kind == actor("FrontEnd", 0).kind)
            .count();
        assert!(checkers <= 5, "{node} has {checkers} checkers: {:#?}", model.story());
        assert!(
            front_ends <= 4,
            "{node} has {front_ends} front ends: {:#?}",
            model.story()
        );
    }
    let moves = model.moves.len();
    model.run(50);
    assert_eq!(model.moves.len(), moves, "{:#?}", model.story());
}

fn sorted(actors: &[ActorId]) -> Vec<ActorId> {
    let mut actors = actors.to_vec();
    actors.sort();
    actors
}
