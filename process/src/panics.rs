//! What a process says of a panic: where it was, and why as far as the program's own text says. What is formatted into a panic's
//! message is left out, for it may be content: a text that is cut within a character is quoted there.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::Write as _,
    panic::PanicHookInfo,
};

use tracing::{dispatcher, error};

/// From now on every panic of this process is reported without what was formatted into its message: in the log, or on standard
/// error where there is no log.
pub fn report_without_content() {
    std::panic::set_hook(Box::new(|panic| {
        let said = describe(panic);
        if dispatcher::has_been_set() {
            error!("{said}");
        } else {
            // Nobody may be reading.
            let _ = writeln!(std::io::stderr(), "{said}");
        }
    }));
}

/// A panic in words: the thread, the place, the message where it is a literal, the backtrace where `RUST_BACKTRACE` asks for it.
fn describe(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    let message = panic.payload().downcast_ref::<&'static str>().copied().unwrap_or("its message may hold content");
    let said = format!("a thread ({}) panicked at {place}: {message}", thread.name().unwrap_or("without a name"));
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => format!("{said}\n{backtrace}"),
        _ => said,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{catch_unwind, set_hook, take_hook},
        sync::{Arc, Mutex},
    };

    use super::*;

    /// What is said of the panic of this work.
    fn said_of(work: fn()) -> String {
        let said = Arc::<Mutex<String>>::default();
        let noted = Arc::clone(&said);
        let before = take_hook();
        set_hook(Box::new(move |panic| *noted.lock().expect("nobody panicked") = describe(panic)));
        let panicked = catch_unwind(work).is_err();
        set_hook(before);
        assert!(panicked);
        said.lock().expect("nobody panicked").clone()
    }

    #[test]
    fn a_panic_tells_its_place_and_its_literal_and_no_content() {
        let said = said_of(|| panic!("a bug"));
        assert!(said.contains("panics.rs:") && said.contains("a bug"), "{said}");
        // As the standard library does it where a text is cut within a character: it quotes the text.
        let said = said_of(|| {
            let content = std::hint::black_box("gr\u{fc}n".to_owned());
            assert!(!content[..3].is_empty());
        });
        assert!(said.contains("panicked at") && !said.contains("gr"), "{said}");
    }
}
