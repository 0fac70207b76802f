//! The program whose processes are the servers of clusters in tests.

fn main() -> std::process::ExitCode {
    elastin_testkit::app().main()
}
