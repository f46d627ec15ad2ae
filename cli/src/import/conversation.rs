//! Imports one conversation of a file: skips messages that are stored already, and appends new
//! ones.

use anneal_core::{digest, limits::MESSAGES_PER_APPEND, message::Message};
use anneal_formats::{Format, ImportOutcome, Strictness, Summary};
use anneal_proto::v1 as pb;
use prost::Message as _;
use tonic::Code;

use super::{
    append::{self, AppendTarget, BATCH_BYTES},
    branches::BranchSource,
    digest_prefix::hex_prefix,
    pause_triggers,
    report::{Report, ReportLocation},
    stored_ids::StoredIds,
    stored_messages::{Comparison, StoredMessages, first_version},
    survey::ExpectedConversation,
    tool_retention::ToolRetention,
};
use crate::client::{Client, failed_call, get_conversation, retry};

/// A conversation that is being imported.
pub(super) struct ImportedConversation {
    pub(super) id: String,
    /// The title in the file; empty: none.
    pub(super) title: String,
    /// Messages stored by this run.
    pub(super) newly_stored: usize,
    /// Messages of the file that were stored before.
    pub(super) already_stored: usize,
    /// Messages that were not stored, or were found stored without their tool parts, because the
    /// conversation stores no tool messages.
    pub(super) tools_dropped: usize,
    /// The key of the conversation in request ids, as hex digits.
    key: String,
    strict: Strictness,
    /// Number of stored messages at the start of the run.
    initial_message_count: i64,
    /// Id of the newest stored message that corresponds to a message of the file.
    reached_message_id: i64,
    /// Which messages of the file are stored.
    stored_ids: StoredIds,
    /// Number of messages, summaries and separators of the file so far.
    items: u64,
    /// How many of them the conversation has taken over as a fork.
    shared_items: u64,
    /// Reads the messages that are stored already.
    stored_messages: StoredMessages,
    format: Format,
    tool_retention: ToolRetention,
    batch: Vec<PendingMessage>,
    batch_bytes: usize,
    /// Number of summaries of the file that are still to come.
    remaining_summaries: u64,
    trigger_state: TriggerState,
    /// Whether the messages of the file from here on are refused.
    rest_is_refused: bool,
}

/// A message that is not sent yet.
struct PendingMessage {
    message: pb::NewMessage,
    piece: Piece,
}

/// The piece of a message of the file that becomes one stored message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// The whole message, or its beginning.
    First,
    /// Parts that the file added to the message after its beginning was stored.
    Later,
}

/// How the file is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadSettings {
    pub(super) format: Format,
    pub(super) strict: Strictness,
}

/// The state of the conversation's triggers: the thresholds at which the worker makes checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TriggerState {
    Active,
    /// Off until the last summary of the file is imported.
    Paused,
}

impl ImportedConversation {
    /// Starts the import of a conversation that exists on the server.
    pub(super) fn new(
        client: &Client,
        expected: ExpectedConversation,
        conversation: pb::Conversation,
        title: String,
        settings: ReadSettings,
    ) -> Self {
        Self {
            stored_messages: StoredMessages::of(client, &conversation.conversation_id),
            tool_retention: ToolRetention::of(&conversation),
            format: settings.format,
            strict: settings.strict,
            remaining_summaries: expected.summaries,
            trigger_state: if pause_triggers::are_triggers_paused(&conversation) {
                TriggerState::Paused
            } else {
                TriggerState::Active
            },
            id: conversation.conversation_id,
            title,
            newly_stored: 0,
            already_stored: 0,
            tools_dropped: 0,
            key: hex_prefix(&expected.key),
            initial_message_count: conversation.message_count,
            reached_message_id: 0,
            stored_ids: StoredIds::default(),
            items: 0,
            shared_items: 0,
            batch: Vec::new(),
            batch_bytes: 0,
            rest_is_refused: false,
        }
    }

    /// The same import, in which the conversation has taken over the first `items` messages,
    /// summaries and separators of the file as a fork.
    #[must_use]
    pub(super) const fn with_shared_items(mut self, items: u64) -> Self {
        self.shared_items = items;
        self
    }

    /// The imported conversation, from which branches may lead off.
    pub(super) fn into_branch_source(self) -> BranchSource {
        BranchSource {
            conversation_id: self.id,
            stored_ids: self.stored_ids,
        }
    }

    /// Adds the next message of the file.
    pub(super) async fn add_message(
        &mut self,
        client: &Client,
        message: Message,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        self.items += 1;
        if self.rest_is_refused {
            return Ok(());
        }
        let message = match append::check_message(message) {
            Ok(message) => message,
            Err(why) => {
                self.flush(client, report).await?;
                self.stored_ids.advance(0);
                return self.remark(
                    report,
                    ReportLocation::Message(self.stored_ids.position()),
                    ImportOutcome::Refused,
                    &why,
                );
            }
        };
        let Some((message, piece)) = self.skip_stored_part(client, message, report).await? else {
            return Ok(());
        };
        let bytes = message.encoded_len();
        if self.batch.len() >= MESSAGES_PER_APPEND || self.batch_bytes + bytes > BATCH_BYTES {
            self.flush(client, report).await?;
        }
        self.batch_bytes += bytes;
        self.batch.push(PendingMessage { message, piece });
        Ok(())
    }

    /// Skips the parts of the message that earlier runs stored, or did not store because they are
    /// tool parts. Returns the rest, which must be stored now; None: nothing. The last message of a
    /// growing log may have more parts than in an earlier run. The added parts become a message
    /// of their own after the stored one, and contexts join the two.
    async fn skip_stored_part(
        &mut self,
        client: &Client,
        mut message: pb::NewMessage,
        report: &mut Report,
    ) -> anyhow::Result<Option<(pb::NewMessage, Piece)>> {
        let mut piece = Piece::First;
        while self.reached_message_id < self.initial_message_count {
            let stored_message = self.stored_messages.next().await?;
            if append::has_tools(&stored_message.parts) {
                self.note_tools_stored(report)?;
            }
            let comparison = self.compare(client, &stored_message, &message).await?;
            if matches!(comparison, Comparison::OnlyTools | Comparison::Other) {
                self.stored_messages.put_back(stored_message);
                if piece == Piece::First {
                    self.stored_ids.advance(0);
                }
                match comparison {
                    Comparison::OnlyTools => self.count_missing_tools(report)?,
                    _ => self.refuse_rest(report)?,
                }
                return Ok(None);
            }
            self.reached_message_id += 1;
            self.already_stored += 1;
            self.advance_piece(piece, 1);
            match comparison {
                Comparison::Beginning(rest) => (message, piece) = (rest, Piece::Later),
                Comparison::WithoutTools => return self.count_missing_tools(report).map(|()| None),
                Comparison::SameRole => {
                    match self.find_erased_rest(client, &message, report).await? {
                        Some(rest) => (message, piece) = (rest, Piece::Later),
                        None => return Ok(None),
                    }
                }
                _ => return Ok(None),
            }
        }
        Ok(Some((message, piece)))
    }

    /// Compares a stored message with a message of the file. An edited one is compared as it was
    /// stored at first, or by its role if that is not kept any more.
    async fn compare(
        &self,
        client: &Client,
        stored: &pb::Message,
        in_file: &pb::NewMessage,
    ) -> anyhow::Result<Comparison> {
        let compare = |stored: &pb::Message| {
            Comparison::of(stored, in_file, self.format, &self.tool_retention)
        };
        let comparison = compare(stored);
        if stored.erased || stored.version <= 1 || matches!(comparison, Comparison::Same) {
            return Ok(comparison);
        }
        let first = first_version(client, &self.id, stored.message_id).await?;
        Ok(first.as_ref().map_or_else(
            || Comparison::of_role(stored, in_file, &self.tool_retention),
            compare,
        ))
    }

    /// Finds the parts of a message that are stored as the next message, if only the role of the
    /// stored message before it is known: that one may have been only the beginning. If no message
    /// is stored after that one, nothing says which parts the file has added since. They are then
    /// left out, and reported: they may be erased ones.
    async fn find_erased_rest(
        &mut self,
        client: &Client,
        message: &pb::NewMessage,
        report: &mut Report,
    ) -> anyhow::Result<Option<pb::NewMessage>> {
        let all_but_last = message.parts.len().saturating_sub(1);
        if append::added_parts(message, all_but_last, self.format).is_none() {
            return Ok(None);
        }
        if self.reached_message_id == self.initial_message_count {
            let what = "its imported content was erased: calls and results that the file may have added to it since \
                are not imported";
            let location = ReportLocation::Message(self.stored_ids.position());
            self.remark(report, location, ImportOutcome::SetAside, what)?;
            return Ok(None);
        }
        let next = self.stored_messages.next().await?;
        let mut found = None;
        for stored_parts in 1..message.parts.len() {
            let Some(rest) = append::added_parts(message, stored_parts, self.format) else {
                continue;
            };
            let comparison = self.compare(client, &next, &rest).await?;
            if matches!(
                comparison,
                Comparison::Same | Comparison::SameRole | Comparison::Beginning(_)
            ) {
                found = Some(rest);
                break;
            }
        }
        self.stored_messages.put_back(next);
        Ok(found)
    }

    /// Refuses the rest of the conversation, because its stored messages differ from the file.
    fn refuse_rest(&mut self, report: &mut Report) -> anyhow::Result<()> {
        self.rest_is_refused = true;
        // A fork has an edited message as it stood, as its first version.
        let why = if self.items <= self.shared_items {
            "the file was rewritten, or the message was edited before the conversation was forked"
        } else {
            "the file was rewritten, or others have appended to the conversation"
        };
        let what = format!(
            "message {} of conversation {} differs from the file: {why}; nothing was added",
            self.reached_message_id + 1,
            self.id
        );
        self.remark(
            report,
            ReportLocation::Message(self.stored_ids.position()),
            ImportOutcome::Refused,
            &what,
        )
    }

    /// Counts a message whose tool parts earlier runs have not stored. Reports it if the
    /// conversation is known to store tool parts.
    fn count_missing_tools(&mut self, report: &mut Report) -> anyhow::Result<()> {
        self.tools_dropped += 1;
        if self
            .tool_retention
            .note_not_stored(self.stored_ids.position())
        {
            self.report_missing_tools(&[self.stored_ids.position()], report)
        } else {
            Ok(())
        }
    }

    /// Notes that the conversation stores tool messages. Reports the messages whose tool parts are
    /// missing.
    fn note_tools_stored(&mut self, report: &mut Report) -> anyhow::Result<()> {
        let missing = self.tool_retention.note_stored();
        self.report_missing_tools(&missing, report)
    }

    fn report_missing_tools(
        &mut self,
        messages: &[u64],
        report: &mut Report,
    ) -> anyhow::Result<()> {
        for message in messages {
            self.tools_dropped -= 1;
            let what = "its calls or results of tools were not in the file at the first import; later messages are stored \
                already, so they are not added";
            self.remark(
                report,
                ReportLocation::Message(*message),
                ImportOutcome::Refused,
                what,
            )?;
        }
        Ok(())
    }

    /// Inserts a separator after the messages added so far, unless an earlier run has done so, the
    /// conversation has taken it over as a fork, or its rest is refused.
    pub(super) async fn add_separator(
        &mut self,
        client: &Client,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        self.flush(client, report).await?;
        if !self.is_next_item_new() {
            return Ok(());
        }
        let ask = pb::InsertSeparatorRequest {
            conversation_id: self.id.clone(),
            request_id: format!("import:{}:{}", self.key, self.reached_message_id),
            expected_last_message_id: Some(self.reached_message_id),
            // The file says where the separator is.
            part_tool_pairs: true,
        };
        let inserted = retry(async || client.messages().insert_separator(ask.clone()).await).await;
        inserted.map_err(|status| failed_call(&status))?;
        Ok(())
    }

    /// Imports a summary as a checkpoint, if it can be one, no earlier run has done so, and the
    /// conversation has not taken it over as a fork. After the file's last summary, restores the
    /// triggers.
    pub(super) async fn add_summary(
        &mut self,
        client: &Client,
        summary: Summary,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        self.flush(client, report).await?;
        self.remaining_summaries = self.remaining_summaries.saturating_sub(1);
        if self.is_next_item_new() {
            self.import_checkpoint(client, summary, report).await?;
        }
        if self.remaining_summaries == 0 {
            self.restore_triggers(client).await
        } else {
            Ok(())
        }
    }

    /// Counts the next separator or summary of the file. Returns whether it must be stored now.
    const fn is_next_item_new(&mut self) -> bool {
        self.items += 1;
        !self.rest_is_refused
            && self.items > self.shared_items
            && self.reached_message_id >= self.initial_message_count
    }

    async fn import_checkpoint(
        &self,
        client: &Client,
        summary: Summary,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let last_message_id = self.stored_ids.last_stored(summary.covers);
        if last_message_id == 0 {
            let what = "none of the messages that a summary covers is stored";
            return self.remark(
                report,
                ReportLocation::Message(self.stored_ids.position()),
                ImportOutcome::SetAside,
                what,
            );
        }
        let content = [summary.text.as_bytes(), summary.model.as_bytes()];
        let summary_key = hex_prefix(&digest::of_fields(content));
        let ask = pb::ImportCheckpointRequest {
            conversation_id: self.id.clone(),
            request_id: format!("import:{}:{last_message_id}:{summary_key}", self.key),
            last_message_id,
            summary: summary.text,
            model: summary.model,
            tokens_before: summary.tokens_before,
            tokens_after: summary.tokens_after,
        };
        let made = retry(async || client.contexts().import_checkpoint(ask.clone()).await).await;
        match made {
            Ok(_) => Ok(()),
            Err(status)
                if matches!(
                    status.code(),
                    Code::FailedPrecondition | Code::InvalidArgument
                ) =>
            {
                let what = format!(
                    "a summary up to message {last_message_id} cannot be a checkpoint: {}",
                    status.message()
                );
                self.remark(
                    report,
                    ReportLocation::Message(self.stored_ids.position()),
                    ImportOutcome::SetAside,
                    &what,
                )
            }
            Err(status) => Err(failed_call(&status)),
        }
    }

    /// Sends the remaining messages and restores the triggers.
    pub(super) async fn finish(
        &mut self,
        client: &Client,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        self.flush(client, report).await?;
        self.restore_triggers(client).await
    }

    /// Pauses the triggers, if summaries are still to come and the triggers are not paused yet.
    async fn pause_triggers(&mut self, client: &Client) -> anyhow::Result<()> {
        if self.remaining_summaries == 0 || self.trigger_state == TriggerState::Paused {
            return Ok(());
        }
        let conversation = get_conversation(client, &self.id).await?;
        pause_triggers::update_conversation(
            client,
            conversation,
            pause_triggers::with_paused_triggers,
        )
        .await?;
        self.trigger_state = TriggerState::Paused;
        Ok(())
    }

    /// Restores the triggers. The server then examines the whole tail.
    pub(super) async fn restore_triggers(&mut self, client: &Client) -> anyhow::Result<()> {
        if self.trigger_state == TriggerState::Paused {
            let conversation = get_conversation(client, &self.id).await?;
            pause_triggers::update_conversation(
                client,
                conversation,
                pause_triggers::with_restored_triggers,
            )
            .await?;
            self.trigger_state = TriggerState::Active;
        }
        Ok(())
    }

    /// Pauses the triggers if necessary, appends the batch, and records which messages were stored.
    async fn flush(&mut self, client: &Client, report: &mut Report) -> anyhow::Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        if batch.is_empty() {
            return Ok(());
        }
        self.pause_triggers(client).await?;
        let (pieces, batch): (Vec<Piece>, Vec<pb::NewMessage>) = batch
            .into_iter()
            .map(|pending| (pending.piece, pending.message))
            .unzip();
        let only_tools: Vec<bool> = batch
            .iter()
            .map(|message| append::has_only_tools(&message.parts))
            .collect();
        let target = AppendTarget {
            conversation_id: &self.id,
            key: &self.key,
            after_message_id: self.reached_message_id,
        };
        let appended = append::append(client, target, batch).await?;
        let dropped = pieces.len() - appended.messages.len();
        self.reached_message_id += appended.messages.len() as i64;
        self.newly_stored += appended.messages.len();
        self.tools_dropped += dropped;
        let mut tools_are_stored = false;
        for (index, (piece, has_only_tools)) in (0..).zip(pieces.into_iter().zip(only_tools)) {
            let is_stored = !appended.skipped.contains(&index);
            tools_are_stored |= has_only_tools && is_stored;
            self.advance_piece(piece, i64::from(is_stored));
        }
        if tools_are_stored {
            self.note_tools_stored(report)
        } else {
            Ok(())
        }
    }

    /// Advances over a piece of a message, which is stored as `stored_count` messages (0 or 1).
    fn advance_piece(&mut self, piece: Piece, stored_count: i64) {
        match piece {
            Piece::First => self.stored_ids.advance(stored_count),
            // A stored message for which the file has no message of its own.
            Piece::Later => self.stored_ids.add_missing(-stored_count),
        }
    }

    /// Adds a remark to the report. In a strict import, a refusal is an error instead.
    fn remark(
        &self,
        report: &mut Report,
        location: ReportLocation,
        outcome: ImportOutcome,
        what: &str,
    ) -> anyhow::Result<()> {
        if self.strict == Strictness::Strict && outcome == ImportOutcome::Refused {
            anyhow::bail!("message {}: {what}", self.stored_ids.position());
        }
        report.remark(&self.id, location, outcome, what);
        Ok(())
    }
}
