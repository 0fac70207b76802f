//! The macros' errors: each file shows a mistake, and beside it stands what the compiler says.

#[test]
fn mistakes_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
