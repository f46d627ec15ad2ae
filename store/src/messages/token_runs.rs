//! The tokens of many messages, summed in runs of consecutive messages: the outline of a long
//! conversation, without content.

use anneal_core::{
    caller::{Caller, ConversationId},
    message::MessageId,
    tokens::Tokens,
};

use super::read::read_newest_id;
use crate::{Store, error::StoreError, rows::tokens};

/// Which messages to sum.
#[derive(Debug, Clone, Copy)]
pub struct TokenRunsAsk {
    /// The first message.
    pub first: MessageId,
    /// The last message. [`MessageId::NONE`]: the newest.
    pub last: MessageId,
    /// Most runs.
    pub runs: i64,
    /// Most messages of all runs; more are refused.
    pub most_messages: i64,
}

/// Consecutive messages and their tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenRun {
    /// The first message.
    pub first: MessageId,
    /// The last message.
    pub last: MessageId,
    /// Tokens of the messages that stand.
    pub tokens: Tokens,
    /// Of the messages that stand, the one with the most tokens, and these. None: none stands.
    pub largest: Option<(MessageId, Tokens)>,
    /// Messages that stand and have a summary.
    pub summarized: i64,
    /// Withdrawn messages.
    pub withdrawn: i64,
    /// Whether any of `tokens` is an estimate.
    pub estimated: bool,
}

impl Store {
    /// Lists the runs in ascending order. They cover every message of the conversation that was
    /// asked for. Fails with [`StoreError::TooManyMessages`] if these are too many.
    pub async fn list_token_runs(
        &self,
        caller: Caller,
        id: ConversationId,
        ask: TokenRunsAsk,
    ) -> Result<Vec<TokenRun>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        db.narrow_to(caller, id).await?;
        let newest = read_newest_id(&mut db, caller, id).await?;
        let last = match ask.last {
            MessageId::NONE => newest,
            last => last.min(newest),
        };
        let messages = last.0 - ask.first.0 + 1;
        if messages <= 0 {
            db.release().await?;
            return Ok(Vec::new());
        }
        if messages > ask.most_messages {
            db.release().await?;
            return Err(StoreError::TooManyMessages);
        }
        let rows = sqlx::query_file!(
            "sql/list_token_runs.sql",
            caller.tenant().0,
            id.0,
            ask.first.0,
            last.0,
            ask.runs.min(messages),
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        let runs = rows.into_iter().map(|row| TokenRun {
            first: MessageId(row.first),
            last: MessageId(row.last),
            tokens: tokens(row.tokens),
            largest: row.largest.as_deref().and_then(|largest| match largest {
                [most, id] => Some((MessageId(-id), tokens(*most))),
                _ => None,
            }),
            summarized: row.summarized,
            withdrawn: row.withdrawn,
            estimated: row.estimated,
        });
        Ok(runs.collect())
    }
}
