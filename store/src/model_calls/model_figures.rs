//! Models and breakers as operators see them.

use anneal_core::{
    admission::Breaker,
    caller::{Caller, ConversationId},
    tokens::Tokens,
};

use crate::{
    Store,
    connection::row_security::Scope,
    error::StoreError,
    rows::{breaker, tokens},
};

/// Figures of one model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFigures {
    /// Name of the model in the configuration.
    pub model: String,
    /// The model's breaker, for all tenants.
    pub breaker: Breaker,
    /// The model's last error; empty if the model has answered since, or has never failed.
    pub last_error: String,
    /// The caller's own breaker for the model.
    pub tenant_breaker: Breaker,
    /// The last error of the caller's calls; empty if the model has answered the caller since, or
    /// has never failed for it.
    pub tenant_error: String,
    /// Number of tenants whose own breaker for the model is open.
    pub open_tenant_breakers: i64,
    /// Calls of all tenants that are under way, in all processes.
    pub under_way: i64,
    /// The caller's calls today (UTC).
    pub calls: i64,
    /// The caller's calls today that failed. Calls that their caller ended are not counted.
    pub failed_calls: i64,
    /// Tokens that the caller's calls read today.
    pub input: Tokens,
    /// Tokens that the caller's calls wrote today.
    pub output: Tokens,
}

/// The breakers of one model.
#[derive(Debug, Clone, PartialEq)]
pub struct BreakerFigures {
    /// Name of the model in the configuration.
    pub model: String,
    /// The model's breaker, for all tenants.
    pub breaker: Breaker,
    /// Number of tenants whose own breaker for the model is open.
    pub open_tenant_breakers: i64,
}

/// A conversation whose summaries fail.
#[derive(Debug, Clone, PartialEq)]
pub struct ConversationBreaker {
    /// The conversation.
    pub conversation: ConversationId,
    /// The model that failed.
    pub model: String,
    /// The conversation's breaker.
    pub breaker: Breaker,
    /// The last error.
    pub last_error: String,
}

/// Most conversations in a list.
const MAX_CONVERSATIONS: i64 = 500;

impl Store {
    /// Reads the figures of the models that were called, in the order of their names, at most 500.
    pub async fn read_model_figures(
        &self,
        caller: Caller,
    ) -> Result<Vec<ModelFigures>, StoreError> {
        let mut db = self
            .reads
            .checkout(Scope::TenantAndQueue(caller.tenant()))
            .await?;
        let rows = sqlx::query_file!("sql/model_stats.sql", caller.tenant().0)
            .fetch_all(&mut *db)
            .await?;
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

    /// Reads the breakers of these models, over all tenants. A model that was never called has a
    /// closed one.
    pub async fn read_breaker_figures(
        &self,
        models: &[String],
    ) -> Result<Vec<BreakerFigures>, StoreError> {
        let mut db = self.reads.checkout(Scope::Queue).await?;
        let rows = sqlx::query_file!("sql/breaker_figures.sql", models)
            .fetch_all(&mut *db)
            .await?;
        db.release().await?;
        let figures = rows.into_iter().map(|row| BreakerFigures {
            model: row.model,
            breaker: breaker(row.failures, row.open_seconds),
            open_tenant_breakers: row.open_tenant_breakers,
        });
        Ok(figures.collect())
    }

    /// Lists the caller's conversations whose breaker is open or half open, at most 500. The one
    /// that stays open longest comes first.
    pub async fn list_conversation_breakers(
        &self,
        caller: Caller,
    ) -> Result<Vec<ConversationBreaker>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let rows = sqlx::query!(
            r#"select conversation_id, model, failures, last_error,
                      extract(epoch from open_until_ts - now())::double precision as open_seconds
               from ai_conversation_breaker
               where tenant_id = $1 and open_until_ts is not null
               order by open_until_ts desc limit $2"#,
            caller.tenant().0,
            MAX_CONVERSATIONS,
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
