//! Tests whose tool is not installed. They are skipped at a developer's machine; in the gate, which
//! installs the tools first, they fail.

/// Prints that a test is skipped, and why. Panics if `ANNEAL_GATE` is set, as the gate sets it.
#[track_caller]
pub fn skip_outside_gate(reason: &str) {
    assert!(
        std::env::var_os("ANNEAL_GATE").is_none(),
        "the gate must not skip this test: {reason}"
    );
    println!("skipped: {reason}");
}
