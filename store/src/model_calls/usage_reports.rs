//! Stores the usage that providers reported. Calibrates models with it, and with what providers say
//! about them in errors.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::Digest,
    tokens::Tokens,
    usage::{CacheState, Usage},
};

use crate::{
    Store,
    context::reason_code,
    error::{Entity, StoreError},
    rows::{column, tokens},
};

/// A usage report to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageReport {
    /// The caller's request id. Reports with the same id are stored once.
    pub request_id: String,
    /// Digest of the report.
    pub digest: Digest,
    /// Name of the model that answered.
    pub model: String,
    /// The reported usage.
    pub usage: Usage,
    /// Why the model stopped: 1 end of the answer, 2 tool calls, 3 output limit, 4 content filter,
    /// 5 stopped by a caller. None: not reported.
    pub stop_reason: Option<i16>,
    /// The purpose of the call.
    pub call: ReportedCall,
}

/// The purpose of a reported call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportedCall {
    /// An answer, which came to its end. Only such a call calibrates its model.
    Answer,
    /// An answer that was stopped before its end.
    StoppedAnswer,
    /// An answer that a bound caller reports. What it says of the model would count for the whole
    /// tenant.
    AnswerToBound,
    /// To keep the provider's cache warm.
    Ping,
}

/// How a model counts tokens, derived from usage reports and from its provider's errors.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Calibration {
    /// The model's input tokens per token counted here; zero if no report and no error has shown
    /// it, or if the tenant has too many models for this one to be stored.
    pub ratio: f64,
    /// Number of reports and errors that the ratio is derived from.
    pub reports: i64,
}

/// What the provider of a model has shown about it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LearntModel {
    /// The context window that the provider has named in an error; None: it has named none.
    pub window: Option<Tokens>,
    /// The model's tokens per token counted here; None: unknown.
    pub ratio: Option<f64>,
}

/// Facts about a model that a usage report or an error shows.
#[derive(Debug, Clone, Copy, Default)]
struct Observation {
    /// The model's tokens per token counted here.
    ratio: Option<f64>,
    /// The context window in tokens, as an error has reported it.
    window: Option<i64>,
    /// Input tokens of one call that succeeded.
    input: Option<i64>,
}

/// Most models that are calibrated for one tenant. Callers choose the names of models in their
/// reports, so without a limit they could store any number.
const MAX_MODELS_PER_TENANT: i64 = 1_000;

impl Store {
    /// Stores a usage report, once per `request_id`, and calibrates its model, unless the answer
    /// was stopped or the call is a ping. If the call read more than the context window that an
    /// error had reported, that window is wrong and is deleted.
    pub async fn report_usage(
        &self,
        caller: Caller,
        id: ConversationId,
        report: &UsageReport,
    ) -> Result<Calibration, StoreError> {
        let fresh = self.put_report(caller, id, report).await?;
        if report.call != ReportedCall::Answer {
            return Ok(Calibration::default());
        }
        let ratio = if fresh { report.usage.ratio() } else { None };
        self.calibrate(caller, &report.model, answered(ratio, &report.usage))
            .await
    }

    /// Calibrates a model with the usage of an answer that is not stored. Stores nothing else.
    pub async fn learn_usage(
        &self,
        caller: Caller,
        model: &str,
        usage: &Usage,
    ) -> Result<(), StoreError> {
        self.calibrate(caller, model, answered(usage.ratio(), usage))
            .await?;
        Ok(())
    }

    /// Calibrates a model with a token count that its provider reported in an error. `ratio`: the
    /// model's tokens per token counted here.
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

    /// The window of a model: the known one, or the one that its provider named in an error,
    /// whichever is smaller. None: neither is there.
    pub async fn find_window(
        &self,
        caller: Caller,
        model: &str,
    ) -> Result<Option<Tokens>, StoreError> {
        let learnt = self.find_learnt(caller, model).await?;
        Ok(self
            .policy_defaults
            .get()
            .session()
            .window_of(model, learnt.window))
    }

    /// What the provider of a model has shown about it so far.
    pub async fn find_learnt(
        &self,
        caller: Caller,
        model: &str,
    ) -> Result<LearntModel, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let learnt = sqlx::query!(
            "select window_tokens, tokens_ratio from ai_model where tenant_id = $1 and model = $2",
            caller.tenant().0,
            model,
        )
        .fetch_optional(&mut *db)
        .await?;
        db.release().await?;
        Ok(learnt.map_or_else(LearntModel::default, |row| LearntModel {
            window: row.window_tokens.map(tokens),
            ratio: row.tokens_ratio,
        }))
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
        // Without them nothing is known of what was expected.
        let has_figures = usage.context > Tokens::ZERO || usage.expected_cached > Tokens::ZERO;
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
            has_figures.then(|| column(usage.expected_cached)),
            usage.break_reason.map(reason_code),
            (usage.long_written > Tokens::ZERO).then(|| column(usage.long_written)),
            (report.call == ReportedCall::Ping).then_some(true),
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

    /// Updates what is stored about a model. Returns how it counts tokens.
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
            observation.input,
            MAX_MODELS_PER_TENANT,
        )
        .fetch_optional(&mut *db)
        .await?;
        db.release().await?;
        let learned = row.map(|row| Calibration {
            ratio: row.tokens_ratio.unwrap_or(0.0),
            reports: row.reports,
        });
        Ok(learned.unwrap_or_default())
    }
}

/// What an answer shows about its model. `ratio`: that of its usage, unless it was counted before.
fn answered(ratio: Option<f64>, usage: &Usage) -> Observation {
    Observation {
        ratio,
        input: Some(column(usage.input)),
        ..Observation::default()
    }
}

const fn cache_state_code(state: CacheState) -> i16 {
    match state {
        CacheState::NothingExpected => 1,
        CacheState::Warm => 2,
        CacheState::Cold => 3,
        CacheState::ColdByUs => 4,
    }
}

pub(super) const fn cache_state(code: i16) -> Option<CacheState> {
    match code {
        1 => Some(CacheState::NothingExpected),
        2 => Some(CacheState::Warm),
        3 => Some(CacheState::Cold),
        4 => Some(CacheState::ColdByUs),
        _ => None,
    }
}
