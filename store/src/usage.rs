//! What providers billed, what is learnt of models from it, and what a conversation's calls cost.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::Digest,
    economics::{History, Moved, Said},
    message::MessageId,
    tokens::Tokens,
    usage::{CacheState, Usage},
};

use crate::{
    Store,
    error::{Entity, StoreError},
    rows::{self, column, tokens},
};

/// A usage report to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageReport {
    /// The caller's id; a report with the same one is stored once.
    pub request_id: String,
    /// What was reported.
    pub digest: Digest,
    /// The model that answered.
    pub model: String,
    /// The figures.
    pub usage: Usage,
    /// Why the model stopped: 1 it had said everything, 2 it waits for tools, 3 its output limit, 4 a filter; None: not said.
    pub stop_reason: Option<i16>,
}

/// How a model counts, as usage reports say.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Calibration {
    /// Its input tokens for each token counted here; zero before the first report.
    pub ratio: f64,
    /// Reports that went into it.
    pub reports: i64,
}

/// What a conversation's calls were made of.
#[derive(Debug, Clone)]
pub struct CallHistory {
    /// Its messages and boundaries, to be replayed.
    pub history: History,
    /// What was reported.
    pub reported: Reported,
    /// What summaries cost.
    pub spend: Spend,
}

/// Sums of usage reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reported {
    /// Reports.
    pub calls: i64,
    /// All input.
    pub input: Tokens,
    /// Of it: read from the cache.
    pub cached: Tokens,
    /// Of it: written to the cache.
    pub written: Tokens,
    /// What models wrote.
    pub output: Tokens,
    /// Calls that found the cache cold though nothing of ours had broken it.
    pub cold: i64,
}

/// What summarisers read and wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spend {
    /// Summaries of large messages.
    pub summaries: i64,
    /// Checkpoints.
    pub checkpoints: i64,
    /// Tokens that language models read.
    pub read: Tokens,
    /// Tokens that language models wrote.
    pub written: Tokens,
}

/// What is to be learnt of a model.
#[derive(Debug, Clone, Copy, Default)]
struct Lesson {
    /// Its tokens for each token counted here.
    ratio: Option<f64>,
    /// The window that an error has named.
    window: Option<i64>,
    /// Tokens that it has read in one call.
    read: Option<i64>,
}

/// Models of which something is learnt for one tenant: names are callers' text, and more of them are nobody's models.
const MODELS_LEARNT: i64 = 1_000;

/// Messages that a replay looks at: the newest.
const REPLAYED: i64 = 10_000;

impl Store {
    /// Stores a usage report, once per `request_id`, and calibrates its model; a window that was learnt of it and that the
    /// call went beyond is forgotten.
    pub async fn report_usage(
        &self,
        caller: Caller,
        id: ConversationId,
        report: &UsageReport,
    ) -> Result<Calibration, StoreError> {
        let fresh = self.put_report(caller, id, report).await?;
        let ratio = if fresh { report.usage.ratio() } else { None };
        let lesson = Lesson { ratio, read: Some(column(report.usage.input)), ..Lesson::default() };
        self.calibrate(caller, &report.model, lesson).await
    }

    /// Takes in how an error of the model's provider has counted a context: its tokens for each token counted here.
    pub async fn learn_ratio(&self, caller: Caller, model: &str, ratio: f64) -> Result<(), StoreError> {
        self.calibrate(caller, model, Lesson { ratio: Some(ratio), ..Lesson::default() }).await?;
        Ok(())
    }

    /// Remembers the context window that an error of the model's provider has named.
    pub async fn learn_window(&self, caller: Caller, model: &str, window: Tokens) -> Result<(), StoreError> {
        self.calibrate(caller, model, Lesson { window: Some(column(window)), ..Lesson::default() }).await?;
        Ok(())
    }

    /// True when the report is new.
    async fn put_report(&self, caller: Caller, id: ConversationId, report: &UsageReport) -> Result<bool, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let usage = &report.usage;
        let stored = sqlx::query_file!(
            "sql/report_usage.sql",
            caller.tenant().0,
            id.0,
            report.request_id,
            report.digest.as_slice(),
            report.model,
            column(usage.context),
            column(usage.input),
            column(usage.cached),
            column(usage.written),
            column(usage.output),
            cache_state_code(usage.cache_state()),
            report.stop_reason,
        )
        .execute(&mut *db)
        .await?;
        if stored.rows_affected() == 1 {
            db.release().await?;
            return Ok(true);
        }
        let earlier = sqlx::query_scalar!(
            "select request_digest from ai_model_call
             where tenant_id = $1 and conversation_id = $2 and request_id = $3",
            caller.tenant().0,
            id.0,
            report.request_id,
        )
        .fetch_optional(&mut *db)
        .await?;
        db.release().await?;
        match earlier {
            Some(digest) if digest == report.digest => Ok(false),
            Some(_) => Err(StoreError::RequestIdReused),
            None => Err(StoreError::NotFound(Entity::Conversation)),
        }
    }

    async fn calibrate(&self, caller: Caller, model: &str, lesson: Lesson) -> Result<Calibration, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let row = sqlx::query_file!(
            "sql/calibrate_model.sql",
            caller.tenant().0,
            model,
            lesson.ratio,
            lesson.window,
            lesson.read,
            MODELS_LEARNT,
        )
        .fetch_optional(&mut *db)
        .await?;
        db.release().await?;
        let learnt = row.map(|row| Calibration { ratio: row.tokens_ratio.unwrap_or(0.0), reports: row.reports });
        Ok(learnt.unwrap_or_default())
    }

    /// What a conversation's calls were made of: its newest 10,000 messages, and what was reported.
    pub async fn call_history(
        &self,
        caller: Caller,
        id: ConversationId,
        system_prompt: Tokens,
    ) -> Result<CallHistory, StoreError> {
        let (history, spend) = self.history(caller, id, system_prompt).await?;
        let reported = self.reported(caller, id).await?;
        Ok(CallHistory { history, reported, spend })
    }

    async fn history(
        &self,
        caller: Caller,
        id: ConversationId,
        system_prompt: Tokens,
    ) -> Result<(History, Spend), StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let messages = sqlx::query_file!("sql/economics_messages.sql", caller.tenant().0, id.0, REPLAYED)
            .fetch_all(&mut *db)
            .await?;
        let boundaries =
            sqlx::query_file!("sql/economics_boundaries.sql", caller.tenant().0, id.0).fetch_all(&mut *db).await?;
        db.release().await?;
        let mut spend = Spend::default();
        let mut said = Vec::with_capacity(messages.len());
        for row in messages.into_iter().rev() {
            let summary = row.summary_tokens.map(tokens);
            spend.summaries += i64::from(summary.is_some());
            spend.read += tokens(row.read);
            spend.written += tokens(row.written);
            said.push(Said {
                id: MessageId(row.message_id),
                role: rows::role(row.role)?,
                turn: row.turn,
                tokens: tokens(row.tokens),
                summary,
                at_us: row.at_us,
            });
        }
        let mut moved = Vec::with_capacity(boundaries.len());
        for row in boundaries {
            let summary = row.summary.map(tokens);
            spend.checkpoints += i64::from(summary.is_some());
            spend.read += tokens(row.read);
            spend.written += tokens(row.written);
            moved.push(Moved { at_us: row.at_us, after: MessageId(row.after), summary });
        }
        moved.sort_by_key(|moved| (moved.at_us, moved.after));
        Ok((History { said, moved, system_prompt }, spend))
    }

    async fn reported(&self, caller: Caller, id: ConversationId) -> Result<Reported, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let row = sqlx::query!(
            r#"select count(*) as "calls!", coalesce(sum(input_tokens), 0)::bigint as "input!",
                   coalesce(sum(cached_tokens), 0)::bigint as "cached!",
                   coalesce(sum(written_tokens), 0)::bigint as "written!",
                   coalesce(sum(output_tokens), 0)::bigint as "output!",
                   count(*) filter (where cache_state = 3) as "cold!"
               from ai_model_call where tenant_id = $1 and conversation_id = $2"#,
            caller.tenant().0,
            id.0,
        )
        .fetch_one(&mut *db)
        .await?;
        db.release().await?;
        Ok(Reported {
            calls: row.calls,
            input: tokens(row.input),
            cached: tokens(row.cached),
            written: tokens(row.written),
            output: tokens(row.output),
            cold: row.cold,
        })
    }
}

const fn cache_state_code(state: CacheState) -> i16 {
    match state {
        CacheState::NothingExpected => 1,
        CacheState::Warm => 2,
        CacheState::Cold => 3,
    }
}
