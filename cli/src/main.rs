//! The `anneal` binary.

/// The allocator mimalloc: RPCs make many short-lived allocations. Compared with glibc's allocator,
/// this one saves a twelfth of an append's processor time and a fifth of a context's
/// (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    anneal_cli::main()
}
