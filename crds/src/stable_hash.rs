//! A hash that never changes (FNV-1a), for names and divisions that must not depend on the version of who makes them.

/// The hash of these bytes.
pub(crate) fn hash_fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}
