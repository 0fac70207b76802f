//! Golden files of encodings. Nodes of two builds work in one cluster during an upgrade, so encodings must not change by
//! accident: tests compare them with files in git.
//!
//! With `ELASTIN_WIRE=write` in the environment the files are rewritten.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Defines a function that returns a named sample of every variant of an enum. A pattern precedes each sample, so that a
/// variant without a sample does not compile.
#[macro_export]
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
                assert_eq!(name_of(sample), *name, "the sample is of another variant");
            }
            samples
        }
    };
}

/// Whether the files are to be rewritten.
pub fn rewrites() -> bool {
    std::env::var_os("ELASTIN_WIRE").is_some_and(|mode| mode == "write")
}

/// Encodes a value as nodes send it.
///
/// # Panics
/// If the encoding does not survive a round trip.
pub fn encoded<T: Serialize + DeserializeOwned>(value: &T) -> Vec<u8> {
    let bytes = postcard::to_stdvec(value).expect("samples are plain data");
    let decoded: T = postcard::from_bytes(&bytes).expect("an encoded sample can be decoded");
    assert_eq!(postcard::to_stdvec(&decoded).expect("samples are plain data"), bytes);
    bytes
}

/// One line of a golden file.
pub fn line(name: &str, bytes: &[u8]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name}: {hex}\n")
}

/// Compares lines with those of a file of the tested package; cargo runs tests in that package's directory.
///
/// # Panics
/// If a line differs, is missing or is new.
pub fn check(file: &str, lines: &[String]) {
    let file = Path::new(file);
    let now: String = lines.concat();
    if rewrites() {
        std::fs::write(file, &now).expect("the golden file can be written");
    }
    let golden = std::fs::read_to_string(file).expect("the golden file is in git");
    for (now, before) in now.lines().zip(golden.lines()) {
        assert_eq!(
            now,
            before,
            "{} differs: nodes of other builds could not decode it",
            file.display()
        );
    }
    assert_eq!(now.lines().count(), golden.lines().count(), "{}", file.display());
}
