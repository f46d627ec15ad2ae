//! The `anneal` binary.

fn main() -> std::process::ExitCode {
    anneal_cli::main()
}
