//! What is pasted, and what the history remembers, without characters that would take the terminal over: the editor shows a
//! line as it is.

use reedline::{
    EditCommand, EditMode, Emacs, FileBackedHistory, History, HistoryItem, HistoryItemId, HistorySessionId,
    PromptEditMode, ReedlineEvent, ReedlineRawEvent, Result, SearchQuery,
};

use crate::paint::without_controls;

/// The keys of Emacs.
pub(super) struct Keys(pub(super) Emacs);

impl EditMode for Keys {
    fn parse_event(&mut self, event: ReedlineRawEvent) -> ReedlineEvent {
        match self.0.parse_event(event) {
            ReedlineEvent::Edit(commands) => ReedlineEvent::Edit(commands.into_iter().map(harmless).collect()),
            other => other,
        }
    }

    fn edit_mode(&self) -> PromptEditMode {
        self.0.edit_mode()
    }
}

fn harmless(command: EditCommand) -> EditCommand {
    match command {
        EditCommand::InsertString(text) => EditCommand::InsertString(without_controls(&text)),
        EditCommand::InsertChar(character) if character.is_control() => EditCommand::InsertChar('\u{fffd}'),
        other => other,
    }
}

/// The lines that were entered before, in a file that others may have written to.
pub(super) struct Remembered(pub(super) FileBackedHistory);

fn cleaned(mut item: HistoryItem) -> HistoryItem {
    item.command_line = without_controls(&item.command_line);
    item
}

impl History for Remembered {
    fn save(&mut self, item: HistoryItem) -> Result<HistoryItem> {
        self.0.save(item)
    }

    fn load(&self, id: HistoryItemId) -> Result<HistoryItem> {
        self.0.load(id).map(cleaned)
    }

    fn count(&self, query: SearchQuery) -> Result<i64> {
        self.0.count(query)
    }

    fn search(&self, query: SearchQuery) -> Result<Vec<HistoryItem>> {
        Ok(self.0.search(query)?.into_iter().map(cleaned).collect())
    }

    fn update(&mut self, id: HistoryItemId, updater: &dyn Fn(HistoryItem) -> HistoryItem) -> Result<()> {
        self.0.update(id, updater)
    }

    fn clear(&mut self) -> Result<()> {
        self.0.clear()
    }

    fn delete(&mut self, id: HistoryItemId) -> Result<()> {
        self.0.delete(id)
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.0.sync()
    }

    fn session(&self) -> Option<HistorySessionId> {
        self.0.session()
    }
}
