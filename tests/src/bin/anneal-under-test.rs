//! The `anneal` binary, built where tests of whole processes find it.

fn main() -> std::process::ExitCode {
    // What goes wrong where, from the environment: nothing where it says nothing.
    #[cfg(feature = "failpoints")]
    let _faults = fail::FailScenario::setup();
    anneal_cli::main()
}
