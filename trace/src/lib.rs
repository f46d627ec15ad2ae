//! Trace contexts in the format of W3C (`traceparent`): continued from callers, stored with jobs,
//! given to model providers. Attributes of exported spans. `process/src/trace_export.rs` exports
//! the spans and turns this crate on. Until then every function here returns at once.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
};

use opentelemetry::{
    Context, Value,
    propagation::TextMapPropagator as _,
    trace::{Status, TraceContextExt as _},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The name of the HTTP header, and of the gRPC metadata, with a trace context.
pub const TRACEPARENT: &str = "traceparent";

/// The attribute that holds the name under which a span is exported. The exporter removes it.
pub const NAME_ATTRIBUTE: &str = "otel.name";

/// The attribute that holds the kind of an exported span: a [`SpanRole`] as a number. The exporter
/// removes it.
pub const ROLE_ATTRIBUTE: &str = "otel.kind";

/// Whether this process exports traces.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// The side of a call on which a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanRole {
    /// Answers a call.
    Server,
    /// Makes a call.
    Client,
    /// Does work that was enqueued.
    Consumer,
}

impl SpanRole {
    const ALL: [Self; 3] = [Self::Server, Self::Client, Self::Consumer];

    /// The value of [`ROLE_ATTRIBUTE`].
    const fn code(self) -> i64 {
        match self {
            Self::Server => 1,
            Self::Client => 2,
            Self::Consumer => 3,
        }
    }

    /// The role with this value of [`ROLE_ATTRIBUTE`].
    pub fn from_attribute(value: &Value) -> Option<Self> {
        let Value::I64(code) = value else {
            return None;
        };
        Self::ALL.into_iter().find(|role| role.code() == *code)
    }
}

/// Turns the functions of this crate on. Called once, when the process starts to export traces.
pub fn turn_on() {
    IS_ON.store(true, Ordering::Relaxed);
}

/// Whether this process exports traces. Guards work that only traces need.
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// The context of the span in which the calling code runs, as a `traceparent`. None: there is no
/// such span, or traces are off. `tracestate` is not passed on.
pub fn current_traceparent() -> Option<String> {
    if !is_on() {
        return None;
    }
    let mut headers = HashMap::<String, String>::new();
    TraceContextPropagator::new().inject_context(&Context::current(), &mut headers);
    headers.remove(TRACEPARENT)
}

/// The trace id of the span in which the calling code runs: 32 hexadecimal digits. None as for
/// [`current_traceparent`].
pub fn current_trace_id() -> Option<String> {
    if !is_on() {
        return None;
    }
    Context::map_current(|context| {
        let span = context.span();
        let span_context = span.span_context();
        span_context
            .is_valid()
            .then(|| span_context.trace_id().to_string())
    })
}

/// Makes a span the child of the span that this `traceparent` names. Changes nothing if there is
/// none, or if it is malformed. Must be called before the span is entered.
pub fn continue_trace(span: &Span, traceparent: Option<&str>) {
    let Some(traceparent) = traceparent.filter(|_| is_on()) else {
        return;
    };
    let headers = HashMap::from([(TRACEPARENT.to_owned(), traceparent.to_owned())]);
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &headers);
    if context.span().span_context().is_valid() {
        // Fails if the span is disabled: then it is not exported.
        let _ = span.set_parent(context);
    }
}

/// Sets the name and the role with which a span is exported. The log keeps the span's own name.
pub fn describe_span(span: &Span, role: SpanRole, name: &str) {
    if is_on() {
        span.set_attribute(NAME_ATTRIBUTE, name.to_owned());
        span.set_attribute(ROLE_ATTRIBUTE, role.code());
    }
}

/// Sets an attribute of the exported span, which the log does not show.
pub fn set_attribute(span: &Span, name: &'static str, value: impl Into<Value>) {
    if is_on() {
        span.set_attribute(name, value);
    }
}

/// Marks the exported span as failed. `failure` names the failure, without content.
pub fn set_failure(span: &Span, failure: &'static str) {
    if is_on() {
        span.set_attribute("error.type", failure);
        span.set_status(Status::error(failure));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_read_back_from_its_attribute() {
        for role in SpanRole::ALL {
            assert_eq!(
                SpanRole::from_attribute(&Value::I64(role.code())),
                Some(role)
            );
        }
        assert_eq!(SpanRole::from_attribute(&Value::I64(0)), None);
        assert_eq!(SpanRole::from_attribute(&Value::from("server")), None);
    }

    #[test]
    fn without_an_exporter_there_is_no_trace_context() {
        assert_eq!(current_traceparent(), None);
        assert_eq!(current_trace_id(), None);
    }
}
