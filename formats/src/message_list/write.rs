//! Writes each conversation as one line: an object around the list of its messages.

use std::io::Write;

use anneal_core::message::Role;

use super::{Dialect, Prompt};
use crate::{
    Head, StoredMessage, Summary, WriteError,
    conversation_extra::{ConversationExtra, MARKS_KEY, Mark},
    format_writer::FormatWriter,
    json::{Fields, Notes, quoted},
    message_extra::{ANNEAL_KEY, ExtraObject, merge_messages, with_extra},
};

pub(crate) struct MessageListWriter<D> {
    dialect: D,
    out: Box<dyn Write + Send>,
    conversation: Option<OpenConversation>,
}

/// The conversation being written.
#[derive(Default)]
struct OpenConversation {
    /// Records written, the system prompt included.
    records: u64,
    messages: u64,
    /// Summaries and separators. They are written after the messages.
    marks: Vec<Mark>,
    has_prompt: bool,
}

impl<D: Dialect> MessageListWriter<D> {
    pub(crate) const fn new(dialect: D, out: Box<dyn Write + Send>) -> Self {
        Self {
            dialect,
            out,
            conversation: None,
        }
    }

    fn write_record(&mut self, record: &str) -> Result<(), WriteError> {
        let conversation = self.conversation.get_or_insert_default();
        let comma = if conversation.records == 0 { "" } else { "," };
        conversation.records += 1;
        Ok(write!(self.out, "{comma}{record}")?)
    }

    /// Ends the line of the current conversation.
    fn close(&mut self) -> Result<(), WriteError> {
        let Some(conversation) = self.conversation.take() else {
            return Ok(());
        };
        write!(self.out, "]")?;
        if !conversation.marks.is_empty() {
            let marks = serde_json::to_string(&conversation.marks)
                .expect("texts and numbers are always JSON");
            write!(self.out, ",\"{MARKS_KEY}\":{marks}")?;
        }
        Ok(writeln!(self.out, "}}")?)
    }

    fn add_mark(&mut self, summary: Option<&Summary>) {
        let conversation = self.conversation.get_or_insert_default();
        conversation.marks.push(Mark {
            after: conversation.messages,
            summary: summary.map(Into::into),
        });
    }
}

impl<D: Dialect> FormatWriter for MessageListWriter<D> {
    fn begin_conversation(&mut self, head: &Head) -> Result<(), WriteError> {
        self.close()?;
        self.dialect.reset();
        write!(
            self.out,
            "{{\"{ANNEAL_KEY}\":{}",
            ConversationExtra::new(D::FORMAT, head).to_json()
        )?;
        if !head.title.is_empty() {
            write!(self.out, ",\"title\":{}", quoted(&head.title))?;
        }
        let prompt =
            (!head.system_prompt.is_empty()).then(|| self.dialect.prompt(&head.system_prompt));
        if let Some(Prompt::Field(field)) = &prompt {
            write!(self.out, ",{field}")?;
        }
        write!(self.out, ",\"{}\":[", D::LISTS[0])?;
        self.conversation = Some(OpenConversation {
            has_prompt: prompt.is_some(),
            ..Default::default()
        });
        if let Some(Prompt::Record(record)) = &prompt {
            self.write_record(record)?;
        }
        Ok(())
    }

    fn write_message(&mut self, stored: &StoredMessage) -> Result<(), WriteError> {
        let message = &stored.message;
        let records = self.dialect.records(message);
        // Reads the records as an import would, to find what only an extra object can express.
        let mut natives = Vec::new();
        for record in &records {
            let fields = Fields::parse(record).expect("a record is an object");
            natives.extend(
                self.dialect
                    .parse_messages(&fields, &mut Notes::new())
                    .unwrap_or_default(),
            );
        }
        let conversation = self.conversation.get_or_insert_default();
        let reads_as_prompt =
            conversation.messages == 0 && !conversation.has_prompt && message.role == Role::System;
        conversation.messages += 1;
        let extra_object = if reads_as_prompt {
            ExtraObject::Required
        } else {
            ExtraObject::IfNeeded
        };
        let more = records.len().saturating_sub(1);
        for record in with_extra(
            records,
            more,
            &merge_messages(natives),
            message,
            extra_object,
        ) {
            self.write_record(&record)?;
        }
        Ok(())
    }

    fn write_summary(&mut self, summary: &Summary) -> Result<(), WriteError> {
        self.add_mark(Some(summary));
        Ok(())
    }

    fn write_separator(&mut self) -> Result<(), WriteError> {
        self.add_mark(None);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        self.close()?;
        Ok(self.out.flush()?)
    }
}
