//! Finished parts of summaries that need several model calls. They are kept until the summary is
//! stored, so that a worker that takes the job over continues where the last one stopped. A part's
//! key is a digest of everything that the part was made from. So a part that is found can be used;
//! a part that was made from something else is not found.

use anneal_core::digest::Digest;

use crate::{
    Store,
    connection::{BoundedConnection, row_security::Scope},
    error::StoreError,
    queue::ClaimedJob,
    rows::{column, tokens},
    summary_spec::ModelSpend,
};

impl Store {
    /// Finds the summary of the part with this digest, and its cost, if an earlier run of the job
    /// has made it.
    pub async fn find_partial_summary(
        &self,
        job: &ClaimedJob,
        part: &Digest,
    ) -> Result<Option<(String, ModelSpend)>, StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        let row = sqlx::query!(
            "select summary, model_calls, input_tokens, output_tokens from ai_summary_part
             where tenant_id = $1 and conversation_id = $2 and kind = $3 and part_digest = $4",
            job.tenant.0,
            job.conversation.0,
            job.kind.code(),
            part.as_slice(),
        )
        .fetch_optional(&mut *db)
        .await?;
        db.release().await?;
        Ok(row.map(|row| {
            let (input, output) = (tokens(row.input_tokens), tokens(row.output_tokens));
            (
                row.summary,
                ModelSpend {
                    calls: row.model_calls,
                    input,
                    output,
                },
            )
        }))
    }

    /// Stores a finished part. Stores nothing if the job has lost its lease, because messages that
    /// the part was made from may have changed since, or if the part is stored already.
    pub async fn store_partial_summary(
        &self,
        job: &ClaimedJob,
        part: &Digest,
        summary: &str,
        spent: ModelSpend,
    ) -> Result<(), StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        sqlx::query_file!(
            "sql/store_partial_summary.sql",
            job.tenant.0,
            job.conversation.0,
            job.kind.code(),
            part.as_slice(),
            summary,
            spent.calls,
            column(spent.input),
            column(spent.output),
            job.lease,
        )
        .execute(&mut *db)
        .await?;
        db.release().await?;
        Ok(())
    }

    /// Deletes up to `limit` parts that are older than `days`, because their jobs were probably
    /// given up. Returns how many it deleted.
    pub async fn delete_old_partial_summaries(
        &self,
        days: i32,
        limit: i64,
    ) -> Result<u64, StoreError> {
        let mut db = self.jobs.checkout(Scope::Queue).await?;
        let deleted = sqlx::query!(
            "delete from ai_summary_part where (conversation_id, kind, part_digest) in (
                 select conversation_id, kind, part_digest from ai_summary_part
                 where created_ts < now() - $1::integer * interval '1 day' order by created_ts limit $2)",
            days,
            limit,
        )
        .execute(&mut *db)
        .await?;
        db.release().await?;
        Ok(deleted.rows_affected())
    }
}

/// Deletes the parts of a job that has ended, with or without a summary.
pub(crate) async fn delete_partial_summaries(
    db: &mut BoundedConnection,
    job: &ClaimedJob,
) -> Result<(), StoreError> {
    sqlx::query!(
        "delete from ai_summary_part where tenant_id = $1 and conversation_id = $2 and kind = $3",
        job.tenant.0,
        job.conversation.0,
        job.kind.code(),
    )
    .execute(db)
    .await?;
    Ok(())
}
