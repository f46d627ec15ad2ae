//! Where lines come from: a person at a terminal, or a pipe.

use std::{io, mem};

use super::{editor::Editor, screen::Screen};

/// The lines of a chat.
pub(super) enum Lines {
    /// Typed at a terminal. None only while a line is being typed.
    Typed(Option<Box<Editor>>),
    /// Read as they stand.
    Read,
}

impl Lines {
    /// The next line; none at the end.
    pub(super) async fn next(&mut self, title: String) -> io::Result<Option<String>> {
        match self {
            Self::Typed(place) => {
                let editor = mem::take(place);
                let (editor, line) = apart(move || {
                    let mut editor = editor;
                    let line = editor.as_mut().map_or(Ok(None), |editor| editor.read(&title));
                    (editor, line)
                })
                .await?;
                *place = editor;
                line
            }
            Self::Read => apart(plain).await?,
        }
    }

    /// Whether to print the next page; nobody is asked where nobody types.
    pub(super) async fn go_on(&self, question: String, screen: &Screen) -> io::Result<bool> {
        let paint = screen.paint;
        match self {
            Self::Typed(_) => apart(move || super::editor::go_on(&question, paint)).await?,
            Self::Read => Ok(true),
        }
    }
}

/// Waits on a thread of its own.
async fn apart<T: Send + 'static>(wait: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(wait).await.map_err(io::Error::other)
}

/// A line of standard input; one that ends with a backslash goes on in the next. What is not UTF-8 is replaced.
fn plain() -> io::Result<Option<String>> {
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
