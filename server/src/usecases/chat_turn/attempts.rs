//! One attempt of a turn: builds a context and calls the model. If the context is too long,
//! `overflow.rs` decides what the next attempt changes.

use std::time::Duration;

use anneal_core::{
    context::{Ask, Context, Pressure},
    message::{Media, Part},
    policy::PolicyOverrides,
    tokens::{MEDIA_TOKENS, Tokens},
};
use anneal_gateway::ProviderCalls;
use anneal_llm::{
    provider::{Call, CallFailure, Model},
    provider_error::Confidence,
};
use anneal_proto::v1 as pb;
use pb::{
    AttemptReason,
    chat_response::{Attempt, Event},
};
use tokio::time::Instant;
use tracing::warn;

use super::{
    AskedQuestion, TurnError, TurnRun,
    answer::{self, Answer, Draft},
    call_end, model_failure,
    overflow::OverflowGuard,
    ping::Ping,
    setup::TurnSetup,
    store_answer::SentFigures,
};
use crate::{
    failure::{Failure, Overflow},
    usecases::{
        build_context::{self, BuiltContext, ContextRequest},
        likely_overflows, model_calibration,
    },
};

/// An estimate of tokens is at most this many times the exact count.
const MAX_OVERCOUNT: f64 = 1.3;

/// The part of a turn that outlives the future that receives its answer, so that an answer that is
/// interrupted can be kept.
#[derive(Debug, Default)]
pub(super) struct PartialTurn {
    /// The part of the answer that has come.
    pub(super) draft: Draft,
    /// The figures of what was sent for it.
    pub(super) sent: SentFigures,
}

/// An answer, and the figures of its context.
pub(super) struct ModelAnswer {
    pub(super) answer: Answer,
    pub(super) sent: SentFigures,
    /// The call that keeps the provider's cache warm afterwards, if the caller asked for one.
    pub(super) ping: Option<Ping>,
}

/// The outcome of an attempt that did not fail.
pub(super) enum AttemptOutcome {
    /// The model has answered.
    Answered(ModelAnswer),
    /// The context is too long for the model. The reason is for the event of the next attempt.
    ContextTooLong(AttemptReason),
}

impl TurnRun {
    /// The overflow guard before the first attempt.
    pub(super) fn overflow_guard(&self, model: &Model, setup: &TurnSetup) -> OverflowGuard {
        OverflowGuard::new(
            model.window(),
            model.output(),
            setup.options.output_tokens,
            setup.reserved,
        )
        .with_on_overflow(self.turn.on_overflow)
    }

    /// Builds the context of an attempt, from the stored conversation or from the messages of the
    /// request. If the attempt compacts a conversation, also queues the checkpoint that makes the
    /// compaction permanent.
    pub(super) async fn build_context(
        &self,
        calls: &ProviderCalls<'_>,
        asked: AskedQuestion<'_>,
        setup: &TurnSetup,
        guard: &mut OverflowGuard,
    ) -> Result<BuiltContext, TurnError> {
        let (state, caller) = (&self.state, self.caller);
        let budget = &state.turn_content_budget;
        let request = self.context_request(calls.model(), setup, guard);
        let built = match asked {
            AskedQuestion::Stored(_) => build_context::build(state, budget, caller, &request).await,
            AskedQuestion::Unstored(messages) => {
                build_context::build_from_messages(state, budget, caller, messages, &request).await
            }
        };
        let built = match built {
            Err(Failure::Budget(_)) => return Err(overflow(calls, guard).into()),
            built => built?,
        };
        // Release the slot before the model is called, because the model may take minutes.
        built.reservation.release_large_slot();
        if guard.pressure() == Pressure::Compact && matches!(asked, AskedQuestion::Stored(_)) {
            self.queue_compaction(&built).await;
        }
        let policy_window = built.policy.window_known.then_some(built.policy.window);
        guard.apply_stored_limits(policy_window, built.learnt_window, built.ratio);
        guard.record_context(built.context.total);
        Ok(built)
    }

    /// Calls the model with this context. If the context is too long, stores the window and the
    /// token count that the provider's refusal names. `partial` holds what has come of the answer
    /// if the future is dropped before.
    pub(super) async fn call_model(
        &self,
        calls: &mut ProviderCalls<'_>,
        built: &BuiltContext,
        setup: &TurnSetup,
        guard: &mut OverflowGuard,
        partial: &mut PartialTurn,
    ) -> Result<AttemptOutcome, TurnError> {
        let sent = guard.context();
        if guard.is_unchanged() {
            return Err(too_long(calls, guard).into());
        }
        if guard.will_be_refused(sent) {
            guard.record_confidence(Confidence::Certain, None);
            return Ok(AttemptOutcome::ContextTooLong(
                AttemptReason::OverLearntWindow,
            ));
        }
        let own_tokens = guard.own_tokens(built.context.total);
        let prefix = &built.context.prefix;
        partial.sent = SentFigures {
            own_tokens,
            expected_cached: prefix.cached,
            break_reason: prefix.cache_break.map(|broken| broken.reason),
        };
        let call = Call {
            context: built
                .rendered
                .as_ref()
                .map_or("", |rendered| rendered.json.as_str()),
            options: &setup.options,
            output: guard.answer_tokens_beside(sent),
            mark_tools: built.context.tools_ttl,
            cache_key: setup.cache_key(),
            long_retention: setup.wants_long_retention(),
            input: sent,
            least_sent_tokens: Some(least_sent_tokens(built)),
            window: Some(guard.window()),
        };
        let begun = Instant::now();
        match self.stream_answer(calls, &call, &mut partial.draft).await {
            Ok(answer) => {
                let lifetime = Duration::from_secs(u64::from(built.policy.cache_ttl_seconds));
                let ping = || Ping::new(&call, built, begun, lifetime);
                Ok(AttemptOutcome::Answered(ModelAnswer {
                    answer,
                    sent: partial.sent,
                    ping: self.turn.cache_ping.then(ping),
                }))
            }
            Err(TurnError::Failed(Failure::Model {
                failure:
                    CallFailure::Overflow {
                        window,
                        prompt,
                        read,
                        rule,
                        confidence,
                        status,
                        wording,
                    },
                ..
            })) => {
                partial.draft.clear();
                guard.record_read(read);
                guard.record_confidence(confidence, status);
                if let Some(wording) = wording {
                    likely_overflows::record(calls.model().name(), rule, status, wording);
                }
                self.store_refusal_hints(calls.model(), guard, own_tokens, window, prompt)
                    .await;
                Ok(AttemptOutcome::ContextTooLong(AttemptReason::Overflow))
            }
            Err(ended) => Err(ended),
        }
    }

    /// Begins the next attempt after a context that is too long, and tells the caller. Fails if no
    /// attempt is left.
    pub(super) async fn begin_next_attempt(
        &self,
        calls: &ProviderCalls<'_>,
        built: &BuiltContext,
        guard: &mut OverflowGuard,
        reason: AttemptReason,
    ) -> Result<(), TurnError> {
        if !guard.advance_after(built.context.total, guard.confidence()) {
            return Err(too_long(calls, guard).into());
        }
        self.events
            .send(Event::Attempt(attempt(guard, reason)))
            .await?;
        Ok(())
    }

    /// Calls the model once, and sends the pieces of its answer to the caller.
    async fn stream_answer(
        &self,
        calls: &mut ProviderCalls<'_>,
        call: &Call<'_>,
        draft: &mut Draft,
    ) -> Result<Answer, TurnError> {
        let model = calls.model().name();
        let mut stream = calls
            .stream(call)
            .await
            .map_err(|failure| model_failure(model, failure))?;
        let most_bytes = self.settings.limits.message_bytes();
        let received = answer::receive(&mut stream, model, &self.events, (draft, most_bytes)).await;
        stream.end(call_end(&received));
        received
    }

    /// Queues the checkpoint that makes a compaction permanent. If that fails, the next turn that
    /// needs it compacts again.
    async fn queue_compaction(&self, built: &BuiltContext) {
        let last = built.context.last_message_id;
        if let Err(error) =
            build_context::queue_compaction(&self.state, self.caller, self.turn.id, last).await
        {
            self.state.store.log_failure(&error, || {
                warn!("could not queue the checkpoint of a compaction: {error}");
            });
        }
    }

    fn context_request(
        &self,
        model: &Model,
        setup: &TurnSetup,
        guard: &OverflowGuard,
    ) -> ContextRequest {
        ContextRequest {
            id: self.turn.id,
            ask: Ask {
                current_input: Vec::new(),
                system_prompt: self.turn.system_prompt.clone(),
                budget: guard.budget(),
                format: model.format(),
                media: model.media().clone(),
                pressure: guard.pressure(),
                cache: Some(setup.cache_ask(model)),
            },
            overrides: PolicyOverrides {
                model: Some(model.name().to_owned()),
                ..PolicyOverrides::default()
            },
            dry_run: false,
            ratio: guard.refusal_ratio(),
        }
    }

    /// Applies and stores the window and the token count that an overflow error names.
    async fn store_refusal_hints(
        &self,
        model: &Model,
        guard: &mut OverflowGuard,
        own_tokens: Tokens,
        window: Option<Tokens>,
        prompt: Option<Tokens>,
    ) {
        if let Some(window) = window {
            model_calibration::store_window(&self.state, self.caller, model.name(), window).await;
        }
        let ratio = match prompt {
            Some(counted) => {
                model_calibration::store_ratio(
                    &self.state,
                    self.caller,
                    model.name(),
                    counted,
                    own_tokens,
                )
                .await
            }
            None => None,
        };
        guard.apply_refusal(window, ratio);
    }
}

fn attempt(guard: &OverflowGuard, reason: AttemptReason) -> Attempt {
    let reason = if guard.is_extra() {
        AttemptReason::RetrySmaller
    } else {
        reason
    };
    Attempt {
        number: guard.attempt(),
        pressure: pb::Pressure::from(guard.pressure()).into(),
        reason: reason.into(),
    }
}

/// The failure of a turn without another attempt: the provider's refusal, if it is only likely that
/// the context was too long, and otherwise the overflow.
fn too_long(calls: &ProviderCalls<'_>, guard: &OverflowGuard) -> Failure {
    guard.likely_status().map_or_else(
        || overflow(calls, guard).into(),
        |status| model_failure(calls.model().name(), CallFailure::Refused { status }),
    )
}

fn overflow(calls: &ProviderCalls<'_>, guard: &OverflowGuard) -> Overflow {
    Overflow {
        model: calls.model().name().to_owned(),
        window: guard.window(),
        context: guard.context(),
        output: guard.answer_tokens(),
        read: guard.read(),
        attempts: calls.spent().calls.unsigned_abs(),
    }
}

/// The least number of tokens that the provider must have read, to detect a prompt that it
/// truncated silently. Media are left out, because their count is a guess. The rest is divided by
/// [`MAX_OVERCOUNT`]. A stored ratio is applied only if it lowers the number: with a wrong ratio
/// every answer would be reported as truncated, so the ratio would never be corrected.
fn least_sent_tokens(built: &BuiltContext) -> Tokens {
    let text = built.context.total.less(media_tokens(&built.context)).get() as f64;
    Tokens::new((text * built.ratio.unwrap_or(1.0).min(1.0) / MAX_OVERCOUNT) as u64)
}

fn media_tokens(context: &Context) -> Tokens {
    let count = |media: &Media| {
        if media.tokens == 0 {
            MEDIA_TOKENS
        } else {
            Tokens::new(media.tokens)
        }
    };
    let parts = context.messages.iter().flat_map(|message| &message.parts);
    let of_part = |part: &Part| match part {
        Part::Media(media) => count(media),
        Part::ToolResult { media, .. } => media.iter().map(count).sum(),
        Part::Text { .. } | Part::ToolUse { .. } | Part::Reasoning { .. } => Tokens::ZERO,
    };
    parts.map(of_part).sum()
}
