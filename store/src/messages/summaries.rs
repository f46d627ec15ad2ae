//! Summaries of large messages: finds the messages that lack one, and stores summaries.

use anneal_core::{
    job::JobKind,
    message::{MessageId, Part, Role},
    tokens::{Encoding, Tokens},
    trigger::SummaryScope,
};

use crate::{
    Store,
    connection::BoundedConnection,
    conversations::lock_conversation,
    error::StoreError,
    failpoint,
    partial_summaries::delete_partial_summaries,
    queue::{ClaimedJob, JobCommit, finish_and_enqueue, lock_claimed_job},
    rows::{self, column, tokens},
    summary_spec::{SummarySpec, kind_code},
    triggers::tail_stats,
};

/// A large message that lacks a summary.
#[derive(Debug, Clone)]
pub struct UnsummarizedMessage {
    /// Id of the message.
    pub id: MessageId,
    /// Role of the author.
    pub role: Role,
    /// Tokens of the message.
    pub tokens: Tokens,
    /// The content.
    pub parts: Vec<Part>,
    /// The encoding that the conversation's tokens are counted in.
    pub encoding: Encoding,
}

/// The summary of a large message, to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageSummary {
    /// The summarized message.
    pub message: MessageId,
    /// The summary. None: no summary would be shorter than the message.
    pub summary: Option<SummarySpec>,
}

impl Store {
    /// Finds the large messages of the tail that are to be summarized now, oldest first, at most
    /// `limit`: those without a summary, or only those among them that are cool or nearly so, as
    /// the state of the tail demands.
    pub async fn find_unsummarized_messages(
        &self,
        job: &ClaimedJob,
        limit: i64,
    ) -> Result<Vec<MessageId>, StoreError> {
        let policy_defaults = self.policy_defaults.get();
        let mut db = self.jobs.checkout(job.caller()).await?;
        let state =
            tail_stats::read_tail_state(&mut db, job.caller(), job.conversation, &policy_defaults)
                .await?;
        let only_nearly_cool = state.summary_scope() == SummaryScope::NearlyCool;
        let rows = sqlx::query_file!(
            "sql/unsummarized_messages.sql",
            job.tenant.0,
            job.conversation.0,
            policy_defaults.bases(),
            only_nearly_cool,
            limit,
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        Ok(rows
            .into_iter()
            .map(|row| MessageId(row.message_id))
            .collect())
    }

    /// Reads a message to be summarized, with its content. None if it has been deleted.
    pub async fn find_unsummarized_message(
        &self,
        job: &ClaimedJob,
        message: MessageId,
    ) -> Result<Option<UnsummarizedMessage>, StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        let row = sqlx::query_file!(
            "sql/unsummarized_message.sql",
            job.tenant.0,
            job.conversation.0,
            message.0
        )
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

    /// Stores summaries without ending the job: for a run in which summaries of other messages have
    /// failed. Fails if the job's lease is lost.
    pub async fn store_summaries(
        &self,
        job: &ClaimedJob,
        summaries: &[MessageSummary],
    ) -> Result<(), StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        let mut tx = db.begin().await?;
        lock_conversation(&mut tx, job.caller(), job.conversation).await?;
        put_summaries(&mut tx, job, summaries).await?;
        lock_claimed_job(&mut tx, job).await?;
        tx.commit().await?;
        db.release().await?;
        Ok(())
    }

    /// Stores summaries and ends the job. `more`: whether other messages lack a summary; then the
    /// job waits again, due at once.
    pub async fn record_summaries(
        &self,
        job: &ClaimedJob,
        summaries: &[MessageSummary],
        more: bool,
    ) -> Result<JobCommit, StoreError> {
        let (caller, id) = (job.caller(), job.conversation);
        let mut db = self.jobs.checkout(job.caller()).await?;
        let mut tx = db.begin().await?;
        lock_conversation(&mut tx, caller, id).await?;
        failpoint!("summary.locked");
        put_summaries(&mut tx, job, summaries).await?;
        failpoint!("summary.written");
        if !more {
            delete_partial_summaries(&mut tx, job).await?;
        }
        let caused = if more {
            vec![JobKind::SummarizeMessages]
        } else {
            Vec::new()
        };
        let finished = finish_and_enqueue(&mut tx, job, &caused).await?;
        failpoint!("summary.finished");
        tx.commit().await?;
        failpoint!("summary.committed");
        db.release().await?;
        Ok(JobCommit {
            finished,
            caused,
            results_kept: true,
        })
    }
}

/// Stores each summary, unless its message has one already.
async fn put_summaries(
    db: &mut BoundedConnection,
    job: &ClaimedJob,
    summaries: &[MessageSummary],
) -> Result<(), StoreError> {
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
