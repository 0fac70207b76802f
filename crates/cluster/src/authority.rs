//! A cluster's certificate authority. Only operators have its key, which signs the certificate of every member.

use std::io;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::security::{AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE, client_name, node_name};

/// The file of the authority's key.
const AUTHORITY_KEY_FILE: &str = "ca-key.pem";
/// The file of the cluster's name, which the authority's certificates carry.
const CLUSTER_FILE: &str = "cluster";
/// The longest name of a cluster or a member in a certificate.
const NAME_BYTES_MAX: usize = 64;

/// A cluster's certificate authority.
pub struct Authority {
    cluster: String,
    key: KeyPair,
    certificate: String,
}

/// The reason why an authority could not be created or used. Files may be incomplete.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file can't be read or written.
    #[error("{file}: {error}")]
    File {
        /// The file.
        file: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The directory already has an authority. It is not overwritten, because every member would need a new certificate.
    #[error("there is an authority in {0} already")]
    Exists(String),
    /// The directory has no authority.
    #[error("there is no authority in {0}: `elastin ca init {0} --cluster NAME` makes one")]
    Missing(String),
    /// A name is empty or too long for a certificate.
    #[error("a name must have 1 to {NAME_BYTES_MAX} bytes")]
    Name,
    /// A key or certificate is not valid.
    #[error("not a valid key or certificate: {0}")]
    Invalid(#[from] rcgen::Error),
}

impl Authority {
    /// Creates an authority for a cluster of this name.
    pub fn create(cluster: &str) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let certificate = parameters(cluster)?.self_signed(&key)?.pem();
        Ok(Self {
            cluster: cluster.to_owned(),
            key,
            certificate,
        })
    }

    /// Writes it to a directory, which [`Authority::read`] reads.
    pub fn write(&self, directory: &Path) -> Result<(), AuthorityError> {
        if directory.join(AUTHORITY_KEY_FILE).exists() {
            return Err(AuthorityError::Exists(directory.display().to_string()));
        }
        create_directory(directory)?;
        write(&directory.join(CLUSTER_FILE), &self.cluster)?;
        write(&directory.join(AUTHORITY_FILE), &self.certificate)?;
        write(&directory.join(AUTHORITY_KEY_FILE), &self.key.serialize_pem())
    }

    /// Reads it from a directory.
    pub fn read(directory: &Path) -> Result<Self, AuthorityError> {
        let key = read(&directory.join(AUTHORITY_KEY_FILE)).map_err(|error| match error {
            AuthorityError::File { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                AuthorityError::Missing(directory.display().to_string())
            }
            error => error,
        })?;
        Ok(Self {
            cluster: read(&directory.join(CLUSTER_FILE))?,
            key: KeyPair::from_pem(&key)?,
            certificate: read(&directory.join(AUTHORITY_FILE))?,
        })
    }

    /// Issues a certificate for a node or a client. Writes it to a directory with its key and the authority's certificate, which
    /// is all that the member needs.
    pub fn issue(&self, name: &str, node: bool, directory: &Path) -> Result<(), AuthorityError> {
        let host = if node {
            node_name(&self.cluster)
        } else {
            client_name(&self.cluster)
        };
        let mut parameters = CertificateParams::new(vec![host])?;
        parameters.distinguished_name = distinguished_name(name)?;
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if node {
            parameters.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        let key = KeyPair::generate()?;
        let issuer = Issuer::new(self::parameters(&self.cluster)?, &self.key);
        let certificate = parameters.signed_by(&key, &issuer)?;
        create_directory(directory)?;
        write(&directory.join(AUTHORITY_FILE), &self.certificate)?;
        write(&directory.join(CERTIFICATE_FILE), &certificate.pem())?;
        write(&directory.join(KEY_FILE), &key.serialize_pem())
    }
}

/// The parameters of an authority's own certificate. They must not change, because issued certificates refer to them.
fn parameters(cluster: &str) -> Result<CertificateParams, AuthorityError> {
    let mut parameters = CertificateParams::new(Vec::new())?;
    parameters.distinguished_name = distinguished_name(cluster)?;
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(parameters)
}

fn distinguished_name(name: &str) -> Result<DistinguishedName, AuthorityError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(AuthorityError::Name);
    }
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    Ok(distinguished)
}

fn file_error(file: &Path) -> impl FnOnce(io::Error) -> AuthorityError {
    let file = file.display().to_string();
    move |error| AuthorityError::File { file, error }
}

fn create_directory(directory: &Path) -> Result<(), AuthorityError> {
    std::fs::create_dir_all(directory).map_err(file_error(directory))
}

fn read(file: &Path) -> Result<String, AuthorityError> {
    std::fs::read_to_string(file).map_err(file_error(file))
}

/// Writes a file that only this user can read.
fn write(file: &Path, text: &str) -> Result<(), AuthorityError> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(file);
    opened
        .and_then(|mut opened| opened.write_all(text.as_bytes()))
        .map_err(file_error(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Certificates;

    #[test]
    fn a_stored_authority_issues_for_the_same_cluster() {
        let directory = tempfile::tempdir().unwrap();
        let (ca, member) = (directory.path().join("ca"), directory.path().join("member"));
        let missing = Authority::read(&ca).err();
        assert!(matches!(missing, Some(AuthorityError::Missing(_))), "{missing:?}");
        Authority::create("my cluster").unwrap().write(&ca).unwrap();
        Authority::read(&ca).unwrap().issue("server-1", true, &member).unwrap();
        Certificates::read(&member, "my cluster").unwrap();
        let again = Authority::create("my cluster").unwrap().write(&ca);
        assert!(matches!(again, Err(AuthorityError::Exists(_))));
        assert!(matches!(Authority::create("").err(), Some(AuthorityError::Name)));
        let error = Certificates::read(&ca, "my cluster").unwrap_err().to_string();
        assert!(error.contains("certificate.pem can't be used"), "{error}");
    }
}
