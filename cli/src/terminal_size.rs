//! The size of the terminal.

use std::io::IsTerminal as _;

/// Columns if the terminal does not report its size.
const DEFAULT_COLUMNS: usize = 80;
/// Rows if the terminal does not report its size.
const DEFAULT_ROWS: usize = 24;
/// Columns of a table that goes to a pipe or a file.
const PIPE_COLUMNS: usize = 120;

/// The size of a terminal in characters.
pub(crate) struct TerminalSize {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

/// The size of the controlling terminal. Without one: 80 columns and 24 rows.
pub(crate) fn size() -> TerminalSize {
    match crossterm::terminal::size() {
        Ok((columns, rows)) if columns > 0 && rows > 0 => TerminalSize {
            columns: columns.into(),
            rows: rows.into(),
        },
        _ => TerminalSize {
            columns: DEFAULT_COLUMNS,
            rows: DEFAULT_ROWS,
        },
    }
}

/// The columns of the terminal that shows standard output. None: it goes to a pipe or a file.
pub(crate) fn output_columns() -> Option<usize> {
    std::io::stdout().is_terminal().then(|| size().columns)
}

/// The columns of a table on standard output.
pub(crate) fn table_columns() -> usize {
    output_columns().unwrap_or(PIPE_COLUMNS)
}
