//! Restores the terminal when a signal ends the process.

use std::io;

use crossterm::{
    cursor::Show,
    execute,
    style::Print,
    terminal::{disable_raw_mode, is_raw_mode_enabled},
};
use rustix::termios::Termios;
use tokio::signal::unix::{SignalKind, signal};

use super::quiet_input::restore_mode;

/// On SIGTERM, SIGHUP and SIGQUIT, sets this mode of the terminal and ends the process with the
/// usual exit code. The chat and the line editor switch the terminal to modes in which typed
/// characters are not shown.
pub(super) fn restore_terminal_on_signals(mode: &Termios) -> io::Result<()> {
    for kind in [
        SignalKind::terminate(),
        SignalKind::hangup(),
        SignalKind::quit(),
    ] {
        let mut signals = signal(kind)?;
        let mode = mode.clone();
        tokio::spawn(async move {
            if signals.recv().await.is_some() {
                restore_terminal(&mode);
                std::process::exit(128 + kind.as_raw_value());
            }
        });
    }
    Ok(())
}

/// Undoes the changes of the line editor and then those of the chat. Errors are ignored: if the
/// terminal is gone, they cannot be reported.
fn restore_terminal(mode: &Termios) {
    if is_raw_mode_enabled().unwrap_or(false) {
        let _ = execute!(io::stderr(), Show, Print("\r\n"));
        let _ = disable_raw_mode();
    }
    restore_mode(mode);
}
