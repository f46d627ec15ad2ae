//! The `anneal` binary, built where tests of whole processes find it.

/// As in the real one: how much memory a process keeps is the allocator's doing.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    // What goes wrong where, from the environment: nothing where it says nothing.
    #[cfg(feature = "failpoints")]
    let _faults = fail::FailScenario::setup();
    anneal_cli::main()
}
