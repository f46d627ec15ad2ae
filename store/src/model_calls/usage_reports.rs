//! Usage that providers reported, and what is learnt from it about models.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::Digest,
    tokens::Tokens,
    usage::{CacheState, Usage},
};

use crate::{
    Store,
    error::{Entity, StoreError},
    rows::column,
};

/// A usage report to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageReport {
    /// The caller's request id; a report with the same id is stored once.
    pub request_id: String,
    /// Digest of the report.
    pub digest: Digest,
    /// Name of the model that answered.
    pub model: String,
    /// The reported usage.
    pub usage: Usage,
    /// Why the model stopped: 1 end of the answer, 2 tool calls, 3 output limit, 4 content filter.
    /// None: not reported.
    pub stop_reason: Option<i16>,
}

/// How a model counts tokens, derived from usage reports.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Calibration {
    /// The model's input tokens per token counted here; zero before the first report.
    pub ratio: f64,
    /// Number of reports that it is derived from.
    pub reports: i64,
}

/// Figures of a model that a usage report shows.
#[derive(Debug, Clone, Copy, Default)]
struct Observation {
    /// The model's tokens per token counted here.
    ratio: Option<f64>,
    /// The window that an error has reported.
    window: Option<i64>,
    /// Tokens that it has read in one call.
    read: Option<i64>,
}

/// Most models that are calibrated for one tenant. Names are the caller's text: more of them are
/// not real models.
const MAX_MODELS_PER_TENANT: i64 = 1_000;

impl Store {
    /// Stores a usage report, once per `request_id`, and calibrates its model. A learnt window that
    /// the call exceeded is deleted.
    pub async fn report_usage(
        &self,
        caller: Caller,
        id: ConversationId,
        report: &UsageReport,
    ) -> Result<Calibration, StoreError> {
        let fresh = self.put_report(caller, id, report).await?;
        let ratio = if fresh { report.usage.ratio() } else { None };
        let observation = Observation {
            ratio,
            read: Some(column(report.usage.input)),
            ..Observation::default()
        };
        self.calibrate(caller, &report.model, observation).await
    }

    /// Calibrates a model with a count that its provider reported in an error: the model's tokens
    /// per token counted here.
    pub async fn learn_ratio(
        &self,
        caller: Caller,
        model: &str,
        ratio: f64,
    ) -> Result<(), StoreError> {
        self.calibrate(
            caller,
            model,
            Observation {
                ratio: Some(ratio),
                ..Observation::default()
            },
        )
        .await?;
        Ok(())
    }

    /// Stores the context window that the model's provider reported in an error.
    pub async fn learn_window(
        &self,
        caller: Caller,
        model: &str,
        window: Tokens,
    ) -> Result<(), StoreError> {
        self.calibrate(
            caller,
            model,
            Observation {
                window: Some(column(window)),
                ..Observation::default()
            },
        )
        .await?;
        Ok(())
    }

    /// Stores a report. False if it was stored before.
    async fn put_report(
        &self,
        caller: Caller,
        id: ConversationId,
        report: &UsageReport,
    ) -> Result<bool, StoreError> {
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

    async fn calibrate(
        &self,
        caller: Caller,
        model: &str,
        observation: Observation,
    ) -> Result<Calibration, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let row = sqlx::query_file!(
            "sql/calibrate_model.sql",
            caller.tenant().0,
            model,
            observation.ratio,
            observation.window,
            observation.read,
            MAX_MODELS_PER_TENANT,
        )
        .fetch_optional(&mut *db)
        .await?;
        db.release().await?;
        let learnt = row.map(|row| Calibration {
            ratio: row.tokens_ratio.unwrap_or(0.0),
            reports: row.reports,
        });
        Ok(learnt.unwrap_or_default())
    }
}

const fn cache_state_code(state: CacheState) -> i16 {
    match state {
        CacheState::NothingExpected => 1,
        CacheState::Warm => 2,
        CacheState::Cold => 3,
    }
}
