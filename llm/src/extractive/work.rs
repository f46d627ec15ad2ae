//! Counts the bytes that are read. Only the unit tests of this crate count them, to check that the
//! work is linear.

#[cfg(test)]
thread_local! {
    static BYTES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts about `bytes` bytes as read.
#[cfg(test)]
pub(crate) fn tick(bytes: usize) {
    BYTES.with(|sum| sum.set(sum.get() + bytes as u64));
}

/// Does nothing outside of tests.
#[cfg(not(test))]
#[inline]
pub(crate) const fn tick(_bytes: usize) {}

/// Bytes read on this thread since the last call.
#[cfg(test)]
pub(crate) fn take() -> u64 {
    BYTES.with(|sum| sum.replace(0))
}
