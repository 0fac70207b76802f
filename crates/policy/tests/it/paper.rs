//! Every policy printed in the paper (EuroSys 2020, section 3.3), as printed, arrow and line breaks included.

use elastin_policy::{Behaviour, Policy, Scenarios, compile};

mod common;

/// Compiles a policy for the application whose tests have this name.
fn compiled(application: &str, source: &str) -> Policy {
    let tests = Scenarios::parse(&common::read(&format!("{application}.test.json"))).unwrap();
    let schema = tests.schema().unwrap().unwrap();
    compile(application, source, &schema)
        .unwrap_or_else(|error| panic!("{error}"))
        .policy
}

/// The printed policy has the rules of the file.
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
fn metadata_server() {
    check(
        "metadata-server",
        "server.cpu.perc > 80 and client.call(Folder(fo).open).perc > 40 and File(fi) in ref(fo.files) ⇒ reserve(fo, cpu); colocate(fo, fi);",
    );
}

#[test]
fn page_rank() {
    let source = "server.cpu.perc > 80 or server.cpu.perc < 60 ⇒ balance({Partition}, cpu);";
    check("pagerank", source);
    let policy = compiled("pagerank", source);
    let [Behaviour::Balance(balance)] = &policy.rules()[0].behaviours[..] else {
        panic!("the rule balances");
    };
    assert_eq!((balance.upper, balance.lower), (Some(80.0), Some(60.0)));
}

#[test]
fn e_store() {
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
fn media_service() {
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
fn halo_presence() {
    check(
        "halo-presence",
        "Player(p) in ref(Session(s).players) ⇒
             pin(s); colocate(p, s);
         server.cpu.perc > 80 or server.cpu.perc < 60 ⇒
         balance({Router}, cpu);",
    );
}
