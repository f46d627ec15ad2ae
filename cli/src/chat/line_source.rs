//! The source of lines: a line editor, or standard input.

use std::{io, mem};

use super::{editor::Editor, screen::Screen};

pub(super) enum LineSource {
    /// A line editor. None only while a line is being edited.
    Editor(Option<Box<Editor>>),
    /// Standard input, without editing.
    StandardInput,
}

impl LineSource {
    /// Reads the next line; None at the end of the input. An editor shows the title in its prompt.
    pub(super) async fn next(&mut self, title: String) -> io::Result<Option<String>> {
        match self {
            Self::Editor(slot) => {
                let editor = mem::take(slot);
                let (editor, line) = run_blocking(move || {
                    let mut editor = editor;
                    let line = editor
                        .as_mut()
                        .map_or(Ok(None), |editor| editor.read(&title));
                    (editor, line)
                })
                .await?;
                *slot = editor;
                line
            }
            Self::StandardInput => run_blocking(read_plain_line).await?,
        }
    }

    /// Asks the person whether to print the next page. Without an editor, returns true at once.
    pub(super) async fn confirm_next_page(
        &self,
        question: String,
        screen: &Screen,
    ) -> io::Result<bool> {
        let style = screen.style;
        match self {
            Self::Editor(_) => {
                run_blocking(move || super::editor::confirm(&question, style)).await?
            }
            Self::StandardInput => Ok(true),
        }
    }
}

/// Runs a blocking call on a blocking thread.
async fn run_blocking<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(call)
        .await
        .map_err(io::Error::other)
}

/// Reads a line of standard input. A backslash at the end of a line continues the text on the next
/// line. Invalid UTF-8 is replaced.
fn read_plain_line() -> io::Result<Option<String>> {
    let mut stdin = io::stdin().lock();
    let mut text = String::new();
    loop {
        let mut line = Vec::new();
        if io::BufRead::read_until(&mut stdin, b'\n', &mut line)? == 0 {
            return Ok((!text.is_empty()).then_some(text));
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches(['\n', '\r']);
        match line.strip_suffix('\\') {
            Some(before) => {
                text.push_str(before);
                text.push('\n');
            }
            None => return Ok(Some(text + line)),
        }
    }
}
