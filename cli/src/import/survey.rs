//! The first pass: lists the conversations of a file, with the keys that identify them in later
//! runs.

use std::collections::{HashMap, VecDeque};

use anneal_core::{
    digest::{self, Digest},
    message::Message,
};
use anneal_formats::{FileEvent, Format, Head, ReadError, Stopped, Strictness, read};
use anyhow::Context as _;

use super::{
    ImportOptions, append,
    digest_prefix::{Key, digest_prefix},
    file_reader::Source,
};
use crate::file_format;

/// A conversation of the file. It has only 32 bytes, because a file may hold millions of
/// conversations, which are all in memory between the passes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ExpectedConversation {
    /// Identifies the conversation in every run. Part of the request ids of its calls.
    pub(super) key: Key,
    /// Number of messages.
    messages: u64,
    /// Number of summaries.
    pub(super) summaries: u64,
}

/// The conversations of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FileSurvey {
    /// Conversations that the file identifies, by key. Their order may change between the passes,
    /// if the file is written to.
    with_identity: HashMap<Key, ExpectedConversation>,
    /// Conversations that the file does not identify, in the order of the file.
    without_identity: VecDeque<ExpectedConversation>,
}

impl FileSurvey {
    /// Number of messages in all conversations.
    pub(super) fn messages(&self) -> u64 {
        self.with_identity
            .values()
            .chain(&self.without_identity)
            .map(|expected| expected.messages)
            .sum()
    }

    /// Returns the conversation at which the second pass has arrived, and advances over it if it
    /// has no identity. A conversation that was added after the first pass is returned with the key
    /// of its identity; None if it has no identity.
    pub(super) fn find(
        &mut self,
        format: Format,
        options: &ImportOptions,
        head: &Head,
    ) -> Option<ExpectedConversation> {
        if head.identity.is_empty() {
            return self.without_identity.pop_front();
        }
        let key = identity_key(format, options, head);
        Some(
            self.with_identity
                .get(&key)
                .copied()
                .unwrap_or(ExpectedConversation {
                    key,
                    ..ExpectedConversation::default()
                }),
        )
    }
}

/// The key of a conversation with an identity.
fn identity_key(format: Format, options: &ImportOptions, head: &Head) -> Key {
    let agent = file_format::agent_id(&options.agent, &head.agent_id).as_bytes();
    let format = format.name().as_bytes();
    digest_prefix(&digest::of_fields([
        b"identity".as_slice(),
        format,
        head.identity.as_bytes(),
        agent,
        options.user.as_bytes(),
    ]))
}

/// Lists the conversations of the file.
pub(super) async fn survey_file(
    source: &Source,
    options: &ImportOptions,
) -> anyhow::Result<FileSurvey> {
    let (source, options) = (source.clone(), options.clone());
    tokio::task::spawn_blocking(move || {
        let mut survey = Surveyor::new(source.format, options);
        let outcome = read(
            &source.path,
            source.format,
            &source.read_options,
            &mut |event| survey.add(event),
        );
        match (survey.refusal.take(), outcome) {
            (Some(why), Err(ReadError::Stopped(_))) => anyhow::bail!(why),
            (_, outcome) => outcome?,
        }
        survey.finish_conversation();
        Ok(survey.result)
    })
    .await
    .context("the reader panicked")?
}

struct Surveyor {
    format: Format,
    options: ImportOptions,
    result: FileSurvey,
    current: Option<CurrentConversation>,
    /// Number of conversations without an identity so far, by content.
    content_counts: HashMap<Key, u64>,
    /// Why a strict import stops; None: it goes on.
    refusal: Option<String>,
}

/// The conversation that is being read.
struct CurrentConversation {
    head: Head,
    messages: u64,
    summaries: u64,
    /// Digest of the content so far, for the key of a conversation without an identity. Messages
    /// of a conversation with an identity are left out.
    content_digest: Digest,
}

impl Surveyor {
    fn new(format: Format, options: ImportOptions) -> Self {
        Self {
            format,
            options,
            result: FileSurvey::default(),
            current: None,
            content_counts: HashMap::new(),
            refusal: None,
        }
    }

    fn add(&mut self, event: FileEvent) -> Result<(), Stopped> {
        match event {
            FileEvent::Conversation(head) => {
                self.finish_conversation();
                let labels = head
                    .metadata
                    .iter()
                    .flat_map(|(key, value)| [key.as_bytes(), value.as_bytes()]);
                let content_digest =
                    digest::of_fields(std::iter::once(head.system_prompt.as_bytes()).chain(labels));
                self.current = Some(CurrentConversation {
                    head,
                    messages: 0,
                    summaries: 0,
                    content_digest,
                });
            }
            FileEvent::Message(message) => self.add_message(message)?,
            FileEvent::Summary(summary) => {
                self.add_to_digest(&[
                    b"summary",
                    &summary.covers.to_be_bytes(),
                    summary.text.as_bytes(),
                ]);
                self.current
                    .iter_mut()
                    .for_each(|current| current.summaries += 1);
            }
            FileEvent::Separator => self.add_to_digest(&[b"separator"]),
            FileEvent::Remark(_) => {}
        }
        Ok(())
    }

    fn add_message(&mut self, message: Message) -> Result<(), Stopped> {
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        current.messages += 1;
        if current.head.identity.is_empty() {
            let content = append::content_json(&message);
            let message_digest = digest::of_append(std::slice::from_ref(&message), &[content]);
            current.content_digest =
                digest::of_fields([current.content_digest.as_slice(), &message_digest]);
        }
        if self.options.strict == Strictness::Strict
            && let Err(why) = append::check_message(message)
        {
            self.refusal = Some(format!("message {}: {why}", current.messages));
            return Err(Stopped);
        }
        Ok(())
    }

    fn add_to_digest(&mut self, fields: &[&[u8]]) {
        if let Some(current) = &mut self.current {
            current.content_digest = digest::of_fields(
                std::iter::once(current.content_digest.as_slice()).chain(fields.iter().copied()),
            );
        }
    }

    /// Ends the current conversation. Its key is made of its identity, otherwise of its content and
    /// its number among the conversations with the same content: 1, 2, 3 …
    fn finish_conversation(&mut self) {
        let Some(current) = self.current.take() else {
            return;
        };
        let (messages, summaries) = (current.messages, current.summaries);
        if current.head.identity.is_empty() {
            let agent =
                file_format::agent_id(&self.options.agent, &current.head.agent_id).as_bytes();
            let content_key = digest_prefix(&current.content_digest);
            let number = self.content_counts.entry(content_key).or_default();
            *number += 1;
            let user = self.options.user.as_bytes();
            let fields = [
                b"content".as_slice(),
                &current.content_digest,
                agent,
                user,
                &number.to_be_bytes(),
            ];
            let key = digest_prefix(&digest::of_fields(fields));
            self.result
                .without_identity
                .push_back(ExpectedConversation {
                    key,
                    messages,
                    summaries,
                });
        } else {
            let key = identity_key(self.format, &self.options, &current.head);
            self.result.with_identity.insert(
                key,
                ExpectedConversation {
                    key,
                    messages,
                    summaries,
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use anneal_formats::{Branches, ReadOptions};

    use super::*;

    fn head(identity: &str) -> Head {
        Head {
            identity: identity.to_owned(),
            ..Head::default()
        }
    }

    fn surveyed(heads: &[&str]) -> FileSurvey {
        let mut survey = Surveyor::new(Format::ZeroClaw, ImportOptions::default());
        for identity in heads {
            survey
                .add(FileEvent::Conversation(head(identity)))
                .expect("the import is not strict");
        }
        survey.finish_conversation();
        survey.result
    }

    #[test]
    fn a_conversation_keeps_its_key_if_the_file_changes_between_the_passes() {
        let (options, format) = (ImportOptions::default(), Format::ZeroClaw);
        let key = |identity| {
            surveyed(&[identity])
                .find(format, &options, &head(identity))
                .expect("known")
                .key
        };
        let mut result = surveyed(&["a", "b"]);
        for identity in ["b", "new", "a"] {
            assert_eq!(
                result
                    .find(format, &options, &head(identity))
                    .expect("known")
                    .key,
                key(identity),
                "{identity}"
            );
        }
    }

    /// Peak memory of this process in bytes; None if the system does not report it.
    fn peak_memory() -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(
            line.trim()
                .strip_suffix(" kB")?
                .trim()
                .parse::<u64>()
                .ok()?
                * 1024,
        )
    }

    #[tokio::test]
    async fn a_survey_takes_few_bytes_per_conversation() {
        const CONVERSATIONS: u64 = 500_000;
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let mut out = std::io::BufWriter::new(&mut file);
        for number in 0..CONVERSATIONS {
            writeln!(
                out,
                "{{\"messages\":[{{\"role\":\"user\",\"content\":\"{number}\"}}]}}"
            )
            .expect("writes");
        }
        drop(out);
        let read_options = ReadOptions {
            strict: Strictness::Lenient,
            branches: Branches::Active,
            name: "many".into(),
        };
        let source = Source {
            path: file.path().to_owned(),
            format: Format::OpenAi,
            read_options,
            origin: None,
            index: None,
        };
        let before = peak_memory();
        let result = survey_file(&source, &ImportOptions::default())
            .await
            .expect("reads");
        assert_eq!(
            (result.without_identity.len() as u64, result.messages()),
            (CONVERSATIONS, CONVERSATIONS)
        );
        // Each ExpectedConversation has 32 bytes. The rest of the bound is for the key in
        // `content_counts`, and for the spare room of the collections while they grow.
        if let (Some(before), Some(after)) = (before, peak_memory()) {
            assert!(
                after - before < 160 * CONVERSATIONS,
                "{} bytes per conversation",
                (after - before) / CONVERSATIONS
            );
        }
    }

    #[test]
    fn conversations_without_identity_are_found_in_the_order_of_the_file() {
        let mut result = surveyed(&["", ""]);
        let mut find = || result.find(Format::OpenAi, &ImportOptions::default(), &head(""));
        let (first, second) = (find().expect("known"), find().expect("known"));
        assert!(first.key != second.key && find().is_none());
    }
}
