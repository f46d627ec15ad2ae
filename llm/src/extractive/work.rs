//! Counts bytes looked at, in this crate's own tests only: they prove that work grows with the input, not faster.

#[cfg(test)]
thread_local! {
    static BYTES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Notes that about `bytes` bytes were looked at.
#[cfg(test)]
pub(crate) fn tick(bytes: usize) {
    BYTES.with(|sum| sum.set(sum.get() + bytes as u64));
}

/// Notes nothing outside tests.
#[cfg(not(test))]
#[inline]
pub(crate) const fn tick(_bytes: usize) {}

/// Bytes looked at on this thread since the last call.
#[cfg(test)]
pub(crate) fn take() -> u64 {
    BYTES.with(|sum| sum.replace(0))
}
