//! claw0's records written, so that its own `_rebuild_history` makes the same messages of them.

use std::io::Write;

use anneal_core::message::{Message, Part, Role};

use super::{OURS, TIMES, read};
use crate::{
    Format, Head, Stored, Summary, WriteError, blocks,
    extra::{Forced, KEY, with_extra},
    json::{object, quoted},
    talks::{About, SaidSummary},
    write::Sheet,
};

/// A file of records: one conversation.
pub(crate) struct Records {
    out: Box<dyn Write + Send>,
    begun: bool,
    /// Who spoke last.
    last: Option<Role>,
}

impl Records {
    pub(crate) const fn new(out: Box<dyn Write + Send>) -> Self {
        Self { out, begun: false, last: None }
    }
}

impl Sheet for Records {
    fn begin(&mut self, head: &Head) -> Result<(), WriteError> {
        if std::mem::replace(&mut self.begun, true) {
            return Err(WriteError::OneOnly(Format::Claw0));
        }
        let about = About::whole(Format::Claw0, head).json();
        Ok(writeln!(self.out, "{{\"type\":\"{OURS}\",\"{KEY}\":{about}}}")?)
    }

    fn message(&mut self, stored: &Stored) -> Result<(), WriteError> {
        let message = &stored.message;
        let records = timed(records(message, self.last), message, stored.created_us);
        // results of two messages would be read as one
        let forced = if message.role == Role::Tool && self.last == Some(Role::Tool) { Forced::Yes } else { Forced::No };
        self.last = Some(message.role);
        let native = read::said(&records);
        for record in with_extra(records, 0, &native, message, forced) {
            writeln!(self.out, "{record}")?;
        }
        Ok(())
    }

    fn summary(&mut self, summary: &Summary) -> Result<(), WriteError> {
        let said = serde_json::to_string(&SaidSummary::from(summary)).expect("texts and numbers are always JSON");
        Ok(writeln!(self.out, "{{\"type\":\"{OURS}\",\"summary\":{said}}}")?)
    }

    fn separator(&mut self) -> Result<(), WriteError> {
        Ok(writeln!(self.out, "{{\"type\":\"{OURS}\",\"separator\":true}}")?)
    }

    fn end(&mut self) -> Result<(), WriteError> {
        Ok(self.out.flush()?)
    }
}

/// The message's records, without their times.
fn records(message: &Message, last: Option<Role>) -> Vec<String> {
    match message.role {
        Role::User | Role::System => vec![says("user", &blocks::written(&message.parts))],
        Role::Tool => message.parts.iter().filter_map(answers).collect(),
        Role::Assistant => {
            let (calls, said): (Vec<Part>, Vec<Part>) =
                message.parts.iter().cloned().partition(|part| matches!(part, Part::ToolUse { .. }));
            let mut records = Vec::new();
            // a call would otherwise join the answer before it
            if !said.is_empty() || calls.is_empty() || last == Some(Role::Assistant) {
                records.push(says("assistant", &blocks::blocks(&said)));
            }
            records.extend(calls.iter().filter_map(called));
            records
        }
    }
}

fn says(kind: &str, content: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"content\":{content}}}")
}

fn called(part: &Part) -> Option<String> {
    let Part::ToolUse { id, name, input } = part else { return None };
    let (id, name) = (quoted(id), quoted(name));
    Some(format!("{{\"type\":\"tool_use\",\"tool_use_id\":{id},\"name\":{name},\"input\":{}}}", object(input).get()))
}

fn answers(part: &Part) -> Option<String> {
    let Part::ToolResult { id, text, is_error, media } = part else { return None };
    let content = serde_json::to_string(&blocks::result_content(text, media)).expect("texts are always JSON");
    let error = if *is_error { ",\"is_error\":true" } else { "" };
    Some(format!("{{\"type\":\"tool_result\",\"tool_use_id\":{},\"content\":{content}{error}}}", quoted(id)))
}

/// The records with their times: those that claw0 gave them, or when the message was stored, in seconds.
fn timed(records: Vec<String>, message: &Message, created_us: i64) -> Vec<String> {
    let known = message.metadata.get(TIMES).map(String::as_str).unwrap_or_default();
    let known: Vec<&str> = known.split(' ').filter(|time| is_number(time)).collect();
    let stored = format!("{}.{:06}", created_us.div_euclid(1_000_000), created_us.rem_euclid(1_000_000));
    let time = |index: usize| known.get(index).or(known.last()).copied().unwrap_or(&stored).to_owned();
    let timed = records.into_iter().enumerate().map(|(index, mut record)| {
        record.pop();
        format!("{record},\"ts\":{}}}", time(index))
    });
    timed.collect()
}

fn is_number(text: &str) -> bool {
    text.starts_with(|first: char| first == '-' || first.is_ascii_digit())
        && serde_json::from_str::<serde_json::Number>(text).is_ok()
}
