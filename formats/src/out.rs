//! Hands what readers find to the sink: records joined to messages, messages made fit to be stored, remarks counted.

use std::collections::BTreeMap;

use anneal_core::{
    limits::PARTS_PER_MESSAGE,
    message::{Message, Role},
};

use crate::{
    Fate, Found, Head, Place, ReadError, Remark, Scope, Sink, Strictness, Summary,
    extra::{self, Extra},
    fit,
    json::{Bad, Notes},
};

/// Where everything goes that a reader finds.
pub(crate) struct Out<'a> {
    sink: &'a mut dyn Sink,
    strict: Strictness,
    conversations: u64,
    messages: u64,
    /// What is remarked on belongs to.
    scope: Scope,
    joining: Option<Joining>,
    /// How often each field that nothing reads was met, and where first.
    unread: BTreeMap<String, (Place, u64)>,
}

/// Names of unread fields that are told apart.
const UNREAD: usize = 1_000;

/// A message whose records are still to come.
struct Joining {
    place: Place,
    natives: Vec<Message>,
    extra: Extra,
    left: usize,
}

impl<'a> Out<'a> {
    pub(crate) const fn new(sink: &'a mut dyn Sink, strict: Strictness) -> Self {
        let unread = BTreeMap::new();
        Self { sink, strict, conversations: 0, messages: 0, scope: Scope::File, joining: None, unread }
    }

    /// Begins a conversation.
    pub(crate) fn conversation(&mut self, place: Place, head: Head) -> Result<(), ReadError> {
        self.finish()?;
        let mut notes = Notes::new();
        let head = fit::head(head, &mut notes);
        self.conversations += 1;
        self.messages = 0;
        self.scope = Scope::Conversation;
        self.sink.take(Found::Conversation(head))?;
        self.notes(place, notes)
    }

    /// Ends the conversation: what is remarked on from here on is not its own.
    pub(crate) fn leave(&mut self) -> Result<(), ReadError> {
        self.finish()?;
        self.scope = Scope::File;
        Ok(())
    }

    /// What a record says; none, one or two messages by the format's own fields. True when it ends a message.
    pub(crate) fn record(
        &mut self,
        place: Place,
        natives: Vec<Message>,
        extra: Option<Extra>,
        notes: Notes,
    ) -> Result<bool, ReadError> {
        self.notes(place, notes)?;
        let same = |joining: &&mut Joining| role(&joining.natives) == role(&natives);
        if let (None, Some(joining)) = (&extra, self.joining.as_mut().filter(same)) {
            joining.natives.extend(natives);
            joining.left -= 1;
            if joining.left == 0 {
                self.finish()?;
            }
            return Ok(self.joining.is_none());
        }
        self.finish()?;
        let Some(extra) = extra else {
            for native in natives {
                self.message(place, native)?;
            }
            return Ok(true);
        };
        let left = extra.more.min(PARTS_PER_MESSAGE);
        self.joining = Some(Joining { place, natives, extra, left });
        if left == 0 {
            self.finish()?;
        }
        Ok(self.joining.is_none())
    }

    /// Ends the message whose records were awaited. One that lacks some is what the others say.
    fn finish(&mut self) -> Result<(), ReadError> {
        let Some(Joining { place, natives, extra, left }) = self.joining.take() else { return Ok(()) };
        let native = extra::joined(natives);
        if left > 0 {
            self.remark(
                place,
                Fate::Changed,
                format!("records of the same message that should follow: {left} missing"),
            )?;
            let whole = extra.clone().apply(native.clone());
            return self.message(place, whole.unwrap_or_else(|_| extra.label(native)));
        }
        match extra.apply(native) {
            Ok(message) => self.message(place, message),
            Err(Bad(what)) => self.refuse(place, what),
        }
    }

    fn message(&mut self, place: Place, message: Message) -> Result<(), ReadError> {
        let mut notes = Notes::new();
        match fit::message(message, &mut notes) {
            Ok(message) => {
                self.notes(place, notes)?;
                self.messages += 1;
                Ok(self.sink.take(Found::Message(message))?)
            }
            Err(Bad(what)) => self.refuse(place, what),
        }
    }

    /// A summary of the messages so far.
    pub(crate) fn summary(&mut self, summary: Summary) -> Result<(), ReadError> {
        self.finish()?;
        Ok(self.sink.take(Found::Summary(summary))?)
    }

    /// The user's mark.
    pub(crate) fn separator(&mut self) -> Result<(), ReadError> {
        self.finish()?;
        Ok(self.sink.take(Found::Separator)?)
    }

    /// Messages of this conversation so far.
    pub(crate) const fn messages(&self) -> u64 {
        self.messages
    }

    /// Something about the file.
    pub(crate) fn remark(&mut self, place: Place, fate: Fate, what: impl Into<String>) -> Result<(), ReadError> {
        Ok(self.sink.take(Found::Remark(Remark { place, scope: self.scope, fate, what: what.into() }))?)
    }

    /// A field that nothing reads: said where it is first, and counted at the end of the file.
    fn unread(&mut self, place: Place, field: String) -> Result<(), ReadError> {
        if let Some((_, times)) = self.unread.get_mut(&field) {
            *times += 1;
            return Ok(());
        }
        if self.unread.len() < UNREAD {
            self.unread.insert(field.clone(), (place, 1));
        }
        self.remark(place, Fate::SetAside, field)
    }

    /// Something that cannot be read; an error where the reading is strict. A message that waits for it ends without.
    pub(crate) fn refuse(&mut self, place: Place, what: impl Into<String>) -> Result<(), ReadError> {
        self.finish()?;
        match self.strict {
            Strictness::Strict => Err(ReadError::Refused { place, what: what.into() }),
            Strictness::Lenient => self.remark(place, Fate::Refused, what),
        }
    }

    pub(crate) fn notes(&mut self, place: Place, notes: Notes) -> Result<(), ReadError> {
        notes.said.into_iter().try_for_each(|(fate, what)| self.remark(place, fate, what))?;
        notes.unread.into_iter().try_for_each(|field| self.unread(place, field))
    }

    /// Ends the file.
    pub(crate) fn end(mut self) -> Result<(), ReadError> {
        self.leave()?;
        for (field, (place, times)) in std::mem::take(&mut self.unread) {
            if times > 1 {
                self.remark(place, Fate::SetAside, format!("{field}: {times} in the whole file"))?;
            }
        }
        if self.conversations == 0 { Err(ReadError::Empty) } else { Ok(()) }
    }
}

/// Who speaks by the format's own fields.
fn role(natives: &[Message]) -> Option<Role> {
    natives.first().map(|native| native.role)
}
