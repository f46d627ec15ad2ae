//! The first reading: which conversations a file holds, and by what each is known again.

use std::{
    collections::{HashMap, VecDeque},
    fmt::Write as _,
};

use anneal_core::{
    digest::{self, Digest},
    message::Message,
};
use anneal_formats::{Format, Found, Head, ReadError, Stopped, Strictness, read};
use anyhow::Context as _;

use super::{Ask, reading::Source, wire};
use crate::files;

/// By what a conversation is known again: the beginning of a digest.
pub(super) type Key = [u8; 16];

/// A conversation of a file. Files may hold millions of small ones, and all are in memory between the two readings: no more
/// than 32 bytes for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Expected {
    /// Part of the request ids of its calls.
    pub(super) key: Key,
    /// How many messages it has.
    messages: u64,
    /// How many summaries of the other system's.
    pub(super) summaries: u64,
}

/// The conversations of a file, as its first reading has found them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// Those that the file names, by key: a file that somebody writes to may hold them in another order the next time.
    named: HashMap<Key, Expected>,
    /// Those that it does not, in order.
    unnamed: VecDeque<Expected>,
}

impl Known {
    /// How many messages there are in all.
    pub(super) fn messages(&self) -> u64 {
        self.named.values().chain(&self.unnamed).map(|expected| expected.messages).sum()
    }

    /// What the first reading knew of the conversation that the second one has come to. One that has got into the file
    /// since is known by its name; None where it has none.
    pub(super) fn find(&mut self, format: Format, ask: &Ask, head: &Head) -> Option<Expected> {
        if head.identity.is_empty() {
            return self.unnamed.pop_front();
        }
        let key = named(format, ask, head);
        Some(self.named.get(&key).copied().unwrap_or(Expected { key, ..Expected::default() }))
    }
}

/// By what a conversation is known again that the file names.
fn named(format: Format, ask: &Ask, head: &Head) -> Key {
    let agent = files::owner(&ask.agent, &head.agent_id).as_bytes();
    let format = format.name().as_bytes();
    key(&digest::of_fields([b"identity".as_slice(), format, head.identity.as_bytes(), agent, ask.user.as_bytes()]))
}

/// Every conversation of the file.
pub(super) async fn survey(source: &Source, ask: &Ask) -> anyhow::Result<Known> {
    let (source, ask) = (source.clone(), ask.clone());
    tokio::task::spawn_blocking(move || {
        let mut survey = Survey::new(source.format, ask);
        let outcome = read(&source.path, source.format, &source.options, &mut |found| survey.take(found));
        match (survey.refused.take(), outcome) {
            (Some(why), Err(ReadError::Stopped(_))) => anyhow::bail!(why),
            (_, outcome) => outcome?,
        }
        survey.close();
        Ok(survey.known)
    })
    .await
    .context("the reader panicked")?
}

struct Survey {
    format: Format,
    ask: Ask,
    known: Known,
    open: Option<Open>,
    /// How often a content without a name of its own has come by.
    seen: HashMap<Key, u64>,
    /// What a strict import stops at.
    refused: Option<String>,
}

/// The conversation that is being read.
struct Open {
    head: Head,
    messages: u64,
    summaries: u64,
    content: Digest,
}

impl Survey {
    fn new(format: Format, ask: Ask) -> Self {
        Self { format, ask, known: Known::default(), open: None, seen: HashMap::new(), refused: None }
    }

    fn take(&mut self, found: Found) -> Result<(), Stopped> {
        match found {
            Found::Conversation(head) => {
                self.close();
                let labels = head.metadata.iter().flat_map(|(key, value)| [key.as_bytes(), value.as_bytes()]);
                let content = digest::of_fields(std::iter::once(head.system_prompt.as_bytes()).chain(labels));
                self.open = Some(Open { head, messages: 0, summaries: 0, content });
            }
            Found::Message(message) => self.message(message)?,
            Found::Summary(summary) => {
                self.mark(&[b"summary", &summary.covers.to_be_bytes(), summary.text.as_bytes()]);
                self.open.iter_mut().for_each(|open| open.summaries += 1);
            }
            Found::Separator => self.mark(&[b"separator"]),
            Found::Remark(_) => {}
        }
        Ok(())
    }

    fn message(&mut self, message: Message) -> Result<(), Stopped> {
        let Some(open) = &mut self.open else { return Ok(()) };
        open.messages += 1;
        if open.head.identity.is_empty() {
            let content = wire::content(&message);
            let said = digest::of_append(std::slice::from_ref(&message), &[content]);
            open.content = digest::of_fields([open.content.as_slice(), &said]);
        }
        if self.ask.strict == Strictness::Strict
            && let Err(why) = wire::acceptable(message)
        {
            self.refused = Some(format!("message {}: {why}", open.messages));
            return Err(Stopped);
        }
        Ok(())
    }

    fn mark(&mut self, fields: &[&[u8]]) {
        if let Some(open) = &mut self.open {
            open.content = digest::of_fields(std::iter::once(open.content.as_slice()).chain(fields.iter().copied()));
        }
    }

    /// Ends the open conversation. What the file names is known by that name, and anything else by its content; the second
    /// conversation with one content is another one.
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let (messages, summaries) = (open.messages, open.summaries);
        if open.head.identity.is_empty() {
            let agent = files::owner(&self.ask.agent, &open.head.agent_id).as_bytes();
            let times = self.seen.entry(key(&open.content)).or_default();
            *times += 1;
            let user = self.ask.user.as_bytes();
            let content = [b"content".as_slice(), &open.content, agent, user, &times.to_be_bytes()];
            let key = key(&digest::of_fields(content));
            self.known.unnamed.push_back(Expected { key, messages, summaries });
        } else {
            let key = named(self.format, &self.ask, &open.head);
            self.known.named.insert(key, Expected { key, messages, summaries });
        }
    }
}

/// The beginning of a digest.
fn key(digest: &Digest) -> Key {
    std::array::from_fn(|place| digest[place])
}

/// The first 16 bytes, in 32 characters.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes[..16].iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use anneal_formats::{Branches, ReadOptions};

    use super::*;

    fn head(identity: &str) -> Head {
        Head { identity: identity.to_owned(), ..Head::default() }
    }

    fn surveyed(heads: &[&str]) -> Known {
        let mut survey = Survey::new(Format::ZeroClaw, Ask::default());
        for identity in heads {
            survey.take(Found::Conversation(head(identity))).expect("nothing is strict");
        }
        survey.close();
        survey.known
    }

    #[test]
    fn a_file_that_changes_between_its_readings_gives_no_conversation_the_key_of_another() {
        let (ask, format) = (Ask::default(), Format::ZeroClaw);
        let key = |identity| surveyed(&[identity]).find(format, &ask, &head(identity)).expect("known").key;
        let mut known = surveyed(&["a", "b"]);
        for identity in ["b", "new", "a"] {
            assert_eq!(known.find(format, &ask, &head(identity)).expect("known").key, key(identity), "{identity}");
        }
    }

    /// Memory of this process now, in bytes; None where the system does not say.
    fn memory() -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
    }

    #[tokio::test]
    async fn a_file_of_many_tiny_conversations_is_known_by_a_few_bytes_for_each() {
        const TALKS: u64 = 500_000;
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let mut out = std::io::BufWriter::new(&mut file);
        for number in 0..TALKS {
            writeln!(out, "{{\"messages\":[{{\"role\":\"user\",\"content\":\"{number}\"}}]}}").expect("writes");
        }
        drop(out);
        let options = ReadOptions { strict: Strictness::Lenient, branches: Branches::Active, name: "many".into() };
        let source = Source { path: file.path().to_owned(), format: Format::OpenAi, options, origin: None };
        let before = memory();
        let known = survey(&source, &Ask::default()).await.expect("reads");
        assert_eq!((known.unnamed.len() as u64, known.messages()), (TALKS, TALKS));
        if let (Some(before), Some(after)) = (before, memory()) {
            assert!(after - before < 160 * TALKS, "{} bytes for each", (after - before) / TALKS);
        }
    }

    #[test]
    fn conversations_without_names_are_taken_in_order_and_no_more_than_were_there() {
        let mut known = surveyed(&["", ""]);
        let mut find = || known.find(Format::OpenAi, &Ask::default(), &head(""));
        let (first, second) = (find().expect("known"), find().expect("known"));
        assert!(first.key != second.key && find().is_none());
    }
}
