//! GetModelStats.

use anneal_core::{admission::Breaker, caller::Caller};
use anneal_proto::v1 as pb;

use crate::{failure::Failure, state::ServerState};

/// Returns the figures of today's model calls, and the state of the circuit breakers.
pub(crate) async fn get_model_stats(
    state: &ServerState,
    caller: Caller,
    _: pb::GetModelStatsRequest,
) -> Result<pb::GetModelStatsResponse, Failure> {
    let models = state
        .store
        .read_model_figures(caller)
        .await?
        .into_iter()
        .map(|figures| pb::ModelStats {
            model: figures.model,
            calls_under_way: figures.under_way,
            calls_today: figures.calls,
            failed_calls_today: figures.failed_calls,
            input_tokens_today: figures.input.get(),
            output_tokens_today: figures.output.get(),
            breaker: Some(breaker(figures.breaker, figures.last_error)),
            tenant_breaker: Some(breaker(figures.tenant_breaker, figures.tenant_error)),
            open_tenant_breakers: figures.open_tenant_breakers,
        });
    let conversations = state
        .store
        .list_conversation_breakers(caller)
        .await?
        .into_iter();
    let conversations = conversations.map(|stored| pb::ConversationBreaker {
        conversation_id: stored.conversation.to_string(),
        model: stored.model,
        breaker: Some(breaker(stored.breaker, stored.last_error)),
    });
    Ok(pb::GetModelStatsResponse {
        models: models.collect(),
        conversations: conversations.collect(),
    })
}

fn breaker(breaker: Breaker, last_error: String) -> pb::Breaker {
    pb::Breaker {
        failures: i32::try_from(breaker.failures).unwrap_or(i32::MAX),
        open_for: breaker.open_for.and_then(|left| left.try_into().ok()),
        last_error,
    }
}
