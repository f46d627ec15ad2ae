//! How the models are doing: for operators.

use anneal_core::{
    admission::Breaker,
    caller::{Caller, ConversationId},
    tokens::Tokens,
};

use crate::{Store, calls::breaker, error::StoreError, rows::tokens, scope::Scope};

/// One model's figures.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFigures {
    /// Its name in the configuration.
    pub model: String,
    /// Its breaker.
    pub breaker: Breaker,
    /// What went wrong last; empty when its last call was answered.
    pub last_error: String,
    /// The caller's own breaker for it.
    pub tenant_breaker: Breaker,
    /// What went wrong with the caller's calls last; empty when the last one was answered.
    pub tenant_error: String,
    /// Tenants whose own breaker for it is open.
    pub open_tenant_breakers: i64,
    /// Calls under way in all processes.
    pub under_way: i64,
    /// The caller's calls today (UTC).
    pub calls: i64,
    /// Of these: without a usable answer.
    pub failed_calls: i64,
    /// Tokens that they read.
    pub input: Tokens,
    /// Tokens that they wrote.
    pub output: Tokens,
}

/// A conversation whose calls fail.
#[derive(Debug, Clone, PartialEq)]
pub struct ConversationBreaker {
    /// Which one.
    pub conversation: ConversationId,
    /// The model that failed it.
    pub model: String,
    /// Its breaker.
    pub breaker: Breaker,
    /// What went wrong last.
    pub last_error: String,
}

/// Most conversations that are listed.
const CONVERSATIONS: i64 = 500;

impl Store {
    /// Every model that was called, by name.
    pub async fn model_figures(&self, caller: Caller) -> Result<Vec<ModelFigures>, StoreError> {
        let mut db = self.reads.checkout(Scope::TenantInFleet(caller.tenant())).await?;
        let rows = sqlx::query_file!("sql/model_stats.sql", caller.tenant().0).fetch_all(&mut *db).await?;
        db.release().await?;
        let figures = rows.into_iter().map(|row| ModelFigures {
            model: row.model,
            breaker: breaker(row.failures, row.open_seconds),
            last_error: row.last_error,
            tenant_breaker: breaker(row.tenant_failures, row.tenant_open_seconds),
            tenant_error: row.tenant_error,
            open_tenant_breakers: row.open_tenant_breakers,
            under_way: row.under_way,
            calls: row.calls,
            failed_calls: row.failed_calls,
            input: tokens(row.input_tokens),
            output: tokens(row.output_tokens),
        });
        Ok(figures.collect())
    }

    /// The caller's conversations whose breaker has opened and whose last call failed, the latest first; at most 500.
    pub async fn conversation_breakers(&self, caller: Caller) -> Result<Vec<ConversationBreaker>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let rows = sqlx::query!(
            r#"select conversation_id, model, failures, last_error,
                      extract(epoch from open_until_ts - now())::double precision as open_seconds
               from ai_conversation_breaker
               where tenant_id = $1 and open_until_ts is not null
               order by open_until_ts desc limit $2"#,
            caller.tenant().0,
            CONVERSATIONS,
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        let breakers = rows.into_iter().map(|row| ConversationBreaker {
            conversation: ConversationId(row.conversation_id),
            model: row.model,
            breaker: breaker(row.failures, row.open_seconds),
            last_error: row.last_error,
        });
        Ok(breakers.collect())
    }
}
