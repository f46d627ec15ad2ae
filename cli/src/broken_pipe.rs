//! Ends the process without an error message when the reader of standard output has closed it, as
//! in `anneal context ID | head`. The signal SIGPIPE stays ignored: it would also end the process
//! when a network peer closes its connection.

use std::io::{self, ErrorKind, Stdout, Write};

/// The exit code that a shell reports for a program that SIGPIPE has ended (128 + SIGPIPE).
const SIGPIPE_EXIT_CODE: i32 = 141;

/// Installs a panic hook, which ends the process without a message if a `println!` panicked because
/// standard output is closed.
pub(crate) fn exit_on_closed_stdout() {
    let previous_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let message = panic.payload_as_str().unwrap_or_default();
        if message.starts_with("failed printing to stdout") && message.contains("Broken pipe") {
            std::process::exit(SIGPIPE_EXIT_CODE);
        }
        previous_hook(panic);
    }));
}

/// Standard output for `write!`: a broken pipe ends the process.
pub(crate) struct ExitOnBrokenPipe(pub(crate) Stdout);

impl Write for ExitOnBrokenPipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).inspect_err(exit_if_broken_pipe)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().inspect_err(exit_if_broken_pipe)
    }
}

fn exit_if_broken_pipe(error: &io::Error) {
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(SIGPIPE_EXIT_CODE);
    }
}
