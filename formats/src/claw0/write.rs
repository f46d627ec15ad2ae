//! Writes claw0 records. From them claw0's `_rebuild_history`, which loads its log, makes the same
//! messages.

use std::io::Write;

use anneal_core::message::{Message, Part, Role};

use super::{ANNEAL_TYPE, TIMES, read};
use crate::{
    Format, Head, StoredMessage, Summary, WriteError, blocks,
    conversation_extra::{ConversationExtra, SummaryRecord},
    format_writer::FormatWriter,
    json::{object, quoted},
    message_extra::{ANNEAL_KEY, ExtraObject, with_extra},
};

/// Writes a file of records, which holds one conversation.
pub(crate) struct Claw0Writer {
    out: Box<dyn Write + Send>,
    /// Whether a conversation was begun. A file holds only one.
    has_conversation: bool,
    /// The role of the message written last.
    previous_role: Option<Role>,
}

impl Claw0Writer {
    pub(crate) const fn new(out: Box<dyn Write + Send>) -> Self {
        Self {
            out,
            has_conversation: false,
            previous_role: None,
        }
    }
}

impl FormatWriter for Claw0Writer {
    fn begin_conversation(&mut self, head: &Head) -> Result<(), WriteError> {
        if std::mem::replace(&mut self.has_conversation, true) {
            return Err(WriteError::OneOnly(Format::Claw0));
        }
        let extra = ConversationExtra::with_system_prompt(Format::Claw0, head).to_json();
        Ok(writeln!(
            self.out,
            "{{\"type\":\"{ANNEAL_TYPE}\",\"{ANNEAL_KEY}\":{extra}}}"
        )?)
    }

    fn write_message(&mut self, stored: &StoredMessage) -> Result<(), WriteError> {
        let message = &stored.message;
        let records = with_times(
            records(message, self.previous_role),
            message,
            stored.created_us,
        );
        // The results of two tool messages in a row would be read as one message.
        let extra_object = if message.role == Role::Tool && self.previous_role == Some(Role::Tool) {
            ExtraObject::Required
        } else {
            ExtraObject::IfNeeded
        };
        self.previous_role = Some(message.role);
        let native = read::native_message(&records);
        for record in with_extra(records, 0, &native, message, extra_object) {
            writeln!(self.out, "{record}")?;
        }
        Ok(())
    }

    fn write_summary(&mut self, summary: &Summary) -> Result<(), WriteError> {
        let json = serde_json::to_string(&SummaryRecord::from(summary))
            .expect("texts and numbers are always JSON");
        Ok(writeln!(
            self.out,
            "{{\"type\":\"{ANNEAL_TYPE}\",\"summary\":{json}}}"
        )?)
    }

    fn write_separator(&mut self) -> Result<(), WriteError> {
        Ok(writeln!(
            self.out,
            "{{\"type\":\"{ANNEAL_TYPE}\",\"separator\":true}}"
        )?)
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        Ok(self.out.flush()?)
    }
}

/// The records of a message, without times.
fn records(message: &Message, previous_role: Option<Role>) -> Vec<String> {
    match message.role {
        Role::User | Role::System => vec![message_record(
            "user",
            &blocks::content_json(&message.parts),
        )],
        Role::Tool => message
            .parts
            .iter()
            .filter_map(tool_result_record)
            .collect(),
        Role::Assistant => {
            let (calls, others): (Vec<Part>, Vec<Part>) = message
                .parts
                .iter()
                .cloned()
                .partition(|part| matches!(part, Part::ToolUse { .. }));
            let mut records = Vec::new();
            // After an assistant message, the calls need an assistant record before them: otherwise
            // they would become parts of that message.
            if !others.is_empty() || calls.is_empty() || previous_role == Some(Role::Assistant) {
                records.push(message_record("assistant", &blocks::blocks_json(&others)));
            }
            records.extend(calls.iter().filter_map(tool_call_record));
            records
        }
    }
}

fn message_record(kind: &str, content: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"content\":{content}}}")
}

fn tool_call_record(part: &Part) -> Option<String> {
    let Part::ToolUse { id, name, input } = part else {
        return None;
    };
    let (id, name) = (quoted(id), quoted(name));
    Some(format!(
        "{{\"type\":\"tool_use\",\"tool_use_id\":{id},\"name\":{name},\"input\":{}}}",
        object(input).get()
    ))
}

fn tool_result_record(part: &Part) -> Option<String> {
    let Part::ToolResult {
        id,
        text,
        is_error,
        media,
    } = part
    else {
        return None;
    };
    let content =
        serde_json::to_string(&blocks::result_content(text, media)).expect("texts are always JSON");
    let error = if *is_error { ",\"is_error\":true" } else { "" };
    Some(format!(
        "{{\"type\":\"tool_result\",\"tool_use_id\":{},\"content\":{content}{error}}}",
        quoted(id)
    ))
}

/// Adds a time to each record: the original time from the label, or else the time at which the
/// message was stored. Both are in seconds. Records beyond the label's times get its last time.
fn with_times(records: Vec<String>, message: &Message, created_us: i64) -> Vec<String> {
    let label = message
        .metadata
        .get(TIMES)
        .map(String::as_str)
        .unwrap_or_default();
    let original: Vec<&str> = label.split(' ').filter(|time| is_number(time)).collect();
    let stored = format!(
        "{}.{:06}",
        created_us.div_euclid(1_000_000),
        created_us.rem_euclid(1_000_000)
    );
    let time = |index: usize| {
        original
            .get(index)
            .or(original.last())
            .copied()
            .unwrap_or(&stored)
            .to_owned()
    };
    let timed = records.into_iter().enumerate().map(|(index, mut record)| {
        record.pop(); // the closing brace
        format!("{record},\"ts\":{}}}", time(index))
    });
    timed.collect()
}

fn is_number(text: &str) -> bool {
    text.starts_with(|first: char| first == '-' || first.is_ascii_digit())
        && serde_json::from_str::<serde_json::Number>(text).is_ok()
}
