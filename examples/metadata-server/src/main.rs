//! The Metadata Server as a program of its own.

fn main() -> std::process::ExitCode {
    metadata_server::app().main()
}
