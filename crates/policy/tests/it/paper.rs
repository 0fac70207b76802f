//! The policies printed in PLASMA (EuroSys 2020, section 3.3) compile as printed, and equal the example files.

use elastin_policy::{Behaviour, Policy};

use crate::common;

fn compiled(application: &str, source: &str) -> Policy {
    common::example_with(application, source).0.policy
}

/// Checks that the printed policy has the rules of the file.
#[track_caller]
fn check(application: &str, printed: &str) {
    let file = compiled(application, &common::read(&format!("{application}.epl")));
    let printed = compiled(application, printed);
    let meaning = |policy: &Policy| -> Vec<String> {
        let rules = policy.rules().iter();
        rules
            .map(|rule| {
                format!(
                    "{:?} {:?} {:?} {:?}",
                    rule.variables, rule.atoms, rule.condition, rule.behaviours
                )
            })
            .collect()
    };
    assert_eq!(meaning(&printed), meaning(&file));
}

#[test]
fn metadata_server_compiles_as_printed() {
    check(
        "metadata-server",
        "server.cpu.perc > 80 and client.call(Folder(fo).open).perc > 40 and File(fi) in ref(fo.files) ⇒ reserve(fo, cpu); colocate(fo, fi);",
    );
}

#[test]
fn page_rank_compiles_as_printed() {
    let source = "server.cpu.perc > 80 or server.cpu.perc < 60 ⇒ balance({Partition}, cpu);";
    check("pagerank", source);
    let policy = compiled("pagerank", source);
    let [Behaviour::Balance(balance)] = &policy.rules()[0].behaviours[..] else {
        panic!("the rule balances");
    };
    assert_eq!((balance.upper, balance.lower), (Some(80.0), Some(60.0)));
}

#[test]
fn e_store_compiles_as_printed() {
    check(
        "e-store",
        "server.cpu.perc > 80 and
         client.call(Partition(p1).read).perc > 30 ⇒
         reserve(p1, cpu);
         Partition(p2) in ref(Partition(p1).children) ⇒
         colocate(p1, p2);
         server.cpu.perc < 50 ⇒ balance({Partition}, cpu);",
    );
}

#[test]
fn media_service_compiles_as_printed() {
    check(
        "media-service",
        "server.net.perc > 80 or server.net.perc < 60 ⇒
         balance({FrontEnd}, net);
         server.cpu.perc>50 ⇒ reserve(VideoStream(v),cpu);
         VideoStream(v).call(UserInfo(u).track).count > 0 ⇒
         pin(v); colocate(v, u);
         ReviewEditor(r).call(UserReview(u).update).count
         > 0 ⇒ pin(r); colocate(r, u);
         true ⇒ pin(MovieReview(m));
         server.cpu.perc > 90 or server.cpu.perc < 70 ⇒
         balance({ReviewChecker}, cpu);",
    );
}

#[test]
fn halo_presence_compiles_as_printed() {
    check(
        "halo-presence",
        "Player(p) in ref(Session(s).players) ⇒
             pin(s); colocate(p, s);
         server.cpu.perc > 80 or server.cpu.perc < 60 ⇒
         balance({Router}, cpu);",
    );
}
