//! The line that a person edits: history, completion, several lines as one.

use std::{
    borrow::Cow,
    fs::{self, OpenOptions},
    io,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use reedline::{
    Color, ColumnarMenu, Completer, CompletionResult, DefaultHinter, EditCommand, Emacs, FileBackedHistory, KeyCode,
    KeyModifiers, Keybindings, MenuBuilder as _, Prompt, PromptEditMode, PromptHistorySearch, Reedline, ReedlineEvent,
    ReedlineMenu, Signal, Span, Suggestion, ValidationResult, Validator, default_emacs_keybindings,
};

use super::{
    columns::clipped,
    line::COMMANDS,
    typed::{Keys, Remembered},
};
use crate::paint::Paint;

/// Lines that the history remembers.
const HISTORY: usize = 1_000;
/// Columns of the title in the prompt.
const TITLE: usize = 24;
const MENU: &str = "completions";

/// Titles that Tab completes after /switch.
pub(super) type Titles = Arc<Mutex<Vec<String>>>;

/// A line editor.
pub(super) struct Editor {
    reedline: Reedline,
    /// What ended with a backslash when Enter was pressed: the line goes on.
    continued: Arc<Mutex<Vec<String>>>,
}

impl Editor {
    /// An editor that keeps its history in this file, if one is named.
    pub(super) fn new(history: Option<&Path>, titles: Titles, paint: Paint) -> io::Result<Self> {
        let continued = Arc::<Mutex<Vec<String>>>::default();
        let menu = ColumnarMenu::default().with_name(MENU).with_columns(2).with_column_padding(2);
        let reedline = Reedline::create()
            .use_bracketed_paste(true)
            .with_ansi_colors(paint.colours())
            .with_edit_mode(Box::new(Keys(Emacs::new(keys()))))
            .with_validator(Box::new(Backslash(Arc::clone(&continued))))
            .with_completer(Box::new(Completions(titles)))
            .with_menu(ReedlineMenu::EngineCompleter(Box::new(menu)))
            .with_quick_completions(true)
            .with_partial_completions(true);
        // A hint that is not dimmed looks as if it had been typed.
        let reedline = match paint {
            Paint::Coloured => {
                reedline.with_hinter(Box::new(DefaultHinter::default().with_style(Color::DarkGray.normal())))
            }
            Paint::Plain => reedline.disable_hints(),
        };
        let reedline = match history {
            Some(file) => {
                private(file)?;
                let kept = FileBackedHistory::with_file(HISTORY, file.to_owned()).map_err(io::Error::other)?;
                reedline.with_history(Box::new(Remembered(kept)))
            }
            None => reedline,
        };
        Ok(Self { reedline, continued })
    }

    /// The next line; none when the person leaves with Ctrl-D. Ctrl-C clears the line.
    pub(super) fn read(&mut self, title: &str) -> io::Result<Option<String>> {
        let prompt = Question { text: clipped(title, TITLE), sign: "> " };
        loop {
            match self.reedline.read_line(&prompt).map_err(io::Error::other)? {
                Signal::Success(text) => {
                    // Whatever ends this process later, what was typed is in the history.
                    self.reedline.sync_history()?;
                    let mut continued = self.continued.lock().unwrap_or_else(PoisonError::into_inner);
                    return Ok(Some(joined(&text, &std::mem::take(&mut *continued))));
                }
                Signal::CtrlD => return Ok(None),
                _ => {}
            }
        }
    }
}

/// Asks whether to go on; a blank or Enter says so, anything else that ends a line does not.
pub(super) fn go_on(question: &str, paint: Paint) -> io::Result<bool> {
    let mut keys = default_emacs_keybindings();
    keys.add_binding(KeyModifiers::NONE, KeyCode::Char(' '), ReedlineEvent::Submit);
    keys.add_binding(KeyModifiers::NONE, KeyCode::Char('q'), ReedlineEvent::CtrlD);
    let mut asking = Reedline::create()
        .with_ansi_colors(paint.colours())
        .with_edit_mode(Box::new(Keys(Emacs::new(keys))))
        .disable_hints();
    let prompt = Question { text: question.to_owned(), sign: " " };
    Ok(matches!(asking.read_line(&prompt).map_err(io::Error::other)?, Signal::Success(_)))
}

/// Where the history lies: the XDG state folder; none where there is no home.
pub(super) fn history_file() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(state.join("anneal").join("chat-history"))
}

/// Makes the file, readable for its owner alone; one that others may read is closed to them.
fn private(file: &Path) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(file)?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600))
}

fn keys() -> Keybindings {
    let mut keys = default_emacs_keybindings();
    keys.add_binding(KeyModifiers::ALT, KeyCode::Enter, ReedlineEvent::Edit(vec![EditCommand::InsertNewline]));
    let complete = vec![ReedlineEvent::Menu(MENU.to_owned()), ReedlineEvent::MenuNext];
    keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, ReedlineEvent::UntilFound(complete));
    keys.add_binding(KeyModifiers::SHIFT, KeyCode::BackTab, ReedlineEvent::MenuPrevious);
    keys
}

/// The text without the backslashes that were typed to go on in a new line; those that were pasted stay.
fn joined(text: &str, continued: &[String]) -> String {
    let mut ends: Vec<usize> = continued
        .iter()
        .filter(|before| text.strip_prefix(before.as_str()).is_some_and(|rest| rest.starts_with('\n')))
        .map(String::len)
        .collect();
    ends.sort_unstable();
    ends.dedup();
    let mut joined = text.to_owned();
    for end in ends.into_iter().rev() {
        joined.remove(end - 1);
    }
    joined
}

/// A line that ends with a backslash goes on.
struct Backslash(Arc<Mutex<Vec<String>>>);

impl Validator for Backslash {
    fn validate(&self, line: &str) -> ValidationResult {
        if line.ends_with('\\') {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
            ValidationResult::Incomplete
        } else {
            ValidationResult::Complete
        }
    }
}

/// Commands, and titles after /switch.
struct Completions(Titles);

impl Completer for Completions {
    fn complete(&mut self, line: &str, position: usize) -> CompletionResult {
        let typed = line.get(..position).unwrap_or(line);
        let titles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let suggestions: Vec<Suggestion> = completions(typed, &titles)
            .into_iter()
            .map(|(start, value)| Suggestion {
                append_whitespace: start == 0,
                value,
                span: Span::new(start, typed.len()),
                ..Suggestion::default()
            })
            .collect();
        CompletionResult::fresh(suggestions)
    }
}

/// What may stand in place of the text from a byte on.
fn completions(typed: &str, titles: &[String]) -> Vec<(usize, String)> {
    if let Some(beginning) = typed.strip_prefix("/switch ") {
        let wanted = beginning.to_lowercase();
        let fitting = titles.iter().filter(|title| title.to_lowercase().starts_with(&wanted));
        return fitting.map(|title| (typed.len() - beginning.len(), title.clone())).collect();
    }
    if !typed.starts_with('/') {
        return Vec::new();
    }
    let fitting = COMMANDS.iter().filter(|command| command.name.starts_with(typed));
    fitting.map(|command| (0, command.name.to_owned())).collect()
}

/// What stands before the line: for words, where they go.
struct Question {
    text: String,
    sign: &'static str,
}

impl Prompt for Question {
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
    fn backslashes_that_were_typed_to_go_on_disappear_and_pasted_ones_stay() {
        let typed = ["one\\".to_owned(), "one\\\ntwo\\".to_owned()];
        assert_eq!(joined("one\\\ntwo\\\nthree", &typed), "one\ntwo\nthree");
        assert_eq!(joined("curl \\\n  -X GET", &[]), "curl \\\n  -X GET");
        assert_eq!(joined("another\\\nline", &typed), "another\\\nline", "it was edited since");
    }

    #[test]
    fn tab_completes_commands_and_the_titles_of_conversations() {
        let titles = ["My project".to_owned(), "港口的渡轮".to_owned()];
        assert_eq!(completions("/sw", &titles), [(0, "/switch".to_owned())]);
        assert_eq!(completions("/switch MY p", &titles), [(8, "My project".to_owned())]);
        assert_eq!(completions("/switch 港", &titles), [(8, "港口的渡轮".to_owned())]);
        assert_eq!(completions("/", &titles).len(), COMMANDS.len());
        assert_eq!(completions("my", &titles), []);
        assert_eq!(completions("/list my", &titles), []);
    }

    #[test]
    fn a_history_file_is_its_owners_alone_also_where_it_was_not() {
        let folder = std::env::temp_dir().join(format!("anneal-history-{}", uuid::Uuid::new_v4().simple()));
        let file = folder.join("anneal").join("chat-history");
        let mode = || fs::metadata(&file).expect("is there").permissions().mode() & 0o777;
        private(&file).expect("makes it");
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("opens it");
        private(&file).expect("closes it");
        assert_eq!(mode(), 0o600);
        fs::remove_dir_all(&folder).expect("clears up");
    }
}
