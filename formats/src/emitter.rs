//! Sends the events of a reader to the sink. Joins the records of one message, fits messages to the
//! storage limits, and counts fields that no reader uses.

use std::collections::BTreeMap;

use anneal_core::{
    limits::PARTS_PER_MESSAGE,
    message::{Message, Role},
};

use crate::{
    FileEvent, Head, ImportOutcome, Location, ReadError, Remark, Scope, Sink, Strictness, Summary,
    json::{Notes, Unreadable},
    message_extra::{self, MessageExtra},
    storage_limits,
};

/// The output of a reader.
pub(crate) struct Emitter<'a> {
    sink: &'a mut dyn Sink,
    strict: Strictness,
    /// Conversations in the file so far.
    conversations: usize,
    /// Messages emitted for the current conversation.
    messages: u64,
    /// Messages, summaries and separators emitted for it.
    items: u64,
    /// Whether remarks are about the file or the current conversation.
    scope: Scope,
    pending: Option<PendingMessage>,
    /// For each field that no reader uses: its first location and the number of its occurrences.
    unread_fields: BTreeMap<String, (Location, u64)>,
}

/// Most distinct unread fields that are counted.
const MAX_UNREAD_FIELDS: usize = 1_000;

/// A message some of whose records have not been read yet.
struct PendingMessage {
    location: Location,
    /// What the format's own fields of its records yield.
    natives: Vec<Message>,
    extra: MessageExtra,
    /// Number of records that are still to be read.
    missing_records: usize,
}

impl<'a> Emitter<'a> {
    pub(crate) const fn new(sink: &'a mut dyn Sink, strict: Strictness) -> Self {
        let unread_fields = BTreeMap::new();
        Self {
            sink,
            strict,
            conversations: 0,
            messages: 0,
            items: 0,
            scope: Scope::File,
            pending: None,
            unread_fields,
        }
    }

    pub(crate) fn emit_conversation(
        &mut self,
        location: Location,
        head: Head,
    ) -> Result<(), ReadError> {
        self.finish_message()?;
        let mut notes = Notes::new();
        let head = storage_limits::fit_head(head, &mut notes);
        self.conversations += 1;
        (self.messages, self.items) = (0, 0);
        self.scope = Scope::Conversation;
        self.sink.take(FileEvent::Conversation(head))?;
        self.add_notes(location, notes)
    }

    /// Ends the conversation: later remarks are about the file.
    pub(crate) fn end_conversation(&mut self) -> Result<(), ReadError> {
        self.finish_message()?;
        self.scope = Scope::File;
        Ok(())
    }

    /// Adds a record with the native messages that the format's own fields yield: one or two.
    /// Returns whether the record completes a message.
    pub(crate) fn add_record(
        &mut self,
        location: Location,
        natives: Vec<Message>,
        extra: Option<MessageExtra>,
        notes: Notes,
    ) -> Result<bool, ReadError> {
        self.add_notes(location, notes)?;
        let has_same_role =
            |pending: &&mut PendingMessage| role(&pending.natives) == role(&natives);
        if let (None, Some(pending)) = (&extra, self.pending.as_mut().filter(has_same_role)) {
            pending.natives.extend(natives);
            pending.missing_records -= 1;
            if pending.missing_records == 0 {
                self.finish_message()?;
            }
            return Ok(self.pending.is_none());
        }
        self.finish_message()?;
        let Some(extra) = extra else {
            for native in natives {
                self.emit_message(location, native)?;
            }
            return Ok(true);
        };
        let missing_records = extra.more.min(PARTS_PER_MESSAGE);
        self.pending = Some(PendingMessage {
            location,
            natives,
            extra,
            missing_records,
        });
        if missing_records == 0 {
            self.finish_message()?;
        }
        Ok(self.pending.is_none())
    }

    /// Emits the pending message. If records are missing, the message is made of those that
    /// arrived.
    fn finish_message(&mut self) -> Result<(), ReadError> {
        let Some(PendingMessage {
            location,
            natives,
            extra,
            missing_records,
        }) = self.pending.take()
        else {
            return Ok(());
        };
        let native = message_extra::merge_messages(natives);
        if missing_records > 0 {
            self.remark(
                location,
                ImportOutcome::Changed,
                format!("records of this message are missing: {missing_records}"),
            )?;
            let whole = extra.clone().apply(native.clone());
            return self.emit_message(
                location,
                whole.unwrap_or_else(|_| extra.apply_metadata(native)),
            );
        }
        match extra.apply(native) {
            Ok(message) => self.emit_message(location, message),
            Err(Unreadable(what)) => self.refuse(location, what),
        }
    }

    fn emit_message(&mut self, location: Location, message: Message) -> Result<(), ReadError> {
        let mut notes = Notes::new();
        match storage_limits::fit_message(message, &mut notes) {
            Ok(message) => {
                self.add_notes(location, notes)?;
                self.messages += 1;
                self.items += 1;
                Ok(self.sink.take(FileEvent::Message(message))?)
            }
            Err(Unreadable(what)) => self.refuse(location, what),
        }
    }

    pub(crate) fn emit_summary(&mut self, summary: Summary) -> Result<(), ReadError> {
        self.finish_message()?;
        self.items += 1;
        Ok(self.sink.take(FileEvent::Summary(summary))?)
    }

    pub(crate) fn emit_separator(&mut self) -> Result<(), ReadError> {
        self.finish_message()?;
        self.items += 1;
        Ok(self.sink.take(FileEvent::Separator)?)
    }

    /// Conversations in the file so far.
    pub(crate) const fn conversation_count(&self) -> usize {
        self.conversations
    }

    /// Messages emitted for the current conversation.
    pub(crate) const fn message_count(&self) -> u64 {
        self.messages
    }

    /// Messages, summaries and separators emitted for the current conversation.
    pub(crate) const fn item_count(&self) -> u64 {
        self.items
    }

    pub(crate) fn remark(
        &mut self,
        location: Location,
        outcome: ImportOutcome,
        what: impl Into<String>,
    ) -> Result<(), ReadError> {
        Ok(self.sink.take(FileEvent::Remark(Remark {
            location,
            scope: self.scope,
            outcome,
            what: what.into(),
        }))?)
    }

    /// Remarks on a field that no reader uses. The first [`MAX_UNREAD_FIELDS`] fields are remarked
    /// on once per file, and [`Self::finish`] reports the number of their occurrences. Further
    /// fields are remarked on each time.
    fn remark_unread_field(&mut self, location: Location, field: String) -> Result<(), ReadError> {
        if let Some((_, occurrences)) = self.unread_fields.get_mut(&field) {
            *occurrences += 1;
            return Ok(());
        }
        if self.unread_fields.len() < MAX_UNREAD_FIELDS {
            self.unread_fields.insert(field.clone(), (location, 1));
        }
        self.remark(location, ImportOutcome::SetAside, field)
    }

    /// Remarks on an item that cannot be read. In a strict reading this is an error. If a message
    /// is pending, it is emitted without this item.
    pub(crate) fn refuse(
        &mut self,
        location: Location,
        what: impl Into<String>,
    ) -> Result<(), ReadError> {
        self.finish_message()?;
        match self.strict {
            Strictness::Strict => Err(ReadError::Refused {
                location,
                what: what.into(),
            }),
            Strictness::Lenient => self.remark(location, ImportOutcome::Refused, what),
        }
    }

    pub(crate) fn add_notes(&mut self, location: Location, notes: Notes) -> Result<(), ReadError> {
        notes
            .remarks
            .into_iter()
            .try_for_each(|(outcome, what)| self.remark(location, outcome, what))?;
        notes
            .unread_fields
            .into_iter()
            .try_for_each(|field| self.remark_unread_field(location, field))
    }

    /// Ends the file. An error if the file has no conversation.
    pub(crate) fn finish(mut self) -> Result<(), ReadError> {
        self.end_conversation()?;
        for (field, (location, occurrences)) in std::mem::take(&mut self.unread_fields) {
            if occurrences > 1 {
                self.remark(
                    location,
                    ImportOutcome::SetAside,
                    format!("{field}: {occurrences} in the whole file"),
                )?;
            }
        }
        if self.conversations == 0 {
            Err(ReadError::Empty)
        } else {
            Ok(())
        }
    }
}

/// The role given by the format's own fields.
fn role(natives: &[Message]) -> Option<Role> {
    natives.first().map(|native| native.role)
}
