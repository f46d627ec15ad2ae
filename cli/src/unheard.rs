//! Output that nobody reads any more: `anneal context ID | head` is no failure. The signal that other programs die of stays
//! ignored, or a peer who hangs up would end us too.

use std::io::{self, ErrorKind, Stdout, Write};

/// What a shell says of a program that ended so (128 + SIGPIPE).
const UNHEARD: i32 = 141;

/// From now on, what is printed to nobody ends the process without a word.
pub(crate) fn end_with_the_reader() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload_as_str().unwrap_or_default();
        if said.starts_with("failed printing to stdout") && said.contains("Broken pipe") {
            std::process::exit(UNHEARD);
        }
        tell(panic);
    }));
}

/// Standard output for what is written there, and not printed: the same holds for it.
pub(crate) struct Heard(pub(crate) Stdout);

impl Write for Heard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).inspect_err(end)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().inspect_err(end)
    }
}

fn end(error: &io::Error) {
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(UNHEARD);
    }
}
