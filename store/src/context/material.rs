//! Reads the rows from which BuildContext builds a context, in one statement and so in one
//! snapshot. Of a message that is replaced by its summary, the original is not read.

use std::sync::Arc;

use anneal_core::{
    caller::{Caller, ConversationId},
    context::{
        Body, CheckpointSummary, Material, OmittedMessage, PrefixVersion, ReadySummary,
        SummaryOrigin, TailMessage,
    },
    digest::Digest,
    limits::{CONTENT_BYTES, CONTEXT_CONTENT_BYTES, SUMMARY_BYTES},
    message::MessageId,
    policy::PolicyOverrides,
    tokens::Encoding,
};
use futures::TryStreamExt as _;

use crate::{
    Store,
    error::{Entity, StoreError},
    messages::{
        read_budget::{ContentRead, ROW_BYTES, ReadBudget, YIELD_BYTES, parse_within},
        stored_text::StoredText,
    },
    policy_defaults::PolicyDefaults,
    rows::{self, json, tokens},
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

// context_material.sql uses the same number.
const _: () = assert!(
    ROW_BYTES == 512,
    "context_material.sql counts 512 bytes for a row"
);

/// The most bytes that content, summaries and tool outlines of one read have. The newest user
/// message is read in addition to the newest [`CONTEXT_CONTENT_BYTES`].
const MAX_TEXT_BYTES: i64 = CONTEXT_CONTENT_BYTES + (CONTENT_BYTES + SUMMARY_BYTES) as i64;

/// A row of context_material.sql: the head row with the conversation's own values, or a message of
/// the tail. A comment there says which columns the head row uses for something else.
struct MaterialRow {
    message_id: i64,
    role: Option<i16>,
    turn: i32,
    tokens: i64,
    estimated: Option<bool>,
    content: Option<StoredText>,
    summary: Option<String>,
    summary_tokens: Option<i64>,
    text_bytes: Option<i64>,
    left_out: bool,
    tool_outline: Option<String>,
    read_bytes: Option<i64>,
    age_seconds: Option<i64>,
    policy: Option<String>,
    encoding: Option<i16>,
    newest: Option<i64>,
    separator: Option<i64>,
    checkpoint_last: Option<i64>,
    epoch: Option<i64>,
    prefix_hash: Option<Vec<u8>>,
    prefix_boundary: Option<i64>,
    prefix_system_prompt: Option<Vec<u8>>,
    prefix_swapped: Option<Vec<i64>>,
    prefix_cut: Option<bool>,
    window_tokens: Option<i64>,
    tokens_ratio: Option<f64>,
}

impl Store {
    /// Reads boundary, summary and tail of a conversation, if they fit the budget. `overrides` are
    /// the policy overrides of this call. `ahead` are the turns that the call's input starts:
    /// whether a message is cool depends on the turns after it.
    ///
    /// Returns rows, so that the caller can do the rest of the work on a thread of its choice.
    pub async fn read_context_material(
        &self,
        caller: Caller,
        id: ConversationId,
        ahead: InputTurns,
        overrides: &PolicyOverrides,
        budget: &ReadBudget,
    ) -> Result<ContentRead<ContextRows>, StoreError> {
        let policy_defaults = self.policy_defaults.get();
        let mut db = self.reads.checkout(caller).await?;
        db.attach_reservation(budget.reservation.clone());
        let mut incoming = sqlx::query_file_as!(
            MaterialRow,
            "sql/context_material.sql",
            caller.tenant().0,
            id.0,
            ahead.after_user,
            ahead.otherwise,
            policy_defaults.bases(),
            json(overrides),
            CONTEXT_CONTENT_BYTES,
            budget.column(),
            MAX_TEXT_BYTES,
        )
        .fetch(&mut *db);
        let mut read = ContextRows::new(Arc::clone(&policy_defaults), overrides.clone());
        let mut bytes_since_yield = 0;
        while let Some(row) = incoming.try_next().await? {
            bytes_since_yield += ROW_BYTES as usize + read.push_row(row, budget).await?;
            if bytes_since_yield >= YIELD_BYTES {
                bytes_since_yield = 0;
                tokio::task::yield_now().await;
            }
        }
        drop(incoming);
        db.release().await?;
        if read.head.is_none() {
            return Err(StoreError::NotFound(Entity::Conversation));
        }
        if let Some(bytes) = read.too_large {
            return Ok(ContentRead::TooLarge { bytes });
        }
        let bytes = read.text_bytes + (1 + read.messages()) as u64 * ROW_BYTES;
        Ok(ContentRead::Read { value: read, bytes })
    }
}

/// The rows of a context. The content of each message is parsed when its row arrives, because the
/// JSON of all messages together would take as much memory again.
pub struct ContextRows {
    head: Option<MaterialRow>,
    tail: Vec<TailMessage>,
    omitted: Vec<OmittedMessage>,
    /// The id of the tail's newest message that a model wrote, and its age in seconds. None: the
    /// tail has no such message.
    newest_answer: Option<(i64, i64)>,
    /// Bytes of the tail's content, summaries and tool outlines.
    text_bytes: u64,
    /// The size of all rows in bytes, if it exceeds the budget.
    too_large: Option<u64>,
    policy_defaults: Arc<PolicyDefaults>,
    overrides: PolicyOverrides,
}

impl ContextRows {
    fn new(policy_defaults: Arc<PolicyDefaults>, overrides: PolicyOverrides) -> Self {
        let (tail, omitted) = (Vec::new(), Vec::new());
        Self {
            head: None,
            tail,
            omitted,
            newest_answer: None,
            text_bytes: 0,
            too_large: None,
            policy_defaults,
            overrides,
        }
    }

    /// Adds a row; rows come in any order. Returns the bytes that were parsed.
    async fn push_row(
        &mut self,
        row: MaterialRow,
        budget: &ReadBudget,
    ) -> Result<usize, StoreError> {
        // Only the head row has no byte count.
        let Some(read_bytes) = row.read_bytes else {
            self.head = Some(row);
            return Ok(0);
        };
        if read_bytes.unsigned_abs() > budget.bytes() {
            self.too_large = Some(read_bytes.unsigned_abs());
            return Ok(0);
        }
        if let Some(age) = row.age_seconds {
            self.newest_answer = self.newest_answer.max(Some((row.message_id, age)));
        }
        if row.left_out {
            let (id, turn, tokens) = (MessageId(row.message_id), row.turn, tokens(row.tokens));
            self.omitted.push(OmittedMessage { id, turn, tokens });
            return Ok(0);
        }
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let parsed = row.content.as_ref().map_or(0, StoredText::len) + length(&row.tool_outline);
        self.text_bytes += (parsed + length(&row.summary)) as u64;
        self.tail
            .push(parse_within(budget, parsed as u64, || tail_message(row)).await?);
        Ok(parsed)
    }

    /// Number of messages in the tail.
    pub fn messages(&self) -> usize {
        self.tail.len() + self.omitted.len()
    }

    /// Bytes of system prompt, content, summaries and tool outlines.
    pub fn bytes(&self) -> usize {
        let head = self.head.as_ref().map_or(0, |row| {
            row.content.as_ref().map_or(0, StoredText::len)
                + row.summary.as_ref().map_or(0, String::len)
        });
        head + self.text_bytes as usize
    }

    /// The encoding that the conversation's tokens are counted in.
    pub fn encoding(&self) -> Result<Encoding, StoreError> {
        rows::encoding(
            self.head
                .as_ref()
                .and_then(|head| head.encoding)
                .unwrap_or(0),
        )
    }

    /// Builds the material from the rows.
    pub fn into_material(mut self) -> Result<Material, StoreError> {
        let head = self
            .head
            .take()
            .ok_or(StoreError::NotFound(Entity::Conversation))?;
        let mut material = self.material_without_tail(head)?;
        self.tail.sort_by_key(|message| message.id);
        self.omitted.sort_by_key(|message| message.id);
        material.idle_seconds = self.newest_answer.map(|(_, age)| age);
        (material.tail, material.omitted) = (self.tail, self.omitted);
        Ok(material)
    }

    fn material_without_tail(&self, row: MaterialRow) -> Result<Material, StoreError> {
        let policy = self.policy_defaults.policy(
            row.policy.as_deref().unwrap_or("{}"),
            &self.overrides,
            row.window_tokens,
        )?;
        let prefix = stored_prefix(&row)?;
        let checkpoint = match (row.checkpoint_last, row.summary, row.summary_tokens) {
            (Some(last), Some(text), Some(count)) => {
                // The head row has the tokens that the checkpoint saved in the column `text_bytes`.
                let saved = tokens(row.text_bytes.unwrap_or(0));
                Some(CheckpointSummary {
                    last: MessageId(last),
                    text,
                    tokens: tokens(count),
                    saved,
                    origin: SummaryOrigin::Stored,
                })
            }
            _ => None,
        };
        Ok(Material {
            last_message_id: MessageId(row.newest.unwrap_or(0)),
            last_role: row.role.map(rows::role).transpose()?,
            turn: row.turn,
            encoding: rows::encoding(row.encoding.unwrap_or(0))?,
            policy,
            system_prompt: row
                .content
                .map(|prompt| prompt.text().map(str::to_owned))
                .transpose()?
                .unwrap_or_default(),
            system_prompt_tokens: tokens(row.tokens),
            separator: row.separator.map(MessageId),
            checkpoint,
            tail: Vec::new(),
            prefix,
            omitted: Vec::new(),
            idle_seconds: None,
            tokens_ratio: row.tokens_ratio,
            learnt_window: row.window_tokens.map(tokens),
        })
    }
}

/// The newest recorded version of the beginning of the conversation's contexts: the columns with
/// which the new context is compared.
fn stored_prefix(row: &MaterialRow) -> Result<Option<PrefixVersion>, StoreError> {
    let Some(epoch) = row.epoch else {
        return Ok(None);
    };
    let swapped = row.prefix_swapped.iter().flatten().map(|id| MessageId(*id));
    Ok(Some(PrefixVersion {
        epoch,
        hash: digest(row.prefix_hash.as_deref())?,
        boundary: MessageId(row.prefix_boundary.unwrap_or(0)),
        system_prompt: digest(row.prefix_system_prompt.as_deref())?,
        swapped: swapped.collect(),
        cut: row.prefix_cut.unwrap_or(false),
    }))
}

fn digest(column: Option<&[u8]>) -> Result<Digest, StoreError> {
    column
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or(StoreError::Unreadable("prefix"))
}

fn tail_message(row: MaterialRow) -> Result<TailMessage, StoreError> {
    let mut ready_summary = None;
    let body = match (row.content, row.summary) {
        (Some(content), summary) => {
            let count = tokens(row.summary_tokens.unwrap_or(0));
            ready_summary = summary.map(|text| ReadySummary {
                text,
                tokens: count,
            });
            Body::Original(rows::parts(content.text()?)?)
        }
        (None, Some(text)) => Body::Summary {
            text,
            tokens: tokens(row.summary_tokens.unwrap_or(0)),
            original_bytes: row.text_bytes.unwrap_or(0).unsigned_abs(),
            outline: match row.tool_outline {
                Some(outline) => serde_json::from_str(&outline)
                    .map_err(|_| StoreError::Unreadable("tool outline"))?,
                None => Vec::new(),
            },
        },
        (None, None) => return Err(StoreError::Unreadable("content")),
    };
    Ok(TailMessage {
        id: MessageId(row.message_id),
        role: rows::role(row.role.unwrap_or(0))?,
        turn: row.turn,
        tokens: tokens(row.tokens),
        estimated: row.estimated.unwrap_or(true),
        body,
        ready_summary,
    })
}
