//! The binary `anneal` as a binary of this package. Tests find its path in
//! `CARGO_BIN_EXE_anneal-under-test`, and it has failpoints if the feature `failpoints` is
//! on.

/// The same allocator as in the shipped binary, because tests measure the memory of processes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    // Reads the active failpoints from the environment. None is active if the variable is not set.
    #[cfg(feature = "failpoints")]
    let _faults = fail::FailScenario::setup();
    anneal_cli::main()
}
