//! `elastin ca`: a cluster's certificate authority.

use std::path::PathBuf;

use clap::Subcommand;
use elastin::Authority;

use crate::output::print;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create the authority of a new cluster. Its key can issue certificates for members: keep it away from servers
    Init {
        /// The directory to write the authority to
        directory: PathBuf,
        /// The cluster's name, which is the name of its application
        #[arg(long)]
        cluster: String,
    },
    /// Issue a certificate: the directory that a server or client needs for `--certificates`
    Issue {
        /// The directory of the authority
        authority: PathBuf,
        /// The directory to write the certificate to
        directory: PathBuf,
        /// The name of the server or client
        #[arg(long)]
        name: String,
        /// Issue it for a client or operator, which must not act as a server
        #[arg(long)]
        client: bool,
    },
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Init { directory, cluster } => {
            Authority::create(cluster)?.write(directory)?;
            print(&format!("the authority of `{cluster}` is in {}\n", directory.display()));
        }
        Command::Issue {
            authority,
            directory,
            name,
            client,
        } => {
            Authority::read(authority)?.issue(name, !client, directory)?;
            print(&format!("the certificate of `{name}` is in {}\n", directory.display()));
        }
    }
    Ok(())
}
