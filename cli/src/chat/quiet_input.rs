//! The terminal's mode while no line is edited: typed characters are not shown, and wait for the
//! line editor.

use std::io;

use crossterm::{
    event::{DisableBracketedPaste, EnableBracketedPaste},
    execute,
};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

/// Keeps input for the line editor until this is dropped. The terminal neither shows the input nor
/// collects it into lines, a carriage return stays one, and pasted text comes in brackets, so that
/// the editor reads later exactly what it would have read at once. Ctrl-C still sends SIGINT.
pub(super) struct QuietInput {
    /// The mode that is restored at the end.
    before: Termios,
    quiet: Termios,
}

impl QuietInput {
    /// Changes the mode of the terminal at standard input.
    pub(super) fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(
            LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::IEXTEN,
        );
        // Without this flag, Ctrl-C would discard what was typed before it.
        quiet.local_modes.insert(LocalModes::NOFLSH);
        quiet
            .input_modes
            .remove(InputModes::ICRNL | InputModes::INLCR | InputModes::IGNCR);
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        let begun = Self { before, quiet };
        begun.apply()?;
        Ok(begun)
    }

    /// Sets the mode again. A shell may have changed it while the process was suspended.
    pub(super) fn apply(&self) -> io::Result<()> {
        tcsetattr(io::stdin(), OptionalActions::Now, &self.quiet)?;
        execute!(io::stdout(), EnableBracketedPaste)
    }

    /// The mode before the change.
    pub(super) const fn previous_mode(&self) -> &Termios {
        &self.before
    }
}

impl Drop for QuietInput {
    fn drop(&mut self) {
        restore_mode(&self.before);
    }
}

/// Sets this mode, and turns bracketed paste off. Errors are ignored: if the terminal is gone, they
/// cannot be reported.
pub(super) fn restore_mode(mode: &Termios) {
    let _ = execute!(io::stderr(), DisableBracketedPaste);
    let _ = tcsetattr(io::stdin(), OptionalActions::Now, mode);
}
