//! Restores the terminal when a signal ends the process.

use std::io;

use crossterm::{
    cursor::Show,
    event::DisableBracketedPaste,
    execute,
    style::Print,
    terminal::{disable_raw_mode, is_raw_mode_enabled},
};
use tokio::signal::unix::{SignalKind, signal};

/// On SIGTERM and SIGHUP, restores the terminal and ends the process with the usual exit code. The
/// line editor switches the terminal to raw mode, in which typed characters are not shown.
pub(super) fn restore_terminal_on_signals() -> io::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::hangup()] {
        let mut signals = signal(kind)?;
        tokio::spawn(async move {
            if signals.recv().await.is_some() {
                restore_terminal();
                std::process::exit(128 + kind.as_raw_value());
            }
        });
    }
    Ok(())
}

/// Undoes the changes of the line editor. Errors are ignored: if the terminal is gone, they cannot
/// be reported.
fn restore_terminal() {
    if is_raw_mode_enabled().unwrap_or(false) {
        let _ = execute!(io::stderr(), DisableBracketedPaste, Show, Print("\r\n"));
        let _ = disable_raw_mode();
    }
}
