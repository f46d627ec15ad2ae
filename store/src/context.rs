//! BuildContext's material: one statement, one snapshot. The originals of swapped messages are not read.

use anneal_core::{
    caller::{Caller, ConversationId},
    context::{Body, CheckpointSummary, Material, TailMessage},
    message::MessageId,
};

use crate::{
    Store,
    error::{Entity, StoreError},
    rows::{self, column, tokens},
};

/// How many turns a current input starts, by what it follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TurnsAhead {
    /// When the newest stored message is a user's.
    pub after_user: i32,
    /// When it is not.
    pub otherwise: i32,
}

struct MaterialRow {
    message_id: i64,
    role: Option<i16>,
    turn: i32,
    tokens: i64,
    estimated: Option<bool>,
    content: Option<String>,
    summary: Option<String>,
    summary_tokens: Option<i64>,
    text_bytes: Option<i64>,
    tool_outline: Option<String>,
    policy: Option<String>,
    encoding: Option<i16>,
    newest: Option<i64>,
    separator: Option<i64>,
    checkpoint_last: Option<i64>,
}

impl Store {
    /// Boundary, summary and tail of a conversation; coolness is measured from the turn that `ahead` leads to.
    pub async fn context_material(
        &self,
        caller: Caller,
        id: ConversationId,
        ahead: TurnsAhead,
    ) -> Result<Material, StoreError> {
        let mut db = self.reads.checkout().await?;
        let mut rows = sqlx::query_file_as!(
            MaterialRow,
            "sql/context_material.sql",
            caller.tenant().0,
            id.0,
            ahead.after_user,
            ahead.otherwise,
            column(self.session.large_message_threshold),
            i64::from(self.session.hot_zone_radius),
        )
        .fetch_all(&mut *db)
        .await?;
        db.release();
        rows.sort_by_key(|row| row.message_id);
        let mut rows = rows.into_iter();
        let head = rows.next().ok_or(StoreError::NotFound(Entity::Conversation))?;
        let mut material = self.head(head)?;
        material.tail = rows.map(tail_message).collect::<Result<_, _>>()?;
        Ok(material)
    }

    fn head(&self, row: MaterialRow) -> Result<Material, StoreError> {
        let overrides = serde_json::from_str(row.policy.as_deref().unwrap_or("{}"))
            .map_err(|_| StoreError::Unreadable("policy"))?;
        let checkpoint = match (row.checkpoint_last, row.summary, row.summary_tokens) {
            (Some(last), Some(text), Some(count)) => {
                Some(CheckpointSummary { last: MessageId(last), text, tokens: tokens(count) })
            }
            _ => None,
        };
        Ok(Material {
            last_message_id: MessageId(row.newest.unwrap_or(0)),
            last_role: row.role.map(rows::role).transpose()?,
            turn: row.turn,
            encoding: rows::encoding(row.encoding.unwrap_or(0))?,
            policy: self.session.with(&overrides),
            system_prompt: row.content.unwrap_or_default(),
            system_prompt_tokens: tokens(row.tokens),
            separator: row.separator.map(MessageId),
            checkpoint,
            tail: Vec::new(),
        })
    }
}

fn tail_message(row: MaterialRow) -> Result<TailMessage, StoreError> {
    let body = match (row.content, row.summary) {
        (Some(content), _) => Body::Original(rows::parts(&content)?),
        (None, Some(text)) => Body::Summary {
            text,
            tokens: tokens(row.summary_tokens.unwrap_or(0)),
            original_bytes: row.text_bytes.unwrap_or(0).unsigned_abs(),
            outline: match row.tool_outline {
                Some(outline) => serde_json::from_str(&outline).map_err(|_| StoreError::Unreadable("tool outline"))?,
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
    })
}
