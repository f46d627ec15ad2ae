//! Language models: the providers behind which they are called ([`provider`]), what makes summaries with them
//! ([`ModelSummarizer`]) and without them ([`Extractive`]), and what their errors mean ([`provider_error`]).

mod access;
mod extractive;
mod model_summary;
mod port;
pub mod provider;
pub mod provider_error;

pub use access::{ModelAccess, TENANT_SHARE_PERCENT};
pub use extractive::Extractive;
pub use model_summary::ModelSummarizer;
pub use port::{
    BoxFuture, Desk, Measure, Purpose, Quote, Source, SourceBody, Summarizer, Summary, SummaryAsk, SummaryFailure,
    SummaryKind, Unfit,
};
