//! Replaces control characters in pasted text and in the history, because the editor prints a line
//! unchanged.

use reedline::{
    EditCommand, EditMode, Emacs, FileBackedHistory, History, HistoryItem, HistoryItemId,
    HistorySessionId, PromptEditMode, ReedlineEvent, ReedlineRawEvent, Result, SearchQuery,
};

use crate::sanitize::sanitize_input;

/// Emacs key bindings with sanitized insertions.
pub(super) struct SanitizedKeys(pub(super) Emacs);

impl EditMode for SanitizedKeys {
    fn parse_event(&mut self, event: ReedlineRawEvent) -> ReedlineEvent {
        match self.0.parse_event(event) {
            ReedlineEvent::Edit(commands) => {
                ReedlineEvent::Edit(commands.into_iter().map(sanitize_command).collect())
            }
            other => other,
        }
    }

    fn edit_mode(&self) -> PromptEditMode {
        self.0.edit_mode()
    }
}

fn sanitize_command(command: EditCommand) -> EditCommand {
    match command {
        EditCommand::InsertString(text) => EditCommand::InsertString(sanitize_input(&text)),
        EditCommand::InsertChar(character) if character.is_control() => {
            EditCommand::InsertChar('\u{fffd}')
        }
        other => other,
    }
}

/// The history. Other programs may have written to its file, so its lines are sanitized.
pub(super) struct SanitizedHistory(pub(super) FileBackedHistory);

fn sanitize_item(mut item: HistoryItem) -> HistoryItem {
    item.command_line = sanitize_input(&item.command_line);
    item
}

impl History for SanitizedHistory {
    fn save(&mut self, item: HistoryItem) -> Result<HistoryItem> {
        self.0.save(item)
    }

    fn load(&self, id: HistoryItemId) -> Result<HistoryItem> {
        self.0.load(id).map(sanitize_item)
    }

    fn count(&self, query: SearchQuery) -> Result<i64> {
        self.0.count(query)
    }

    fn search(&self, query: SearchQuery) -> Result<Vec<HistoryItem>> {
        Ok(self
            .0
            .search(query)?
            .into_iter()
            .map(sanitize_item)
            .collect())
    }

    fn update(
        &mut self,
        id: HistoryItemId,
        updater: &dyn Fn(HistoryItem) -> HistoryItem,
    ) -> Result<()> {
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
