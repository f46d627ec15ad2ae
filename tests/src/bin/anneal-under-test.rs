//! The `anneal` binary, built where tests of whole processes find it.

/// The allocator of the binary that is shipped: what a process takes of memory depends on it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    // Reads the active failpoints from the environment. None is active if the variable is not set.
    #[cfg(feature = "failpoints")]
    let _faults = fail::FailScenario::setup();
    anneal_cli::main()
}
