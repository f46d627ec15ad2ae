//! One conversation of a file: what is there already is passed over, what is new is appended.

use anneal_core::{digest, limits::MESSAGES_PER_APPEND, message::Message};
use anneal_formats::{Fate, Format, Strictness, Summary};
use anneal_proto::v1 as pb;
use prost::Message as _;
use tonic::Code;

use super::{
    hold,
    keys::{Expected, hex},
    report::{Place, Report},
    stored::{Likeness, Stored},
    tools::Tools,
    wire::{self, BATCH_BYTES, Target},
};
use crate::client::{Client, patiently, refusal};

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
    /// Places of the file from which on so many fewer messages are stored than it holds; below zero: more.
    missing: Vec<(u64, i64)>,
    /// What is stored already.
    earlier: Stored,
    format: Format,
    tools: Tools,
    batch: Vec<Sent>,
    batch_bytes: usize,
    /// Summaries of the file that are still to come.
    summaries: u64,
    triggers: Triggers,
    /// The rest of it is not imported.
    refused: bool,
}

/// A message on its way.
struct Sent {
    message: pb::NewMessage,
    /// Whether it begins a message of the file's, or is what that has got since its beginning was stored.
    piece: Piece,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    First,
    Later,
}

/// How the file's conversation is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    pub(super) format: Format,
    pub(super) strict: Strictness,
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
        manner: Manner,
    ) -> Self {
        Self {
            earlier: Stored::of(client, &conversation.conversation_id),
            tools: Tools::of(&conversation),
            format: manner.format,
            strict: manner.strict,
            summaries: expected.summaries,
            triggers: if hold::is_held(&conversation) { Triggers::Held } else { Triggers::InForce },
            id: conversation.conversation_id,
            title,
            stored: 0,
            known: 0,
            tools_dropped: 0,
            key: hex(&expected.key),
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
                self.flush(client, report).await?;
                self.advance(0);
                return self.remark(report, Place::Message(self.position), Fate::Refused, &why);
            }
        };
        let Some((message, piece)) = self.pass(message, report).await? else { return Ok(()) };
        let bytes = message.encoded_len();
        if self.batch.len() >= MESSAGES_PER_APPEND || self.batch_bytes + bytes > BATCH_BYTES {
            self.flush(client, report).await?;
        }
        self.batch_bytes += bytes;
        self.batch.push(Sent { message, piece });
        Ok(())
    }

    /// Passes over what earlier runs have stored of the message, or have not kept because it is of tools. Returns what is
    /// left to be stored. A log that is written to while it is imported may have got more of its last message since: that
    /// comes after what is stored of it, as a message of its own, and contexts join the two.
    async fn pass(
        &mut self,
        mut message: pb::NewMessage,
        report: &mut Report,
    ) -> anyhow::Result<Option<(pb::NewMessage, Piece)>> {
        let mut piece = Piece::First;
        while self.at < self.before {
            let stored = self.earlier.next().await?;
            if wire::has_tools(&stored.parts) {
                self.tools_are_stored(report)?;
            }
            let likeness = Likeness::of(&stored, &message, self.format);
            if matches!(likeness, Likeness::OnlyTools | Likeness::Other) {
                self.earlier.put_back(stored);
                if piece == Piece::First {
                    self.advance(0);
                }
                match likeness {
                    Likeness::OnlyTools => self.lacks_tools(report)?,
                    _ => self.differs(report)?,
                }
                return Ok(None);
            }
            self.at += 1;
            self.known += 1;
            self.passed(piece, 1);
            match likeness {
                Likeness::Beginning(rest) => (message, piece) = (rest, Piece::Later),
                Likeness::WithoutTools => return self.lacks_tools(report).map(|()| None),
                _ => return Ok(None),
            }
        }
        Ok(Some((message, piece)))
    }

    /// The rest of the file is left alone.
    fn differs(&mut self, report: &mut Report) -> anyhow::Result<()> {
        self.refused = true;
        let what = format!(
            "conversation {} holds something else as message {}: the file was rewritten, or the conversation has gone on \
             by itself; nothing was added",
            self.id,
            self.at + 1
        );
        self.remark(report, Place::Message(self.position), Fate::Refused, &what)
    }

    /// The newest message that was read has calls or results that are not stored, and others after it are.
    fn lacks_tools(&mut self, report: &mut Report) -> anyhow::Result<()> {
        self.tools_dropped += 1;
        if self.tools.lack(self.position) { self.tools_are_missing(&[self.position], report) } else { Ok(()) }
    }

    /// The conversation keeps tools.
    fn tools_are_stored(&mut self, report: &mut Report) -> anyhow::Result<()> {
        let missing = self.tools.are_stored();
        self.tools_are_missing(&missing, report)
    }

    fn tools_are_missing(&mut self, messages: &[u64], report: &mut Report) -> anyhow::Result<()> {
        for message in messages {
            self.tools_dropped -= 1;
            let what = "its calls or results of tools were not there when it was imported first; what came after them is \
                stored already, and they are not added";
            self.remark(report, Place::Message(*message), Fate::Refused, what)?;
        }
        Ok(())
    }

    /// The user's mark.
    pub(super) async fn separator(&mut self, client: &Client, report: &mut Report) -> anyhow::Result<()> {
        self.flush(client, report).await?;
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
        self.flush(client, report).await?;
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
            tokens_before: summary.tokens_before,
            tokens_after: summary.tokens_after,
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
    pub(super) async fn close(&mut self, client: &Client, report: &mut Report) -> anyhow::Result<()> {
        self.flush(client, report).await?;
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
    pub(super) async fn release(&mut self, client: &Client) -> anyhow::Result<()> {
        if self.triggers == Triggers::Held {
            let conversation = hold::find(client, &self.id).await?;
            hold::change(client, conversation, hold::released).await?;
            self.triggers = Triggers::InForce;
        }
        Ok(())
    }

    async fn flush(&mut self, client: &Client, report: &mut Report) -> anyhow::Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        if batch.is_empty() {
            return Ok(());
        }
        self.hold(client).await?;
        let (pieces, batch): (Vec<Piece>, Vec<pb::NewMessage>) =
            batch.into_iter().map(|sent| (sent.piece, sent.message)).unzip();
        let tools: Vec<bool> = batch.iter().map(|message| wire::are_tools(&message.parts)).collect();
        let target = Target { conversation: &self.id, key: &self.key, after: self.at };
        let appended = wire::append(client, target, batch).await?;
        let dropped = pieces.len() - appended.messages.len();
        self.at += appended.messages.len() as i64;
        self.stored += appended.messages.len();
        self.tools_dropped += dropped;
        let mut tools_are_stored = false;
        for (place, (piece, is_tools)) in (0..).zip(pieces.into_iter().zip(tools)) {
            let is_stored = !appended.skipped.contains(&place);
            tools_are_stored |= is_tools && is_stored;
            self.passed(piece, i64::from(is_stored));
        }
        if tools_are_stored { self.tools_are_stored(report) } else { Ok(()) }
    }

    /// A piece of a message of the file's has been read, and is so many stored ones.
    fn passed(&mut self, piece: Piece, stored: i64) {
        match piece {
            Piece::First => self.advance(stored),
            Piece::Later => self.miss(-stored),
        }
    }

    /// Another message of the file has been read, and is so many stored ones.
    fn advance(&mut self, stored: i64) {
        self.position += 1;
        self.miss(1 - stored);
    }

    /// So many more of the file's messages are not stored.
    fn miss(&mut self, messages: i64) {
        if messages != 0 {
            let missing = self.missing.last().map_or(0, |(_, missing)| *missing);
            self.missing.push((self.position, missing + messages));
        }
    }

    /// The stored message that the first `messages` of the file end with.
    fn stored_at(&self, messages: u64) -> i64 {
        let before = self.missing.partition_point(|(position, _)| *position <= messages);
        let missing = before.checked_sub(1).map_or(0, |last| self.missing[last].1);
        messages as i64 - missing
    }

    fn remark(&self, report: &mut Report, place: Place, fate: Fate, what: &str) -> anyhow::Result<()> {
        if self.strict == Strictness::Strict && fate == Fate::Refused {
            anyhow::bail!("message {}: {what}", self.position);
        }
        report.remark(&self.id, place, fate, what);
        Ok(())
    }
}
