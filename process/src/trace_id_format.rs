//! Log lines with the id of the trace in which they were written, so that a line leads to its
//! trace. Without a trace, lines are as the wrapped format writes them.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

/// A format of log lines that adds the field `trace_id` to the lines of `inner`.
pub(crate) struct WithTraceId<F> {
    pub(crate) inner: F,
    /// Adds a trace id to a line of `inner`.
    pub(crate) add: fn(&str, &str) -> String,
}

impl<S, N, F> FormatEvent<S, N> for WithTraceId<F>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(trace_id) = anneal_trace::current_trace_id() else {
            return self.inner.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.inner
            .format_event(context, Writer::new(&mut line), event)?;
        writer.write_str(&(self.add)(&line, &trace_id))
    }
}

/// A line of JSON with the trace id as its last field.
pub(crate) fn add_to_json(line: &str, trace_id: &str) -> String {
    line.trim_end_matches('\n').strip_suffix('}').map_or_else(
        || line.to_owned(),
        |fields| format!("{fields},\"trace_id\":\"{trace_id}\"}}\n"),
    )
}

/// A line of text with the trace id as its last field.
pub(crate) fn add_to_text(line: &str, trace_id: &str) -> String {
    format!("{} trace_id={trace_id}\n", line.trim_end_matches('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_id_is_the_last_field_of_a_line() {
        assert_eq!(
            add_to_json("{\"level\":\"INFO\"}\n", "4bf9"),
            "{\"level\":\"INFO\",\"trace_id\":\"4bf9\"}\n"
        );
        assert_eq!(
            add_to_text("INFO working\n", "4bf9"),
            "INFO working trace_id=4bf9\n"
        );
    }
}
