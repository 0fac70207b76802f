//! Golden tests of the macros' diagnostics: each `.rs` file contains mistakes, its `.stderr` file the expected errors.

#[test]
fn mistakes_are_reported_at_the_right_place() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
