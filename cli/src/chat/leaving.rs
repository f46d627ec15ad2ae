//! Leaving because somebody outside says so: the terminal is given back as it was found.

use std::io;

use crossterm::{
    cursor::Show,
    event::DisableBracketedPaste,
    execute,
    style::Print,
    terminal::{disable_raw_mode, is_raw_mode_enabled},
};
use tokio::signal::unix::{SignalKind, signal};

/// Ends the process at SIGTERM or SIGHUP, as they end any other, once the terminal is as it was: while a line is typed, it passes
/// every key on and shows none.
pub(super) fn on_signals() -> io::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::hangup()] {
        let mut signals = signal(kind)?;
        tokio::spawn(async move {
            if signals.recv().await.is_some() {
                give_back();
                std::process::exit(128 + kind.as_raw_value());
            }
        });
    }
    Ok(())
}

/// Ends what the line editor has begun. A terminal that has gone cannot be given back, and nobody is left to tell.
fn give_back() {
    if is_raw_mode_enabled().unwrap_or(false) {
        let _ = execute!(io::stderr(), DisableBracketedPaste, Show, Print("\r\n"));
        let _ = disable_raw_mode();
    }
}
