//! Reads the rows from which BuildContext builds a context, in one statement and so in one
//! snapshot. Of a message that is replaced by its summary, the original is not read.

use std::sync::Arc;

use anneal_core::{
    cache::{CacheRules, RequestIdentity},
    caller::{Caller, ConversationId},
    context::{
        Body, CheckpointSummary, Material, OmittedMessage, PrefixVersion, ReadySummary,
        SummaryOrigin, TailMessage,
    },
    digest::Digest,
    limits::{CONTENT_BYTES, CONTEXT_CONTENT_BYTES, SUMMARY_BYTES},
    message::{MessageId, Role},
    policy::PolicyOverrides,
    render::Format,
    tokens::Encoding,
};
use futures::TryStreamExt as _;

use super::{
    columns::{
        Head, HeadColumns, LeftOutRow, MaterialRow, PrefixColumns, StoredTime, SummaryColumns,
    },
    prefix::pending_change,
};
use crate::{
    Store,
    connection::BoundedConnection,
    error::{Entity, StoreError},
    messages::{
        read_budget::{ContentRead, ROW_BYTES, ReadBudget, YIELD_BYTES, parse_within},
        stored_text::StoredText,
    },
    policy_defaults::{PolicyDefaults, StoredPolicy, SwapSettings},
    rows::{self, role_code, tokens},
};

/// How many turns the current input of a BuildContext call starts. This depends on the newest
/// stored message, which is known only when the rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InputTurns {
    /// The number if the newest stored message is a user's.
    pub after_user: i32,
    /// The number if it is not.
    pub otherwise: i32,
}

// context_material.sql and context_left_out.sql use the same number.
const _: () = assert!(ROW_BYTES == 512, "the statements count 512 bytes for a row");

/// The most bytes that content, summaries and tool outlines of one read have. The newest user
/// message is read in addition to the newest [`CONTEXT_CONTENT_BYTES`].
const MAX_TEXT_BYTES: i64 = CONTEXT_CONTENT_BYTES + (CONTENT_BYTES + SUMMARY_BYTES) as i64;

impl Store {
    /// Reads boundary, summary and tail of a conversation, if they fit the budget. `overrides` are
    /// the policy overrides of this call. `ahead` are the turns that the call's input starts:
    /// whether a message is cool depends on the turns after it. `expected` is the policy that the
    /// conversation probably has: if another one is stored, a second statement is needed.
    ///
    /// Returns rows, so that the caller can do the rest of the work on a thread of its choice.
    pub async fn read_context_material(
        &self,
        caller: Caller,
        id: ConversationId,
        ahead: InputTurns,
        overrides: &PolicyOverrides,
        expected: &StoredPolicy,
        budget: &ReadBudget,
    ) -> Result<ContentRead<ContextRows>, StoreError> {
        let ask = MaterialAsk {
            caller,
            id,
            ahead,
            overrides,
            policy_defaults: self.policy_defaults.get(),
        };
        let mut db = self.reads.checkout(caller).await?;
        db.attach_reservation(budget.reservation.clone());
        db.narrow_to(caller, id).await?;
        let mut read = ask.read(&mut db, expected, None, budget).await?;
        db.release().await?;
        if read.exceeds_content_limit() && read.needed_bytes() <= budget.bytes() {
            read = self.read_up_to_content_limit(&ask, &read, budget).await?;
        }
        let needed = read.needed_bytes();
        if needed > budget.bytes() {
            return Ok(ContentRead::TooLarge { bytes: needed });
        }
        let bytes = read.tail.text_bytes + (1 + read.messages()) as u64 * ROW_BYTES;
        Ok(ContentRead::Read { value: read, bytes })
    }

    /// Reads a context whose tail exceeds the content limit: finds the messages that are left out,
    /// then reads the others, in one snapshot. `before` was read in another snapshot.
    async fn read_up_to_content_limit(
        &self,
        ask: &MaterialAsk<'_>,
        before: &ContextRows,
        budget: &ReadBudget,
    ) -> Result<ContextRows, StoreError> {
        let mut db = self.reads.checkout_snapshot(ask.caller).await?;
        db.attach_reservation(budget.reservation.clone());
        db.narrow_to(ask.caller, ask.id).await?;
        let mut read = ask.read(&mut db, &before.policy, None, budget).await?;
        if read.exceeds_content_limit() && read.needed_bytes() <= budget.bytes() {
            let (left_out, mut unread) = ask.find_left_out(&mut db, &read).await?;
            read = ask
                .read(&mut db, &read.policy, Some(left_out), budget)
                .await?;
            let tail = &mut read.tail;
            tail.omitted = unread.omitted;
            tail.withdrawn.append(&mut unread.withdrawn);
            tail.times.append(&mut unread.times);
        }
        db.release().await?;
        Ok(read)
    }
}

/// The conversation whose context is read, and the settings of the call.
struct MaterialAsk<'a> {
    caller: Caller,
    id: ConversationId,
    ahead: InputTurns,
    overrides: &'a PolicyOverrides,
    policy_defaults: Arc<PolicyDefaults>,
}

/// The messages that are not read because newer ones fill the content limit.
#[derive(Debug, Clone, Copy, Default)]
struct LeftOut {
    /// The newest of them; 0: there are none.
    last: i64,
    /// The newest user message, if it is older than that; otherwise 0. It is read nevertheless.
    kept: i64,
}

/// When a message was stored.
struct MessageTime {
    id: i64,
    /// Whether a model wrote it.
    answer: bool,
    stored: StoredTime,
}

/// When the last model call began, as far as stored messages tell: when the message before its
/// answer was stored, which completed its input. If the answer is the first message, when that was
/// stored. None: no message is an answer.
fn last_call_start(times: &[MessageTime]) -> Option<StoredTime> {
    let answer = times
        .iter()
        .filter(|message| message.answer)
        .max_by_key(|message| message.id)?;
    let before = times
        .iter()
        .filter(|message| message.id < answer.id)
        .max_by_key(|message| message.id);
    Some(before.unwrap_or(answer).stored)
}

impl MaterialAsk<'_> {
    /// Reads the rows under the policy that is stored. If it is not the expected one, the first
    /// statement returns only the head row, and another statement follows. `left_out` is None until
    /// it is known that the tail exceeds the content limit.
    async fn read(
        &self,
        db: &mut BoundedConnection,
        expected: &StoredPolicy,
        left_out: Option<LeftOut>,
        budget: &ReadBudget,
    ) -> Result<ContextRows, StoreError> {
        let mut policy = expected.clone();
        loop {
            let read = self.read_under(db, policy, left_out, budget).await?;
            if read.policy.text() == read.head.policy {
                return Ok(read);
            }
            policy = StoredPolicy::new(&read.head.policy);
        }
    }

    /// Reads the rows. Reads only the head row if another policy is stored, or if the tail exceeds
    /// the budget or the content limit, unless it is known which messages are left out.
    async fn read_under(
        &self,
        db: &mut BoundedConnection,
        policy: StoredPolicy,
        left_out: Option<LeftOut>,
        budget: &ReadBudget,
    ) -> Result<ContextRows, StoreError> {
        let settings = self.settings(&policy)?;
        let most_bytes = if left_out.is_some() {
            i64::MAX
        } else {
            CONTEXT_CONTENT_BYTES.min(budget.column() - ROW_BYTES as i64)
        };
        let left_out = left_out.unwrap_or_default();
        let mut incoming = sqlx::query_file_as!(
            MaterialRow,
            "sql/context_material.sql",
            self.caller.tenant().0,
            self.id.0,
            settings.cool_turn(self.ahead.after_user),
            settings.cool_turn(self.ahead.otherwise),
            policy.text(),
            settings.large_threshold,
            settings.stepped,
            settings.model.as_deref(),
            most_bytes,
            left_out.last,
            left_out.kept,
        )
        .fetch(&mut *db);
        let (mut head, mut tail) = (None, Tail::default());
        let mut bytes_since_yield = 0;
        while let Some(row) = incoming.try_next().await? {
            if let MaterialRow {
                head: Some(Head(columns)),
                stored: now,
                ..
            } = row
            {
                head = Some((columns, now));
                continue;
            }
            bytes_since_yield += ROW_BYTES as usize + tail.push_row(row, budget).await?;
            if bytes_since_yield >= YIELD_BYTES {
                bytes_since_yield = 0;
                tokio::task::yield_now().await;
            }
        }
        drop(incoming);
        let (head, now) = head.ok_or(StoreError::NotFound(Entity::Conversation))?;
        Ok(ContextRows {
            head,
            now,
            tail,
            policy,
            policy_defaults: Arc::clone(&self.policy_defaults),
            overrides: self.overrides.clone(),
        })
    }

    fn settings(&self, policy: &StoredPolicy) -> Result<SwapSettings, StoreError> {
        self.policy_defaults.swap_settings(policy, self.overrides)
    }

    /// Finds the messages that are left out of a context whose head row was read in the same
    /// snapshot. Returns them in a tail without read messages.
    async fn find_left_out(
        &self,
        db: &mut BoundedConnection,
        read: &ContextRows,
    ) -> Result<(LeftOut, Tail), StoreError> {
        let head = &read.head;
        let settings = self.settings(&read.policy)?;
        let input_turns = if head.last_role == Some(role_code(Role::User)) {
            self.ahead.after_user
        } else {
            self.ahead.otherwise
        };
        let swapped = head
            .prefix
            .as_ref()
            .map(|prefix| prefix.swapped_message_ids.as_slice())
            .unwrap_or_default();
        let mut incoming = sqlx::query_file_as!(
            LeftOutRow,
            "sql/context_left_out.sql",
            self.caller.tenant().0,
            self.id.0,
            head.boundary(),
            settings.cool_turn(head.turn + input_turns),
            settings.large_threshold,
            settings.stepped,
            swapped,
            CONTEXT_CONTENT_BYTES,
        )
        .fetch(&mut *db);
        let mut left_out = LeftOut::default();
        let mut unread = Tail::default();
        while let Some(row) = incoming.try_next().await? {
            left_out.last = left_out.last.max(row.message_id);
            if row.kept {
                left_out.kept = row.message_id;
                continue;
            }
            unread.times.push(MessageTime {
                id: row.message_id,
                answer: row.answer,
                stored: row.stored,
            });
            let id = MessageId(row.message_id);
            if row.withdrawn {
                unread.withdrawn.push(id);
            } else {
                unread.omitted.push(OmittedMessage {
                    id,
                    turn: row.turn,
                    tokens: tokens(row.tokens),
                });
            }
            if unread
                .messages()
                .is_multiple_of(YIELD_BYTES / ROW_BYTES as usize)
            {
                tokio::task::yield_now().await;
            }
        }
        Ok((left_out, unread))
    }
}

/// The rows of a context. The content of each message is parsed when its row arrives, because the
/// JSON of all messages together would take as much memory again.
pub struct ContextRows {
    head: Box<HeadColumns>,
    /// The time of the statement.
    now: StoredTime,
    tail: Tail,
    /// The policy whose settings the statement had.
    policy: StoredPolicy,
    policy_defaults: Arc<PolicyDefaults>,
    overrides: PolicyOverrides,
}

/// The messages of the tail, in the order in which their rows came.
#[derive(Default)]
struct Tail {
    messages: Vec<TailMessage>,
    omitted: Vec<OmittedMessage>,
    /// Withdrawn or erased messages.
    withdrawn: Vec<MessageId>,
    /// Of all of them.
    times: Vec<MessageTime>,
    /// Bytes of content, summaries and tool outlines.
    text_bytes: u64,
}

/// The stored content of a withdrawn message. Other messages have at least one part.
const WITHDRAWN_CONTENT: &str = "[]";

impl Tail {
    /// Number of messages: read, omitted and withdrawn ones.
    fn messages(&self) -> usize {
        self.messages.len() + self.omitted.len() + self.withdrawn.len()
    }

    /// Adds a message; rows come in any order. Returns the bytes that were parsed.
    async fn push_row(
        &mut self,
        row: MaterialRow,
        budget: &ReadBudget,
    ) -> Result<usize, StoreError> {
        self.times.push(MessageTime {
            id: row.message_id,
            answer: row.role == role_code(Role::Assistant),
            stored: row.stored,
        });
        if let Some(content) = &row.content
            && content.len() == WITHDRAWN_CONTENT.len()
            && content.text()? == WITHDRAWN_CONTENT
        {
            self.withdrawn.push(MessageId(row.message_id));
            return Ok(0);
        }
        let summary_bytes = row
            .summary
            .as_ref()
            .map_or(0, |(summary, ..)| summary.len());
        let parsed = match (&row.content, &row.summary) {
            (Some(content), _) => content.len(),
            (None, Some((.., Some(outline)))) => outline.len(),
            (None, _) => 0,
        };
        self.text_bytes += (parsed + summary_bytes) as u64;
        self.messages
            .push(parse_within(budget, parsed as u64, || tail_message(row)).await?);
        Ok(parsed)
    }
}

impl ContextRows {
    /// The policy that is stored with the conversation.
    pub const fn policy(&self) -> &StoredPolicy {
        &self.policy
    }

    /// Number of messages in the tail.
    pub fn messages(&self) -> usize {
        self.tail.messages()
    }

    /// Bytes of system prompt, content, summaries and tool outlines.
    pub fn bytes(&self) -> usize {
        let summary = self.head.summary.as_ref().map_or(0, String::len);
        self.head.system_prompt.len() + summary + self.tail.text_bytes as usize
    }

    /// The encoding that the conversation's tokens are counted in.
    pub fn encoding(&self) -> Result<Encoding, StoreError> {
        rows::encoding(self.head.encoding)
    }

    /// The model that the policy in force names; None: it names none.
    pub fn model(&self) -> Result<Option<String>, StoreError> {
        let settings = self
            .policy_defaults
            .swap_settings(&self.policy, &self.overrides)?;
        Ok(settings.model)
    }

    /// The rules of the cache of a model, by the settings in force, for contexts in this format.
    pub fn cache_rules(&self, format: Format, model: &str) -> CacheRules {
        self.policy_defaults.session().cache_rules(format, model)
    }

    /// Whether the tail has more bytes than a context reads, so that the oldest messages are left
    /// out.
    fn exceeds_content_limit(&self) -> bool {
        self.head.tail_bytes > Some(CONTEXT_CONTENT_BYTES)
    }

    /// The bytes that the rows take at most, with [`ROW_BYTES`] for each. Of a tail that exceeds
    /// the content limit, at most [`MAX_TEXT_BYTES`] of text are read, but a row for each message.
    fn needed_bytes(&self) -> u64 {
        let Some(bytes) = self.head.tail_bytes else {
            return 0;
        };
        let messages = self.head.last_message_id - self.head.boundary();
        let at_most = MAX_TEXT_BYTES + ROW_BYTES as i64 * messages;
        bytes.min(at_most).unsigned_abs() + ROW_BYTES
    }

    /// Builds the material from the rows.
    pub fn into_material(self) -> Result<Material, StoreError> {
        let Self {
            head, now, tail, ..
        } = self;
        let policy =
            self.policy_defaults
                .policy(&head.policy, &self.overrides, head.window_tokens)?;
        let Tail {
            mut messages,
            mut omitted,
            mut withdrawn,
            times,
            ..
        } = tail;
        messages.sort_by_key(|message| message.id);
        omitted.sort_by_key(|message| message.id);
        withdrawn.sort_unstable();
        let head = *head;
        let checkpoint = match (head.checkpoint_last, head.summary, head.summary_tokens) {
            (Some(last), Some(text), Some(count)) => Some(CheckpointSummary {
                last: MessageId(last),
                text,
                tokens: tokens(count),
                saved: tokens(head.saved_tokens.unwrap_or(0)),
                origin: SummaryOrigin::Stored,
            }),
            _ => None,
        };
        Ok(Material {
            last_message_id: MessageId(head.last_message_id),
            last_role: head.last_role.map(rows::role).transpose()?,
            turn: head.turn,
            encoding: rows::encoding(head.encoding)?,
            policy,
            system_prompt: head.system_prompt,
            system_prompt_tokens: tokens(head.system_prompt_tokens),
            separator: head.separator.map(MessageId),
            checkpoint,
            tail: messages,
            prefix: head.prefix.map(stored_prefix).transpose()?,
            omitted,
            withdrawn,
            idle_seconds: last_call_start(&times).map(|start| start.seconds_until(now)),
            tokens_ratio: head.tokens_ratio,
            learnt_window: head.window_tokens.map(tokens),
            change_id: head.change_id,
        })
    }
}

/// The newest recorded version of the beginning of the conversation's contexts: the columns with
/// which the new context is compared.
fn stored_prefix(columns: PrefixColumns) -> Result<PrefixVersion, StoreError> {
    let swapped = columns.swapped_message_ids.into_iter().map(MessageId);
    Ok(PrefixVersion {
        epoch: columns.epoch,
        hash: digest(&columns.hash)?,
        boundary: MessageId(columns.boundary_message_id),
        system_prompt: digest(&columns.system_prompt_digest)?,
        swapped: swapped.collect(),
        cut: columns.cut,
        change_epoch: columns.change_epoch.unwrap_or(0),
        pending: if columns.change_epoch == Some(columns.epoch) {
            Some(pending_change(columns.reason, columns.broken_message_id)?)
        } else {
            None
        },
        identity: RequestIdentity {
            model: columns.model,
            tools: columns.tools_digest.as_deref().map(digest).transpose()?,
            options: columns.options_digest.as_deref().map(digest).transpose()?,
            ..RequestIdentity::default()
        },
    })
}

fn digest(column: &[u8]) -> Result<Digest, StoreError> {
    column
        .try_into()
        .map_err(|_| StoreError::Unreadable("prefix"))
}

fn tail_message(row: MaterialRow) -> Result<TailMessage, StoreError> {
    let (body, ready_summary) = match (row.content, row.summary) {
        (Some(content), summary) => (original(&content)?, summary.map(ready_summary)),
        (None, Some((text, count, original_bytes, outline))) => {
            let outline = match outline {
                Some(outline) => serde_json::from_str(&outline)
                    .map_err(|_| StoreError::Unreadable("tool outline"))?,
                None => Vec::new(),
            };
            let body = Body::Summary {
                text,
                tokens: tokens(count),
                original_bytes: original_bytes.unsigned_abs(),
                outline,
            };
            (body, None)
        }
        (None, None) => return Err(StoreError::Unreadable("content")),
    };
    Ok(TailMessage {
        id: MessageId(row.message_id),
        role: rows::role(row.role)?,
        turn: row.turn,
        tokens: tokens(row.tokens),
        estimated: row.estimated,
        body,
        ready_summary,
    })
}

fn original(content: &StoredText) -> Result<Body, StoreError> {
    Ok(Body::Original(rows::parts(content.text()?)?))
}

fn ready_summary((text, count, ..): SummaryColumns) -> ReadySummary {
    ReadySummary {
        text,
        tokens: tokens(count),
    }
}
