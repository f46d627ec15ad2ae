//! The exported span of a job.

use anneal_store::ClaimedJob;
use anneal_trace::SpanRole;
use tracing::Span;

/// Makes the span of a job continue the trace of the call that enqueued it.
pub(crate) fn continue_trace(span: &Span, job: &ClaimedJob) {
    anneal_trace::continue_trace(span, job.trace_context.as_deref());
    anneal_trace::describe_span(span, SpanRole::Consumer, job.kind.name());
}
