//! The layout of rows in a file. A change here changes the file format.

use bytes::Bytes;
use elastin_protocol::store::StoreFailure;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The length of the checksum in front of a row's content.
const CHECKSUM_BYTES: usize = 4;

/// Prefixes raw bytes with their checksum. It covers the key too, so a row under a wrong key counts as damaged.
pub(crate) fn seal(key: &[u8], content: &[u8]) -> Vec<u8> {
    let mut row = Vec::with_capacity(CHECKSUM_BYTES + content.len());
    row.extend(checksum(key, content).to_le_bytes());
    row.extend(content);
    row
}

/// Verifies a row's checksum and returns its content.
pub(crate) fn unseal<'a>(table: &str, key: &[u8], row: &'a [u8]) -> Result<&'a [u8], StoreFailure> {
    match row.split_first_chunk::<CHECKSUM_BYTES>() {
        Some((sum, content)) if u32::from_le_bytes(*sum) == checksum(key, content) => Ok(content),
        _ => Err(damaged(table, key)),
    }
}

fn checksum(key: &[u8], content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key);
    hasher.update(content);
    hasher.finalize()
}

/// Encodes a value as a row.
pub(crate) fn encode(key: &[u8], value: &impl Serialize) -> Vec<u8> {
    let content = postcard::to_stdvec(value).expect("rows are plain data");
    seal(key, &content)
}

/// Decodes the value of a row.
pub(crate) fn decode<V: DeserializeOwned>(table: &str, key: &[u8], row: &[u8]) -> Result<V, StoreFailure> {
    let content = unseal(table, key, row)?;
    postcard::from_bytes(content).map_err(|_| damaged(table, key))
}

/// Returns the raw bytes of a row.
pub(crate) fn content(table: &str, key: &[u8], row: &[u8]) -> Result<Bytes, StoreFailure> {
    unseal(table, key, row).map(Bytes::copy_from_slice)
}

fn damaged(table: &str, key: &[u8]) -> StoreFailure {
    let reason = format!(
        "the row \"{}\" of table `{table}` fails its checksum",
        key.escape_ascii()
    );
    StoreFailure::Corrupt { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_format() {
        let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(seal(b"k", b"content")), "fe89fbac636f6e74656e74");
    }

    #[test]
    fn any_flipped_bit_is_detected() {
        let row = encode(b"key", &(7_u64, "text"));
        assert_eq!(decode::<(u64, String)>("t", b"key", &row), Ok((7, "text".into())));
        for bit in 0..row.len() * 8 {
            let mut bad = row.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(unseal("t", b"key", &bad), Err(StoreFailure::Corrupt { .. })));
        }
        assert!(unseal("t", b"other", &row).is_err());
        assert!(unseal("t", b"key", &row[..3]).is_err());
    }
}
