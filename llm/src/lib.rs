//! Language models.
//!
//! - [`provider`]: the models, and calls to their providers.
//! - [`provider_error`]: decides whether a provider's answer means that the context is too long.
//! - `summarizer`: the interface of summarizers.
//! - `model_summary` ([`ModelSummarizer`]): summaries written by a model.
//! - `extractive` ([`Extractive`]): summaries without a model.
//! - `access` ([`ModelAccess`]): the callable models and the operator's limits.

mod access;
mod extractive;
mod model_summary;
pub mod provider;
pub mod provider_error;
mod summarizer;

pub use access::{ModelAccess, TENANT_SHARE_PERCENT};
pub use extractive::Extractive;
pub use model_summary::ModelSummarizer;
pub use summarizer::{
    BoxFuture, Measure, Purpose, Quote, RejectedSummary, Source, SourceBody, Summarizer, Summary,
    SummaryAsk, SummaryCalls, SummaryFailure,
};
