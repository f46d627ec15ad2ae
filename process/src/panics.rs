//! Reports panics without the content of messages. A report holds the place, and the panic's text
//! only if it is a literal of the program. A formatted text is left out, because it may quote
//! content: the standard library quotes a string that is sliced within a character.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::Write as _,
    panic::PanicHookInfo,
};

use tracing::{dispatcher, error};

/// Installs a panic hook that reports every panic of this process, in the log or, before the log is
/// set up, on standard error. The report leaves out a formatted text.
pub fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic| {
        let report = describe(panic);
        if dispatcher::has_been_set() {
            error!("{report}");
        } else {
            // Standard error may be closed.
            let _ = writeln!(std::io::stderr(), "{report}");
        }
    }));
}

/// The report of a panic: thread, place, message if it is a literal, and backtrace if
/// `RUST_BACKTRACE` asks for one.
fn describe(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let place = panic
        .location()
        .map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    let message = panic
        .payload()
        .downcast_ref::<&'static str>()
        .copied()
        .unwrap_or("(text left out, it may quote content)");
    let report = format!(
        "a thread ({}) panicked at {place}: {message}",
        thread.name().unwrap_or("without a name")
    );
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => format!("{report}\n{backtrace}"),
        _ => report,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{catch_unwind, set_hook, take_hook},
        sync::{Arc, Mutex},
    };

    use super::*;

    /// The report of the panic of `work`.
    fn report_of(work: fn()) -> String {
        let report = Arc::<Mutex<String>>::default();
        let written = Arc::clone(&report);
        let previous_hook = take_hook();
        set_hook(Box::new(move |panic| {
            *written.lock().expect("the lock is not poisoned") = describe(panic);
        }));
        let panicked = catch_unwind(work).is_err();
        set_hook(previous_hook);
        assert!(panicked);
        report.lock().expect("the lock is not poisoned").clone()
    }

    #[test]
    fn a_panic_report_has_place_and_literal_but_no_content() {
        let report = report_of(|| panic!("a bug"));
        assert!(
            report.contains("panics.rs:") && report.contains("a bug"),
            "{report}"
        );
        // The standard library quotes a text that is sliced within a character.
        let report = report_of(|| {
            let content = std::hint::black_box("gr\u{fc}n".to_owned());
            assert!(!content[..3].is_empty());
        });
        assert!(
            report.contains("panicked at") && !report.contains("gr"),
            "{report}"
        );
    }
}
