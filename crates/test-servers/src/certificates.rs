//! Certificates for TLS servers and their clients.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::process::BackendError;

/// The files of an authority for a test, of a server certificate and of a client certificate. They are deleted when
/// this is dropped.
#[derive(Debug)]
pub struct Certificates {
    directory: TempDir,
}

impl Certificates {
    /// Issues the certificates for a server at this address.
    pub fn make(address: Ipv4Addr) -> Result<Certificates, BackendError> {
        let made = || -> Result<Vec<(&str, String)>, rcgen::Error> {
            let authority_key = KeyPair::generate()?;
            let mut authority = CertificateParams::new(Vec::new())?;
            authority.distinguished_name.push(DnType::CommonName, "authority");
            authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            let certificate = authority.self_signed(&authority_key)?.pem();
            let issuer = Issuer::new(authority, &authority_key);
            let mut files = vec![("ca.pem", certificate)];
            let names = vec![address.to_string(), "localhost".to_owned()];
            for (file, key_file, names) in [
                ("server.pem", "server-key.pem", names),
                ("client.pem", "client-key.pem", vec!["client".to_owned()]),
            ] {
                let key = KeyPair::generate()?;
                let mut parameters = CertificateParams::new(names)?;
                parameters.distinguished_name.push(DnType::CommonName, file);
                // Some servers also call themselves.
                parameters.extended_key_usages =
                    vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
                files.push((file, parameters.signed_by(&key, &issuer)?.pem()));
                files.push((key_file, key.serialize_pem()));
            }
            Ok(files)
        };
        let files = made().map_err(|error| BackendError::Failed {
            reason: format!("certificates could not be made: {error}"),
            log: String::new(),
        })?;
        let directory = tempfile::tempdir()?;
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text)?;
        }
        Ok(Certificates { directory })
    }

    /// The authority's certificate.
    pub fn authority(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// The certificate of a client.
    pub fn client(&self) -> PathBuf {
        self.file("client.pem")
    }

    /// The key of the client's certificate.
    pub fn client_key(&self) -> PathBuf {
        self.file("client-key.pem")
    }

    pub(crate) fn server(&self) -> PathBuf {
        self.file("server.pem")
    }

    pub(crate) fn server_key(&self) -> PathBuf {
        self.file("server-key.pem")
    }

    fn file(&self, name: &str) -> PathBuf {
        let directory: &Path = self.directory.path();
        directory.join(name)
    }
}
