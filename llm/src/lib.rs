//! What summarises: the port that every language model implements, and [`Extractive`], which needs none.

mod extractive;
mod port;
pub mod provider_error;

pub use extractive::Extractive;
pub use port::{
    BoxFuture, Measure, Purpose, Quote, Source, SourceBody, Summarizer, Summary, SummaryAsk, SummaryFailure,
    SummaryKind,
};
