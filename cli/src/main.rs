//! The `anneal` binary.

/// Calls allocate much and briefly: with this one they take a twelfth (appends) to a fifth (contexts) less of the processor than
/// with glibc's (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    anneal_cli::main()
}
