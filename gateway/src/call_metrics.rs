//! The metrics and the span of a call of a provider: its outcome, its duration, the time to its first
//! token and its tokens. Detects calls that hang.

use std::time::Instant;

use anneal_core::render::Format;
use anneal_llm::provider::{CallCost, CallFailure, Model};
use anneal_store::ModelSpend;
use anneal_trace::SpanRole;
use tracing::{Span, debug_span};

use crate::call_end::CallEnd;

/// A guard that records a call's metrics when the guard is dropped, also if the call is abandoned.
pub(crate) struct CallMetrics<'a> {
    model: &'a Model,
    span: Span,
    started: Instant,
    /// None: the call has not ended by itself.
    outcome: Option<&'static str>,
    has_failed: bool,
    /// Whether any bytes of the answer have arrived.
    has_begun: bool,
    /// When the first piece of the answer arrived.
    first_piece: Option<Instant>,
    /// Where the guard records whether the call hung.
    has_hung: &'a mut bool,
    /// The number of failed calls, to which the guard adds this one if it fails or hangs.
    failed: &'a mut i32,
}

impl<'a> CallMetrics<'a> {
    /// Starts to measure a call of this model. A call without [`Self::set_end`] hangs if nothing
    /// has arrived within [`Model::hang_after`]; otherwise it counts as abandoned. `has_hung` and
    /// `failed` are set when the guard is dropped.
    pub(crate) fn start(model: &'a Model, has_hung: &'a mut bool, failed: &'a mut i32) -> Self {
        Self {
            model,
            span: call_span(model),
            started: Instant::now(),
            outcome: None,
            has_begun: false,
            first_piece: None,
            has_hung,
            failed,
            has_failed: false,
        }
    }

    /// The call's span, with the attributes that OpenTelemetry defines for generative AI.
    pub(crate) const fn span(&self) -> &Span {
        &self.span
    }

    /// Records the cost of the call in its span.
    pub(crate) fn record_tokens(&self, cost: &CallCost) {
        for (name, tokens) in [
            ("gen_ai.usage.input_tokens", cost.input()),
            ("gen_ai.usage.output_tokens", cost.output()),
        ] {
            let tokens = i64::try_from(tokens.get()).unwrap_or(i64::MAX);
            anneal_trace::set_attribute(&self.span, name, tokens);
        }
    }

    pub(crate) const fn set_end(&mut self, end: CallEnd<'_>) {
        self.outcome = Some(end.name());
        self.has_failed = matches!(end, CallEnd::Failed(_));
    }

    /// Records whether any bytes of the answer have arrived, and when its first piece did.
    pub(crate) const fn set_begun(&mut self, has_begun: bool, first_piece: Option<Instant>) {
        self.has_begun = has_begun;
        self.first_piece = first_piece;
    }
}

impl Drop for CallMetrics<'_> {
    fn drop(&mut self) {
        let elapsed = self.started.elapsed();
        *self.has_hung =
            self.outcome.is_none() && !self.has_begun && elapsed >= self.model.hang_after();
        *self.failed += i32::from(self.has_failed || *self.has_hung);
        let outcome = match self.outcome {
            Some(outcome) => outcome,
            None if *self.has_hung => CallFailure::unanswered().name(),
            None => CallEnd::Abandoned.name(),
        };
        if outcome != CallEnd::Answered.name() {
            anneal_trace::set_failure(&self.span, outcome);
        }
        let model = self.model.name().to_owned();
        if let Some(first_piece) = self.first_piece {
            let (model, waited) = (
                model.clone(),
                first_piece.saturating_duration_since(self.started),
            );
            metrics::histogram!("anneal_model_time_to_first_token_seconds", "model" => model)
                .record(waited.as_secs_f64());
        }
        metrics::counter!("anneal_model_calls_total", "model" => model.clone(), "outcome" => outcome)
            .increment(1);
        metrics::histogram!("anneal_model_call_duration_seconds", "model" => model)
            .record(elapsed.as_secs_f64());
    }
}

/// Counts the tokens of a model's calls, those of calls without a complete answer included.
pub(crate) fn count_tokens(model: &Model, spent: ModelSpend) {
    let model = model.name().to_owned();
    metrics::counter!("anneal_model_input_tokens_total", "model" => model.clone())
        .increment(spent.input.get());
    metrics::counter!("anneal_model_output_tokens_total", "model" => model)
        .increment(spent.output.get());
}

fn call_span(model: &Model) -> Span {
    let span = debug_span!("model_call", model = model.name());
    if anneal_trace::is_on() {
        let name = format!("chat {}", model.served_as());
        anneal_trace::describe_span(&span, SpanRole::Client, &name);
        anneal_trace::set_attribute(&span, "gen_ai.operation.name", "chat");
        anneal_trace::set_attribute(&span, "gen_ai.provider.name", provider_name(model.format()));
        let served_as = model.served_as().to_owned();
        anneal_trace::set_attribute(&span, "gen_ai.request.model", served_as);
    }
    span
}

/// OpenTelemetry's name of the protocol that a model is called by. No model has the neutral format.
const fn provider_name(format: Format) -> &'static str {
    match format {
        Format::Neutral | Format::OpenAiChat => "openai",
        Format::AnthropicMessages => "anthropic",
        Format::GeminiContents => "gcp.gemini",
    }
}
