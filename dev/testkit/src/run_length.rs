//! Chooses the length of tests that have a short form for the gate (`make test`) and a long one for
//! `make nightly`.

/// Returns `gate` in the gate, and `nightly` if `ANNEAL_NIGHTLY` is set, as `make nightly` sets it.
pub fn gate_or_nightly<T>(gate: T, nightly: T) -> T {
    if std::env::var_os("ANNEAL_NIGHTLY").is_some() {
        nightly
    } else {
        gate
    }
}
