//! The line editor: history, completion, messages of several lines.

use std::{
    borrow::Cow,
    fs::{self, OpenOptions},
    io,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use reedline::{
    Color, ColumnarMenu, Completer, CompletionResult, DefaultHinter, EditCommand, Emacs,
    FileBackedHistory, KeyCode, KeyModifiers, Keybindings, MenuBuilder as _, Prompt,
    PromptEditMode, PromptHistorySearch, Reedline, ReedlineEvent, ReedlineMenu, Signal, Span,
    Suggestion, ValidationResult, Validator, default_emacs_keybindings,
};

use super::{
    parse_line::COMMANDS,
    sanitized_editor::{SanitizedHistory, SanitizedKeys},
};
use crate::{columns::clipped, terminal_style::TerminalStyle};

/// Most lines in the history file.
const HISTORY_LINES: usize = 1_000;
/// Most columns of the title in the prompt.
const PROMPT_TITLE_COLUMNS: usize = 24;
/// The name of the completion menu in the line editor.
const MENU: &str = "completions";

/// The titles that Tab completes after /switch.
pub(super) type Titles = Arc<Mutex<Vec<String>>>;

pub(super) struct Editor {
    reedline: Reedline,
    /// The texts that ended with a backslash when Enter was pressed, so that Enter began a new
    /// line.
    continued: Arc<Mutex<Vec<String>>>,
}

impl Editor {
    /// An editor with its history in this file; without history if None.
    pub(super) fn new(
        history: Option<&Path>,
        titles: Titles,
        style: TerminalStyle,
    ) -> io::Result<Self> {
        let continued = Arc::<Mutex<Vec<String>>>::default();
        let menu = ColumnarMenu::default()
            .with_name(MENU)
            .with_columns(2)
            .with_column_padding(2);
        let reedline = Reedline::create()
            .with_ansi_colors(style.has_colors())
            .with_edit_mode(Box::new(SanitizedKeys(Emacs::new(key_bindings()))))
            .with_validator(Box::new(ContinueAfterBackslash(Arc::clone(&continued))))
            .with_completer(Box::new(Completions(titles)))
            .with_menu(ReedlineMenu::EngineCompleter(Box::new(menu)))
            .with_quick_completions(true)
            .with_partial_completions(true);
        // Without colors, a hint would look like typed text.
        let reedline = match style {
            TerminalStyle::Colored => reedline.with_hinter(Box::new(
                DefaultHinter::default().with_style(Color::DarkGray.normal()),
            )),
            TerminalStyle::Plain => reedline.disable_hints(),
        };
        let reedline = match history {
            Some(file) => {
                create_private_file(file)?;
                let file_history = FileBackedHistory::with_file(HISTORY_LINES, file.to_owned())
                    .map_err(io::Error::other)?;
                reedline.with_history(Box::new(SanitizedHistory(file_history)))
            }
            None => reedline,
        };
        Ok(Self {
            reedline,
            continued,
        })
    }

    /// Reads the next line, with the title in the prompt; None at Ctrl-D. Ctrl-C clears the line.
    pub(super) fn read(&mut self, title: &str) -> io::Result<Option<String>> {
        let prompt = LinePrompt {
            text: clipped(title, PROMPT_TITLE_COLUMNS),
            sign: "> ",
        };
        loop {
            match self.reedline.read_line(&prompt).map_err(io::Error::other)? {
                Signal::Success(text) => {
                    // Writes the history now, so that it has the line even if the process is
                    // killed.
                    self.reedline.sync_history()?;
                    return Ok(Some(join_continued(&text, &self.take_continued())));
                }
                Signal::CtrlD => return Ok(None),
                _ => drop(self.take_continued()),
            }
        }
    }

    fn take_continued(&self) -> Vec<String> {
        let mut continued = self
            .continued
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *continued)
    }
}

/// Asks whether to continue. Enter and the space bar mean yes; q, Ctrl-C and Ctrl-D mean no.
pub(super) fn confirm(question: &str, style: TerminalStyle) -> io::Result<bool> {
    let mut keys = default_emacs_keybindings();
    keys.add_binding(
        KeyModifiers::NONE,
        KeyCode::Char(' '),
        ReedlineEvent::Submit,
    );
    keys.add_binding(KeyModifiers::NONE, KeyCode::Char('q'), ReedlineEvent::CtrlD);
    let mut editor = Reedline::create()
        .with_ansi_colors(style.has_colors())
        .with_edit_mode(Box::new(SanitizedKeys(Emacs::new(keys))))
        .disable_hints();
    let prompt = LinePrompt {
        text: question.to_owned(),
        sign: " ",
    };
    Ok(matches!(
        editor.read_line(&prompt).map_err(io::Error::other)?,
        Signal::Success(_)
    ))
}

/// The history file: in `XDG_STATE_HOME`, else below `HOME`; None if neither is an absolute path.
pub(super) fn history_file() -> Option<PathBuf> {
    let folder = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state_folder =
        folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(state_folder.join("anneal").join("chat-history"))
}

/// Creates the file with mode 0600, and sets this mode if the file exists.
fn create_private_file(file: &Path) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(file)?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600))
}

fn key_bindings() -> Keybindings {
    let mut keys = default_emacs_keybindings();
    keys.add_binding(
        KeyModifiers::ALT,
        KeyCode::Enter,
        ReedlineEvent::Edit(vec![EditCommand::InsertNewline]),
    );
    let complete = vec![
        ReedlineEvent::Menu(MENU.to_owned()),
        ReedlineEvent::MenuNext,
    ];
    keys.add_binding(
        KeyModifiers::NONE,
        KeyCode::Tab,
        ReedlineEvent::UntilFound(complete),
    );
    keys.add_binding(
        KeyModifiers::SHIFT,
        KeyCode::BackTab,
        ReedlineEvent::MenuPrevious,
    );
    keys
}

/// Removes the backslashes that were typed to continue a line. Pasted backslashes stay. `continued`
/// holds the texts that ended with a backslash when Enter was pressed.
fn join_continued(text: &str, continued: &[String]) -> String {
    let mut ends: Vec<usize> = continued
        .iter()
        .filter(|before| {
            text.strip_prefix(before.as_str())
                .is_some_and(|rest| rest.starts_with('\n'))
        })
        .map(String::len)
        .collect();
    ends.sort_unstable();
    ends.dedup();
    let mut joined = text.to_owned();
    // Each end is the offset behind a backslash. The last backslash is removed first, so that the
    // offsets of the others stay right.
    for end in ends.into_iter().rev() {
        joined.remove(end - 1);
    }
    joined
}

/// Continues a line that ends with a backslash. Records the text at that moment.
struct ContinueAfterBackslash(Arc<Mutex<Vec<String>>>);

impl Validator for ContinueAfterBackslash {
    fn validate(&self, line: &str) -> ValidationResult {
        if line.ends_with('\\') {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(line.to_owned());
            ValidationResult::Incomplete
        } else {
            ValidationResult::Complete
        }
    }
}

/// Completes commands, and titles after /switch.
struct Completions(Titles);

impl Completer for Completions {
    fn complete(&mut self, line: &str, position: usize) -> CompletionResult {
        let typed = line.get(..position).unwrap_or(line);
        let titles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let suggestions: Vec<Suggestion> = completions(typed, &titles)
            .into_iter()
            .map(|(start, value)| Suggestion {
                // A completion at offset 0 is a command; titles start after /switch.
                append_whitespace: start == 0,
                value,
                span: Span::new(start, typed.len()),
                ..Suggestion::default()
            })
            .collect();
        CompletionResult::fresh(suggestions)
    }
}

/// The completions, each with the offset in `typed` at which it replaces the text.
fn completions(typed: &str, titles: &[String]) -> Vec<(usize, String)> {
    if let Some(beginning) = typed.strip_prefix("/switch ") {
        let wanted = beginning.to_lowercase();
        let fitting = titles
            .iter()
            .filter(|title| title.to_lowercase().starts_with(&wanted));
        return fitting
            .map(|title| (typed.len() - beginning.len(), title.clone()))
            .collect();
    }
    if !typed.starts_with('/') {
        return Vec::new();
    }
    let fitting = COMMANDS
        .iter()
        .filter(|command| command.name.starts_with(typed));
    fitting
        .map(|command| (0, command.name.to_owned()))
        .collect()
}

/// The prompt: a text and a sign.
struct LinePrompt {
    text: String,
    sign: &'static str,
}

impl Prompt for LinePrompt {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.text)
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed(self.sign)
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("| ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!(" (search: {}) ", search.term))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_continuation_backslashes_are_removed_and_pasted_ones_stay() {
        let continued = ["one\\".to_owned(), "one\\\ntwo\\".to_owned()];
        assert_eq!(
            join_continued("one\\\ntwo\\\nthree", &continued),
            "one\ntwo\nthree"
        );
        assert_eq!(
            join_continued("curl \\\n  -X GET", &[]),
            "curl \\\n  -X GET"
        );
        assert_eq!(
            join_continued("another\\\nline", &continued),
            "another\\\nline",
            "no recorded text is the start of this one"
        );
    }

    #[test]
    fn tab_completes_commands_and_the_titles_of_conversations() {
        let titles = ["My project".to_owned(), "港口的渡轮".to_owned()];
        assert_eq!(completions("/sw", &titles), [(0, "/switch".to_owned())]);
        assert_eq!(
            completions("/switch MY p", &titles),
            [(8, "My project".to_owned())]
        );
        assert_eq!(
            completions("/switch 港", &titles),
            [(8, "港口的渡轮".to_owned())]
        );
        assert_eq!(completions("/", &titles).len(), COMMANDS.len());
        assert_eq!(completions("my", &titles), []);
        assert_eq!(completions("/list my", &titles), []);
    }

    #[test]
    fn only_the_owner_can_read_the_history_file() {
        let folder =
            std::env::temp_dir().join(format!("anneal-history-{}", uuid::Uuid::new_v4().simple()));
        let file = folder.join("anneal").join("chat-history");
        let mode = || {
            fs::metadata(&file)
                .expect("the file exists")
                .permissions()
                .mode()
                & 0o777
        };
        create_private_file(&file).expect("creates the file");
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644))
            .expect("the mode can be changed");
        create_private_file(&file).expect("sets the mode");
        assert_eq!(mode(), 0o600);
        fs::remove_dir_all(&folder).expect("the folder can be removed");
    }
}
