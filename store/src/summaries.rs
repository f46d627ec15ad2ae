//! Summaries of large messages: which lack one, and the transaction that stores them and ends the job.

use anneal_core::{
    job::JobKind,
    message::{MessageId, Part, Role},
    tokens::{Encoding, Tokens},
    trigger::Summarize,
};
use sqlx::{Connection as _, PgConnection};

use crate::{
    Store,
    claims::{ClaimedJob, Committed, finish_causing, still_ours},
    conversations::locked,
    error::StoreError,
    failpoint, parts,
    rows::{self, column, tokens},
    tail,
};

/// How a summary came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SummaryKind {
    /// A language model wrote it.
    Llm,
    /// Rules picked it from its source.
    Extractive,
    /// Another system made it.
    Imported,
}

/// Who made a summary, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummarySpec {
    /// The summary.
    pub text: String,
    /// Its tokens.
    pub tokens: Tokens,
    /// How it came to be.
    pub kind: SummaryKind,
    /// The model's or summariser's name.
    pub model: String,
    /// Version of the prompt or rules.
    pub prompt_version: i32,
    /// What language models did for it.
    pub spent: ModelSpend,
    /// How long it took.
    pub duration_ms: i64,
}

/// What language models did for a summary, by their providers' count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelSpend {
    /// Calls, failed and repeated ones included.
    pub calls: i32,
    /// Tokens that they read.
    pub input: Tokens,
    /// Tokens that they wrote.
    pub output: Tokens,
}

/// A large message that lacks a summary.
#[derive(Debug, Clone)]
pub struct UnsummarizedMessage {
    /// Its id.
    pub id: MessageId,
    /// Who speaks.
    pub role: Role,
    /// Its tokens.
    pub tokens: Tokens,
    /// What is said.
    pub parts: Vec<Part>,
    /// What the conversation's tokens are counted in.
    pub encoding: Encoding,
}

/// The summary of a large message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageSummary {
    /// The message.
    pub message: MessageId,
    /// The summary; None when none would be shorter than the message.
    pub summary: Option<SummarySpec>,
}

impl Store {
    /// The large messages of the tail that are to be summarised now, oldest first, without content; at most `limit`.
    pub async fn unsummarized_messages(&self, job: &ClaimedJob, limit: i64) -> Result<Vec<MessageId>, StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        let state = tail::state(&mut db, job.caller(), job.conversation, &self.rules).await?;
        let nearly_cool = state.summarize() == Summarize::NearlyCool;
        let rows = sqlx::query_file!(
            "sql/unsummarized_messages.sql",
            job.tenant.0,
            job.conversation.0,
            self.rules.bases(),
            nearly_cool,
            limit,
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        Ok(rows.into_iter().map(|row| MessageId(row.message_id)).collect())
    }

    /// One large message, to be summarised. None when it is gone.
    pub async fn unsummarized_message(
        &self,
        job: &ClaimedJob,
        message: MessageId,
    ) -> Result<Option<UnsummarizedMessage>, StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        let row = sqlx::query_file!("sql/unsummarized_message.sql", job.tenant.0, job.conversation.0, message.0)
            .fetch_optional(&mut *db)
            .await?;
        db.release().await?;
        failpoint!("summary.read");
        row.map(|row| {
            Ok(UnsummarizedMessage {
                id: message,
                role: rows::role(row.role)?,
                tokens: tokens(row.tokens),
                parts: rows::parts(&row.content)?,
                encoding: rows::encoding(row.encoding)?,
            })
        })
        .transpose()
    }

    /// Stores summaries of large messages while the job is ours; it goes on, for others have failed.
    pub async fn keep_summaries(&self, job: &ClaimedJob, summaries: &[MessageSummary]) -> Result<(), StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        let mut tx = db.begin().await?;
        locked(&mut tx, job.caller(), job.conversation).await?;
        put(&mut tx, job, summaries).await?;
        still_ours(&mut tx, job).await?;
        tx.commit().await?;
        db.release().await?;
        Ok(())
    }

    /// Stores summaries of large messages and ends the job; with `more` it waits again at once.
    pub async fn record_summaries(
        &self,
        job: &ClaimedJob,
        summaries: &[MessageSummary],
        more: bool,
    ) -> Result<Committed, StoreError> {
        let (caller, id) = (job.caller(), job.conversation);
        let mut db = self.jobs.checkout(job.caller()).await?;
        let mut tx = db.begin().await?;
        locked(&mut tx, caller, id).await?;
        failpoint!("summary.locked");
        put(&mut tx, job, summaries).await?;
        failpoint!("summary.written");
        if !more {
            parts::forget(&mut tx, job).await?;
        }
        let caused = if more { vec![JobKind::SummarizeMessages] } else { Vec::new() };
        let finished = finish_causing(&mut tx, job, &caused).await?;
        failpoint!("summary.finished");
        tx.commit().await?;
        failpoint!("summary.committed");
        db.release().await?;
        Ok(Committed { finished, caused, kept: true })
    }
}

/// Stores summaries, each unless its message has one.
async fn put(db: &mut PgConnection, job: &ClaimedJob, summaries: &[MessageSummary]) -> Result<(), StoreError> {
    #[cfg(feature = "sabotage")]
    let summaries: Vec<MessageSummary> = summaries.iter().map(crate::sabotage::cached).collect();
    #[cfg(feature = "sabotage")]
    let summaries = &summaries;
    for MessageSummary { message, summary } in summaries {
        sqlx::query_file!(
            "sql/record_summary.sql",
            job.tenant.0,
            job.conversation.0,
            message.0,
            summary.as_ref().map(|summary| &summary.text),
            summary.as_ref().map(|summary| column(summary.tokens)),
            summary.as_ref().map(kind_code),
            summary.as_ref().map(|summary| &summary.model),
            summary.as_ref().map(|summary| summary.prompt_version),
            summary.as_ref().map(|summary| column(summary.spent.input)),
            summary.as_ref().map(|summary| column(summary.spent.output)),
            summary.as_ref().map(|summary| summary.duration_ms),
        )
        .execute(&mut *db)
        .await?;
    }
    Ok(())
}

pub(crate) const fn kind_code(summary: &SummarySpec) -> i16 {
    match summary.kind {
        SummaryKind::Llm => 1,
        SummaryKind::Extractive => 2,
        SummaryKind::Imported => 3,
    }
}

pub(crate) const fn kind(code: i16) -> SummaryKind {
    match code {
        1 => SummaryKind::Llm,
        3 => SummaryKind::Imported,
        _ => SummaryKind::Extractive,
    }
}
