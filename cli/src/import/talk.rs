//! One conversation of a file: what is there already is passed over, what is new is appended.

use std::collections::VecDeque;

use anneal_core::{digest, limits::MESSAGES_PER_APPEND, message::Message};
use anneal_formats::{Fate, Strictness, Summary};
use anneal_proto::v1 as pb;
use prost::Message as _;
use tonic::Code;

use super::{
    hold,
    keys::{Expected, hex},
    report::{Place, Report},
    wire::{self, BATCH_BYTES, Target},
};
use crate::{
    client::{Client, patiently, refusal},
    pages::Pages,
};

/// A conversation that is being imported.
pub(super) struct Talk {
    pub(super) id: String,
    /// What the file calls it; empty: nothing.
    pub(super) title: String,
    /// Messages stored by this run.
    pub(super) stored: usize,
    /// Messages of the file that were stored before.
    pub(super) known: usize,
    /// Messages that were not kept because the conversation keeps no tools.
    pub(super) tools_dropped: usize,
    key: String,
    strict: Strictness,
    /// Messages that were stored when the run began.
    before: i64,
    /// The newest stored message that the file has been read up to.
    at: i64,
    /// Messages of the file that have been read.
    position: u64,
    /// Places of the file from which on so many of its messages are not stored.
    missing: Vec<(u64, u64)>,
    /// What is stored already.
    pages: Pages,
    /// Messages of the newest page that the file has not come to yet.
    page: VecDeque<pb::Message>,
    batch: Vec<pb::NewMessage>,
    batch_bytes: usize,
    /// Summaries of the file that are still to come.
    summaries: u64,
    triggers: Triggers,
    /// The rest of it is not imported.
    refused: bool,
}

/// Whether the conversation's triggers hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Triggers {
    InForce,
    /// They are off, until the file's last summary is there.
    Held,
}

impl Talk {
    /// The conversation under this key, as it is now.
    pub(super) fn new(
        client: &Client,
        expected: Expected,
        conversation: pb::Conversation,
        title: String,
        strict: Strictness,
    ) -> Self {
        Self {
            pages: Pages::of(client, &conversation.conversation_id),
            page: VecDeque::new(),
            summaries: expected.summaries,
            triggers: if hold::is_held(&conversation) { Triggers::Held } else { Triggers::InForce },
            id: conversation.conversation_id,
            title,
            stored: 0,
            known: 0,
            tools_dropped: 0,
            key: expected.key,
            strict,
            before: conversation.message_count,
            at: 0,
            position: 0,
            missing: Vec::new(),
            batch: Vec::new(),
            batch_bytes: 0,
            refused: false,
        }
    }

    /// Takes the file's next message.
    pub(super) async fn message(
        &mut self,
        client: &Client,
        message: Message,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        if self.refused {
            return Ok(());
        }
        let message = match wire::acceptable(message) {
            Ok(message) => message,
            Err(why) => {
                self.flush(client).await?;
                self.advance(false);
                return self.remark(report, Place::Message(self.position), Fate::Refused, &why);
            }
        };
        if self.at < self.before {
            return self.pass(&message, report).await;
        }
        let bytes = message.encoded_len();
        if self.batch.len() >= MESSAGES_PER_APPEND || self.batch_bytes + bytes > BATCH_BYTES {
            self.flush(client).await?;
        }
        self.batch_bytes += bytes;
        self.batch.push(message);
        Ok(())
    }

    /// Passes over a message that an earlier run has stored, or whose calls or results that run's policy did not keep.
    async fn pass(&mut self, message: &pb::NewMessage, report: &mut Report) -> anyhow::Result<()> {
        let stored = self.stored().await?;
        let without = if wire::has_tools(message) { Some(wire::without_tools(message)) } else { None };
        if same(&stored, message) || without.iter().flatten().any(|kept| same(&stored, kept)) {
            self.at += 1;
            self.known += 1;
            self.advance(true);
            return Ok(());
        }
        self.page.push_front(stored);
        if without == Some(None) {
            self.tools_dropped += 1;
            self.advance(false);
            return Ok(());
        }
        self.refused = true;
        let what = format!(
            "conversation {} holds something else as message {}: the file was rewritten, or the conversation has gone on \
             by itself; nothing was added",
            self.id,
            self.at + 1
        );
        self.advance(false);
        self.remark(report, Place::Message(self.position), Fate::Refused, &what)
    }

    /// The next stored message.
    async fn stored(&mut self) -> anyhow::Result<pb::Message> {
        while self.page.is_empty() {
            match self.pages.next_or_figures().await.map_err(|status| refusal(&status))? {
                Some(page) => self.page = page.messages.into(),
                None => anyhow::bail!("conversation {} was deleted meanwhile", self.id),
            }
        }
        Ok(self.page.pop_front().unwrap_or_default())
    }

    /// The user's mark.
    pub(super) async fn separator(&mut self, client: &Client) -> anyhow::Result<()> {
        self.flush(client).await?;
        if self.refused || self.at < self.before {
            return Ok(());
        }
        let ask = pb::InsertSeparatorRequest {
            conversation_id: self.id.clone(),
            request_id: format!("import:{}:{}", self.key, self.at),
            expected_last_message_id: Some(self.at),
        };
        let put = patiently(async || client.messages().insert_separator(ask.clone()).await).await;
        put.map_err(|status| refusal(&status))?;
        Ok(())
    }

    /// A summary of the other system's becomes a checkpoint where it can be one.
    pub(super) async fn summary(
        &mut self,
        client: &Client,
        summary: Summary,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        self.flush(client).await?;
        self.summaries = self.summaries.saturating_sub(1);
        if !self.refused && self.at >= self.before {
            self.checkpoint(client, summary, report).await?;
        }
        if self.summaries == 0 { self.release(client).await } else { Ok(()) }
    }

    async fn checkpoint(&self, client: &Client, summary: Summary, report: &mut Report) -> anyhow::Result<()> {
        let last_message_id = self.stored_at(summary.covers);
        if last_message_id == 0 {
            let what = "a summary stands for no message that is kept";
            return self.remark(report, Place::Message(self.position), Fate::SetAside, what);
        }
        let content = digest::of_fields([summary.text.as_bytes(), summary.model.as_bytes()]);
        let ask = pb::ImportCheckpointRequest {
            conversation_id: self.id.clone(),
            request_id: format!("import:{}:{}:{}", self.key, last_message_id, hex(&content)),
            last_message_id,
            summary: summary.text,
            model: summary.model,
        };
        let made = patiently(async || client.contexts().import_checkpoint(ask.clone()).await).await;
        match made {
            Ok(_) => Ok(()),
            Err(status) if matches!(status.code(), Code::FailedPrecondition | Code::InvalidArgument) => {
                let what = format!("a summary up to message {last_message_id} is no checkpoint: {}", status.message());
                self.remark(report, Place::Message(self.position), Fate::SetAside, &what)
            }
            Err(status) => Err(refusal(&status)),
        }
    }

    /// Sends what is left; the triggers hold again.
    pub(super) async fn close(&mut self, client: &Client) -> anyhow::Result<()> {
        self.flush(client).await?;
        self.release(client).await
    }

    /// Turns the triggers off, where a summary is still to come.
    async fn hold(&mut self, client: &Client) -> anyhow::Result<()> {
        if self.summaries == 0 || self.triggers == Triggers::Held {
            return Ok(());
        }
        let conversation = hold::find(client, &self.id).await?;
        hold::change(client, conversation, hold::held).await?;
        self.triggers = Triggers::Held;
        Ok(())
    }

    /// Puts the triggers back; the server looks at the whole tail then.
    async fn release(&mut self, client: &Client) -> anyhow::Result<()> {
        if self.triggers == Triggers::Held {
            let conversation = hold::find(client, &self.id).await?;
            hold::change(client, conversation, hold::released).await?;
            self.triggers = Triggers::InForce;
        }
        Ok(())
    }

    async fn flush(&mut self, client: &Client) -> anyhow::Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        if batch.is_empty() {
            return Ok(());
        }
        self.hold(client).await?;
        let count = batch.len();
        let target = Target { conversation: &self.id, key: &self.key, after: self.at };
        let appended = wire::append(client, target, batch).await?;
        let dropped = count - appended.messages.len();
        self.at += appended.messages.len() as i64;
        self.stored += appended.messages.len();
        self.tools_dropped += dropped;
        for place in 0..count {
            let skipped = dropped > 0 && appended.skipped.contains(&(place as i32));
            self.advance(!skipped);
        }
        Ok(())
    }

    /// Another message of the file has been read, and is stored or not.
    fn advance(&mut self, is_stored: bool) {
        self.position += 1;
        if !is_stored {
            let missing = self.missing.last().map_or(0, |(_, missing)| *missing);
            self.missing.push((self.position, missing + 1));
        }
    }

    /// The stored message that the first `messages` of the file end with.
    fn stored_at(&self, messages: u64) -> i64 {
        let before = self.missing.partition_point(|(position, _)| *position <= messages);
        let missing = before.checked_sub(1).map_or(0, |last| self.missing[last].1);
        messages.saturating_sub(missing) as i64
    }

    fn remark(&self, report: &mut Report, place: Place, fate: Fate, what: &str) -> anyhow::Result<()> {
        if self.strict == Strictness::Strict && fate == Fate::Refused {
            anyhow::bail!("message {}: {what}", self.position);
        }
        report.remark(&self.id, place, fate, what);
        Ok(())
    }
}

/// Whether a stored message is one of the file's. One that came without its parts is compared by its size.
fn same(stored: &pb::Message, wanted: &pb::NewMessage) -> bool {
    let same = match stored.parts.as_slice() {
        [] => stored.text_bytes == wire::text_bytes(wanted),
        parts => parts == wanted.parts,
    };
    same && stored.role == wanted.role
}
