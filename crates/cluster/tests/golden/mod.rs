//! Encodings, compared with files in git: nodes of two builds work in one cluster while it is upgraded, so they must not change by
//! accident. Other crates' tests have this file as a module too.
//!
//! With `ELASTIN_WIRE=write` in the environment the files are written anew.

#![allow(dead_code, unused_macros, unused_imports, reason = "each test uses what it needs")]

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Makes a function that gives a sample of every variant of an enum, with a name. Each sample has the pattern of its variant
/// before it, so that a variant without a sample does not compile.
macro_rules! samples {
    (fn $samples:ident() -> $of:ty { $($name:literal: $pattern:pat => $sample:expr,)+ }) => {
        fn $samples() -> Vec<(&'static str, $of)> {
            fn name_of(value: &$of) -> &'static str {
                match value {
                    $($pattern => $name,)+
                }
            }
            let samples: Vec<(&'static str, $of)> = vec![$(($name, $sample),)+];
            for (name, sample) in &samples {
                assert_eq!(name_of(sample), *name, "a sample is of its own kind");
            }
            samples
        }
    };
}
pub(crate) use samples;

/// Whether the files are to be written anew.
pub(crate) fn writes() -> bool {
    std::env::var_os("ELASTIN_WIRE").is_some_and(|what| what == "write")
}

/// A value as nodes send it. It must survive that.
pub(crate) fn encoded<T: Serialize + DeserializeOwned>(value: &T) -> Vec<u8> {
    let bytes = postcard::to_stdvec(value).expect("it is plain data");
    let decoded: T = postcard::from_bytes(&bytes).expect("what was encoded can be decoded");
    assert_eq!(postcard::to_stdvec(&decoded).expect("it is plain data"), bytes);
    bytes
}

/// A line of the file.
pub(crate) fn line(name: &str, bytes: &[u8]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name}: {hex}\n")
}

/// Compares lines with those of a file, by its path in this crate.
pub(crate) fn check(file: &str, lines: &[String]) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let now: String = lines.concat();
    if writes() {
        std::fs::write(&file, &now).expect("the file can be written");
    }
    let kept = std::fs::read_to_string(&file).expect("the file is kept in git");
    for (now, before) in now.lines().zip(kept.lines()) {
        assert_eq!(
            now,
            before,
            "{} is otherwise: nodes of another build would not understand it",
            file.display()
        );
    }
    assert_eq!(now.lines().count(), kept.lines().count(), "{}", file.display());
}
