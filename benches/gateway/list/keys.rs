//! The keys of the list's measurements: 32 bytes that share no long beginnings, in the order of their numbers.

use std::net::SocketAddr;

use base64_simd::STANDARD;

use crate::fill;

/// The order in which keys are put is the same in every run, for every server.
const ORDER_SEED: u64 = 6;

/// Keys are told by their numbers, below this.
pub(crate) const KEYS_MAX: usize = 100_000_000;

/// The key of a number, in base64. Key order is the order of numbers.
pub(crate) fn key(number: usize) -> String {
    let mut random = fastrand::Rng::with_seed(number as u64);
    let text = format!("{number:08}{:024x}", random.u128(..) >> 32);
    STANDARD.encode_to_string(text)
}

/// A value of that many bytes, in base64.
pub(crate) fn value(number: usize, bytes: usize) -> String {
    STANDARD.encode_to_string(format!("{number:0bytes$}"))
}

/// Puts all keys below `keys`, in no order.
pub(crate) fn fill(address: SocketAddr, keys: usize, value_bytes: usize) {
    let mut order: Vec<u32> = (0..keys as u32).collect();
    fastrand::Rng::with_seed(ORDER_SEED).shuffle(&mut order);
    fill::txns(address, keys, move |number| {
        let number = order[number] as usize;
        fill::put_op(&key(number), &value(number, value_bytes))
    });
}
