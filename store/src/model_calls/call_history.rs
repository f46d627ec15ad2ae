//! Reads a conversation's messages and boundaries, from which its past calls can be computed, and
//! what these calls cost.

use anneal_core::{
    caller::{Caller, ConversationId},
    economics::{BoundaryRecord, History, MessageRecord},
    message::MessageId,
    tokens::Tokens,
};

use crate::{
    Store,
    error::StoreError,
    rows::{self, tokens},
};

/// A conversation's messages and boundaries, and what its calls and summaries cost.
#[derive(Debug, Clone)]
pub struct CallHistory {
    /// The messages and boundaries, from which past calls are computed.
    pub history: History,
    /// Sums of the usage reports.
    pub reported: ReportedTotals,
    /// The cost of summaries.
    pub spend: SummarySpend,
}

/// Sums of usage reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReportedTotals {
    /// Number of reports.
    pub calls: i64,
    /// Input tokens, including those read from the cache and written to it.
    pub input: Tokens,
    /// Input tokens that were read from the cache.
    pub cached: Tokens,
    /// Input tokens that were written to the cache.
    pub written: Tokens,
    /// Output tokens.
    pub output: Tokens,
    /// Calls that read less than half of the expected tokens from the cache.
    pub cold: i64,
    /// Calls whose cache was broken by a change of the context.
    pub cold_by_us: i64,
}

/// The summaries of a conversation's newest 10,000 messages and its newest 10,000 checkpoints, and
/// what writing them cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SummarySpend {
    /// Number of summaries of large messages.
    pub summaries: i64,
    /// Number of checkpoints.
    pub checkpoints: i64,
    /// Tokens that language models read.
    pub read: Tokens,
    /// Tokens that language models wrote.
    pub written: Tokens,
}

/// Most messages of a history: the newest ones. `sql/economics_boundaries.sql` has the same limit
/// for checkpoints and for separators.
const HISTORY_MESSAGES: i64 = 10_000;

impl Store {
    /// Reads a conversation's newest 10,000 messages, its newest 10,000 checkpoints and its newest
    /// 10,000 separators, what their summaries cost, and the sums of all its usage reports.
    pub async fn read_call_history(
        &self,
        caller: Caller,
        id: ConversationId,
        system_prompt: Tokens,
    ) -> Result<CallHistory, StoreError> {
        let (history, spend) = self.read_history(caller, id, system_prompt).await?;
        let reported = self.sum_reports(caller, id).await?;
        Ok(CallHistory {
            history,
            reported,
            spend,
        })
    }

    async fn read_history(
        &self,
        caller: Caller,
        id: ConversationId,
        system_prompt: Tokens,
    ) -> Result<(History, SummarySpend), StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let messages = sqlx::query_file!(
            "sql/economics_messages.sql",
            caller.tenant().0,
            id.0,
            HISTORY_MESSAGES
        )
        .fetch_all(&mut *db)
        .await?;
        let boundaries = sqlx::query_file!("sql/economics_boundaries.sql", caller.tenant().0, id.0)
            .fetch_all(&mut *db)
            .await?;
        db.release().await?;
        let mut spend = SummarySpend::default();
        let mut message_records = Vec::with_capacity(messages.len());
        for row in messages.into_iter().rev() {
            let summary = row.summary_tokens.map(tokens);
            spend.summaries += i64::from(summary.is_some());
            spend.read += tokens(row.read);
            spend.written += tokens(row.written);
            message_records.push(MessageRecord {
                id: MessageId(row.message_id),
                role: rows::role(row.role)?,
                turn: row.turn,
                tokens: tokens(row.tokens),
                summary,
                at_us: row.at_us,
            });
        }
        let mut boundary_records = Vec::with_capacity(boundaries.len());
        for row in boundaries {
            let summary = row.summary_tokens.map(tokens);
            spend.checkpoints += i64::from(summary.is_some());
            spend.read += tokens(row.read);
            spend.written += tokens(row.written);
            boundary_records.push(BoundaryRecord {
                at_us: row.at_us,
                after: MessageId(row.after),
                summary,
            });
        }
        boundary_records.sort_by_key(|boundary| (boundary.at_us, boundary.after));
        Ok((
            History {
                messages: message_records,
                boundaries: boundary_records,
                system_prompt,
            },
            spend,
        ))
    }

    async fn sum_reports(
        &self,
        caller: Caller,
        id: ConversationId,
    ) -> Result<ReportedTotals, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        // The cache state 3 is `CacheState::Cold`, 4 is `CacheState::ColdByUs`.
        let row = sqlx::query!(
            r#"select count(*) as "calls!", coalesce(sum(input_tokens), 0)::bigint as "input!",
                   coalesce(sum(cached_tokens), 0)::bigint as "cached!",
                   coalesce(sum(written_tokens), 0)::bigint as "written!",
                   coalesce(sum(output_tokens), 0)::bigint as "output!",
                   count(*) filter (where cache_state = 3) as "cold!",
                   count(*) filter (where cache_state = 4) as "cold_by_us!"
               from ai_model_call where tenant_id = $1 and conversation_id = $2"#,
            caller.tenant().0,
            id.0,
        )
        .fetch_one(&mut *db)
        .await?;
        db.release().await?;
        Ok(ReportedTotals {
            calls: row.calls,
            input: tokens(row.input),
            cached: tokens(row.cached),
            written: tokens(row.written),
            output: tokens(row.output),
            cold: row.cold,
            cold_by_us: row.cold_by_us,
        })
    }
}
