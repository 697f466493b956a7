//! The reasons why bytes are not the packet they should be.

/// Bytes that are no such header, or a packet that cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("{what} needs {need} bytes, and there are {have}")]
    Truncated { what: &'static str, need: usize, have: usize },
    #[error("{what}: {why}")]
    Malformed { what: &'static str, why: &'static str },
    #[error("a frame of {size} bytes with FCS cannot be built: with these headers it has {min} to {max}")]
    Size {
        /// The size asked for, in bytes with FCS.
        size: usize,
        /// The least size, in bytes with FCS.
        min: usize,
        /// The largest size, in bytes with FCS.
        max: usize,
    },
    #[error("source {source_address} and destination {destination_address} are not of one IP version")]
    Families { source_address: std::net::IpAddr, destination_address: std::net::IpAddr },
    #[error("`{0}` is not a MAC address such as 02:00:00:00:00:01")]
    Mac(String),
}

/// The first `N` bytes as a header, and the rest.
pub(crate) fn split<'a, const N: usize>(
    bytes: &'a [u8],
    what: &'static str,
) -> Result<(&'a [u8; N], &'a [u8]), WireError> {
    bytes.split_first_chunk::<N>().ok_or(WireError::Truncated { what, need: N, have: bytes.len() })
}
