//! Bad input never panics: randomly damaged policies go through parser, checker, formatter and the reader of compiled
//! files.
//!
//! `DAMAGE_ROUNDS=1000000 cargo test --release -p elastin-policy --test it bad_input` runs longer.

use elastin_policy::{
    Condition, DIAGNOSTICS_MAX, NESTING_MAX, Policy, SOURCE_BYTES_MAX, Scenarios, Syntax, compile, decode, format,
};

use crate::common::{self, Random};

/// Tokens that change the meaning of their surroundings.
const PIECES: [&str; 32] = [
    "(", ")", "{", "}", ";", ",", ".", ":", "@", "=>", "⇒", "<", ">=", "and", "or", "in", "true", "rule", "ref", "any",
    "server", "client", "balance", "pin(", "1e308", "-0.0", "/*", "*/", "//", "\n", "\u{feff}", "é",
];

fn rounds() -> usize {
    let wanted = std::env::var("DAMAGE_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok());
    wanted.unwrap_or(5_000)
}

fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.index(6) {
        let at = random.index(bytes.len() + 1);
        let end = (at + random.index(12)).min(bytes.len());
        match random.index(4) {
            0 => drop(bytes.drain(at..end)),
            1 => {
                let piece = PIECES[random.index(PIECES.len())];
                bytes.splice(at..at, piece.bytes());
            }
            2 => {
                let copy = bytes[at..end].to_vec();
                let to = random.index(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.index(256) as u8;
                }
            }
        }
    }
}

#[test]
fn damaged_policies_compile_or_are_rejected_without_panic() {
    let policies: Vec<String> = common::sources();
    let schema = common::schema();
    let own = "period 5 s; @priority(3) rule a: (Folder(f).call(File(g).read).count > 1 or g in ref(f.files)) and \
               client.call(f.open).perc < 50 => reserve(f, cpu); colocate(f, g); true => separate(File(a), Player(b));";
    let mut compiled_anyway = 0;
    for round in 0..rounds() {
        let mut random = Random::new(round as u64);
        let mut bytes = match random.index(policies.len() + 5) {
            index if index < policies.len() => policies[index].clone(),
            _ => own.to_string(),
        }
        .into_bytes();
        damage(&mut random, &mut bytes);
        let Ok(source) = decode("damaged.epl", &bytes) else {
            continue;
        };
        let syntax = Syntax::parse(&source);
        let text: String = syntax.tokens().iter().map(|token| token.span.text(&source)).collect();
        assert_eq!(text, source, "round {round}: the tree is lossless");
        syntax.mentions();
        match compile("damaged.epl", &source, &schema) {
            Ok(compiled) => {
                compiled_anyway += 1;
                compiled.warnings.render();
                let file = compiled.policy.to_file();
                assert_eq!(Policy::from_file(&file).as_ref(), Ok(&compiled.policy), "round {round}");
            }
            Err(diagnostics) => {
                assert!(diagnostics.has_errors(), "round {round}: {source}");
                assert!(!diagnostics.render().is_empty());
            }
        }
        if let Ok(formatted) = format("damaged.epl", &source) {
            assert_eq!(
                format("damaged.epl", &formatted).as_ref(),
                Ok(&formatted),
                "round {round}:\n{source}"
            );
        }
    }
    assert!(compiled_anyway > 0, "some damage leaves a policy whole");
}

#[test]
fn damaged_files_are_read_or_rejected_without_panic() {
    let tests = common::read("media-service.test.json");
    let (compiled, _, schema) = common::example("media-service");
    let file = compiled.policy.to_file();
    for round in 0..rounds() / 10 {
        let mut random = Random::new(round as u64);
        for original in [&file, &tests] {
            let mut bytes = original.clone().into_bytes();
            damage(&mut random, &mut bytes);
            let text = String::from_utf8_lossy(&bytes);
            if let Ok(policy) = Policy::from_file(&text) {
                // An accepted policy can be run.
                for case in &Scenarios::parse(&tests).unwrap().cases {
                    case.run(&policy, &schema).unwrap();
                }
            }
            if let Ok(scenarios) = Scenarios::parse(&text) {
                for case in &scenarios.cases {
                    let _ = case.snapshot(&schema);
                }
            }
        }
    }
}

/// A binary decoder follows any nesting, so `Condition` itself must limit it.
#[test]
fn too_deep_conditions_in_binary_form_are_rejected() {
    let allowed = 2 * NESTING_MAX + 2;
    for depth in [allowed, allowed + 1, 1_000_000, allowed] {
        // Each level is the third variant with a list of one part; the innermost is the first variant.
        let mut bytes = [2, 1].repeat(depth);
        bytes.push(0);
        let decoded = postcard::from_bytes::<Condition>(&bytes);
        assert_eq!(decoded.is_ok(), depth == allowed, "{depth}");
    }
}

/// Policies of the largest size, each a burden for one part of the compiler. All work is bounded, so they end soon.
#[test]
fn huge_policies_get_a_bounded_number_of_diagnostics() {
    let filled = |piece: &str| piece.repeat(SOURCE_BYTES_MAX / piece.len());
    let atoms = |joined: &str| {
        let parts: Vec<String> = (0..20_000).map(|value| format!("server.cpu.size > {value}")).collect();
        format!("{} => pin(Folder(f));", parts.join(joined))
    };
    let schema = common::schema();
    for source in [
        filled("true=>pin(Folder(f));server.cpu.perc>1=>reserve(Folder(f),cpu);"),
        filled("File(b)in ref(Folder(a).files)=>colocate(a,b);true=>separate(Folder(a),File(b));true=>pin(any(x));"),
        filled("server.cpu.perc>80 or server.cpu.perc<79=>balance({Folder,File,any},cpu);"),
        filled("true=>pin(Fulder(f));"),
        filled("#a"),
        filled(")"),
        filled("a.b.c"),
        filled("true=>x({a,a(b)},c)"),
        atoms(" and "),
        atoms(" or "),
    ] {
        let answer = match compile("huge.epl", &source, &schema) {
            Ok(compiled) => compiled.warnings,
            Err(diagnostics) => diagnostics,
        };
        assert!(!answer.is_empty() && answer.items().len() <= DIAGNOSTICS_MAX);
    }
}
