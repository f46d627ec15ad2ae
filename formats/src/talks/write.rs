//! Lists of messages written: a conversation on each line, as an object around its list.

use std::io::Write;

use anneal_core::message::Role;

use super::{
    About, Dialect, Prompt,
    about::{MARKS, Mark},
};
use crate::{
    Head, Stored, Summary, WriteError,
    extra::{Forced, KEY, joined, with_extra},
    json::{Fields, Notes, quoted},
    write::Sheet,
};

/// Writes a dialect.
pub(crate) struct Lists<D> {
    dialect: D,
    out: Box<dyn Write + Send>,
    open: Option<Open>,
}

/// The conversation that is being written.
#[derive(Default)]
struct Open {
    records: u64,
    messages: u64,
    marks: Vec<Mark>,
    has_prompt: bool,
}

impl<D: Dialect> Lists<D> {
    pub(crate) const fn new(dialect: D, out: Box<dyn Write + Send>) -> Self {
        Self { dialect, out, open: None }
    }

    fn record(&mut self, record: &str) -> Result<(), WriteError> {
        let open = self.open.get_or_insert_default();
        let comma = if open.records == 0 { "" } else { "," };
        open.records += 1;
        Ok(write!(self.out, "{comma}{record}")?)
    }

    /// Ends the conversation on its line.
    fn close(&mut self) -> Result<(), WriteError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        write!(self.out, "]")?;
        if !open.marks.is_empty() {
            let marks = serde_json::to_string(&open.marks).expect("texts and numbers are always JSON");
            write!(self.out, ",\"{MARKS}\":{marks}")?;
        }
        Ok(writeln!(self.out, "}}")?)
    }

    fn mark(&mut self, summary: Option<&Summary>) {
        let open = self.open.get_or_insert_default();
        open.marks.push(Mark { after: open.messages, summary: summary.map(Into::into) });
    }
}

impl<D: Dialect> Sheet for Lists<D> {
    fn begin(&mut self, head: &Head) -> Result<(), WriteError> {
        self.close()?;
        self.dialect.begin();
        write!(self.out, "{{\"{KEY}\":{}", About::new(D::FORMAT, head).json())?;
        if !head.title.is_empty() {
            write!(self.out, ",\"title\":{}", quoted(&head.title))?;
        }
        let prompt = (!head.system_prompt.is_empty()).then(|| self.dialect.prompt(&head.system_prompt));
        if let Some(Prompt::Field(field)) = &prompt {
            write!(self.out, ",{field}")?;
        }
        write!(self.out, ",\"{}\":[", D::LISTS[0])?;
        self.open = Some(Open { has_prompt: prompt.is_some(), ..Default::default() });
        if let Some(Prompt::Record(record)) = &prompt {
            self.record(record)?;
        }
        Ok(())
    }

    fn message(&mut self, stored: &Stored) -> Result<(), WriteError> {
        let message = &stored.message;
        let records = self.dialect.records(message);
        let mut natives = Vec::new();
        for record in &records {
            let fields = Fields::parse(record).expect("a record is an object");
            natives.extend(self.dialect.message(&fields, &mut Notes::new()).unwrap_or_default());
        }
        let open = self.open.get_or_insert_default();
        let reads_as_prompt = open.messages == 0 && !open.has_prompt && message.role == Role::System;
        open.messages += 1;
        let forced = if reads_as_prompt { Forced::Yes } else { Forced::No };
        let more = records.len().saturating_sub(1);
        for record in with_extra(records, more, &joined(natives), message, forced) {
            self.record(&record)?;
        }
        Ok(())
    }

    fn summary(&mut self, summary: &Summary) -> Result<(), WriteError> {
        self.mark(Some(summary));
        Ok(())
    }

    fn separator(&mut self) -> Result<(), WriteError> {
        self.mark(None);
        Ok(())
    }

    fn end(&mut self) -> Result<(), WriteError> {
        self.close()?;
        Ok(self.out.flush()?)
    }
}
