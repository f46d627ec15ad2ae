//! The `anneal` binary, built where tests of whole processes find it.

fn main() -> std::process::ExitCode {
    anneal_cli::main()
}
