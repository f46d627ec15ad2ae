//! The `anneal` binary, built where tests of whole processes find it.

/// The allocator of the binary that is shipped: what a process takes of memory depends on it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    // What goes wrong where, from the environment: nothing where it says nothing.
    #[cfg(feature = "failpoints")]
    let _faults = fail::FailScenario::setup();
    anneal_cli::main()
}
