//! Eras of a conversation's contexts: the times between two recorded versions of their beginning,
//! with the sums of the usage reports of each. Also the version that was in force at a message.

use anneal_core::{
    cache::pays_back_after,
    caller::{Caller, ConversationId},
    context::BreakReason,
    message::MessageId,
    policy::PolicyOverrides,
    tokens::Tokens,
};

use super::prefix::break_reason;
use crate::{
    Store,
    error::{Entity, StoreError},
    rows::{Micros, tokens},
};

/// Which eras to list.
#[derive(Debug, Clone, Copy)]
pub struct EraPageAsk {
    /// Only eras with a lower number. None: from the newest one on.
    pub before: Option<i64>,
    /// Most eras of the page.
    pub limit: i64,
}

/// A page of eras, newest first.
#[derive(Debug, Clone)]
pub struct EraPage {
    /// The eras.
    pub eras: Vec<CacheEra>,
    /// Whether older eras follow.
    pub more: bool,
}

/// The time in which contexts had the same beginning.
#[derive(Debug, Clone)]
pub struct CacheEra {
    /// 1, 2, 3 … in the order of time, with gaps where messages were changed.
    pub number: i64,
    /// Why it began.
    pub reason: BreakReason,
    /// The newest message when it began.
    pub at: MessageId,
    /// The first message that was sent differently than before; [`MessageId::NONE`]: all were.
    pub broken_at: MessageId,
    /// Its contexts start after this message; [`MessageId::NONE`]: at the first.
    pub boundary: MessageId,
    /// Large messages of which its contexts have the summaries.
    pub swapped: Vec<i64>,
    /// Whether a budget or pressure had cut or dropped something when it began.
    pub cut: bool,
    /// Tokens that the provider had to write to its cache again.
    pub rewritten: Tokens,
    /// Tokens that each call saves from then on.
    pub saved: Tokens,
    /// Calls after which the saving has paid for the rewriting, at the prices of the conversation's
    /// policy. None: nothing is saved.
    pub pays_back_after: Option<u64>,
    /// Model that it began with. None: not known.
    pub model: Option<String>,
    /// When it began.
    pub created: Micros,
    /// Usage reports of its time, without those of calls that only keep the cache warm.
    pub calls: EraCalls,
}

/// Sums of the usage reports of an era.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EraCalls {
    /// Number of reports.
    pub calls: i64,
    /// All input.
    pub input: Tokens,
    /// Input that the provider read from its cache.
    pub cached: Tokens,
    /// Input that the provider wrote to its cache.
    pub written: Tokens,
    /// Input that was expected in the provider's cache.
    pub expected: Tokens,
    /// Output.
    pub output: Tokens,
    /// Calls whose cache was cold although no change of the context had broken it.
    pub cold: i64,
}

/// The record of the contexts that were built at a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextAt {
    /// They start after this message; [`MessageId::NONE`]: at the first.
    pub boundary: MessageId,
    /// Whether a budget or pressure had cut or dropped something when this was recorded.
    pub cut: bool,
    /// Number of large messages of which they had the summaries.
    pub swapped: u64,
    /// Of these: the messages that stand and have their summaries of then, in order.
    pub summarized: Vec<SummarizedThen>,
}

/// A message of which a context had the summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SummarizedThen {
    /// The message.
    pub id: MessageId,
    /// Its tokens.
    pub original: Tokens,
    /// Tokens of its summary.
    pub summary: Tokens,
}

impl Store {
    /// Finds what is recorded of a conversation's contexts at a message. None: retention has
    /// deleted it, no context was built until then, or there is no such conversation.
    pub async fn find_context_at(
        &self,
        caller: Caller,
        id: ConversationId,
        message: MessageId,
    ) -> Result<Option<ContextAt>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let row = sqlx::query_file!(
            "sql/find_context_at.sql",
            caller.tenant().0,
            id.0,
            message.0,
        )
        .fetch_optional(&mut *db)
        .await?;
        db.release().await?;
        Ok(row.map(|row| {
            let figures = row.original.into_iter().zip(row.summary);
            let summarized = row.ids.into_iter().zip(figures);
            ContextAt {
                boundary: MessageId(row.boundary),
                cut: row.cut,
                swapped: row.swapped.unsigned_abs(),
                summarized: summarized
                    .map(|(id, (original, summary))| SummarizedThen {
                        id: MessageId(id),
                        original: tokens(original),
                        summary: tokens(summary),
                    })
                    .collect(),
            }
        }))
    }

    /// Lists the eras of a conversation, newest first. Retention deletes old ones.
    pub async fn list_cache_eras(
        &self,
        caller: Caller,
        id: ConversationId,
        ask: EraPageAsk,
    ) -> Result<EraPage, StoreError> {
        let policy_defaults = self.policy_defaults.get();
        let mut db = self.reads.checkout(caller).await?;
        let stored_policy = sqlx::query_scalar!(
            r#"select policy::text as "policy!" from ai_conversation
               where tenant_id = $1 and conversation_id = $2"#,
            caller.tenant().0,
            id.0,
        )
        .fetch_optional(&mut *db)
        .await?
        .ok_or(StoreError::NotFound(Entity::Conversation))?;
        let rows = sqlx::query_file!(
            "sql/list_cache_eras.sql",
            caller.tenant().0,
            id.0,
            ask.before,
            ask.limit + 1,
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        let policy = policy_defaults.policy(&stored_policy, &PolicyOverrides::default(), None)?;
        let rho = policy.prices.rho();
        let more = rows.len() as i64 > ask.limit;
        let rows = rows.into_iter().take(ask.limit.max(0) as usize);
        let eras = rows.map(|row| {
            let (rewritten, saved) = (tokens(row.rewritten), tokens(row.saved));
            Ok(CacheEra {
                number: row.epoch,
                reason: break_reason(row.reason).ok_or(StoreError::Unreadable("prefix"))?,
                at: MessageId(row.at),
                broken_at: MessageId(row.broken_at),
                boundary: MessageId(row.boundary),
                swapped: row.swapped,
                cut: row.cut,
                rewritten,
                saved,
                pays_back_after: pays_back_after(rho, rewritten, saved),
                model: row.model,
                created: Micros(row.created_us),
                calls: EraCalls {
                    calls: row.calls,
                    input: tokens(row.input),
                    cached: tokens(row.cached),
                    written: tokens(row.written),
                    expected: tokens(row.expected),
                    output: tokens(row.output),
                    cold: row.cold,
                },
            })
        });
        Ok(EraPage {
            eras: eras.collect::<Result<_, StoreError>>()?,
            more,
        })
    }
}
