//! CancelTurn.

use std::time::Duration;

use anneal_core::{
    caller::{Caller, ConversationId},
    limits::{CANCEL_WAIT_MAX_SECONDS, CANCEL_WAIT_SECONDS, ID_BYTES},
    message::MessageId,
};
use anneal_proto::{convert::parse, v1 as pb};
use anneal_store::{StopAsk, StopMode, StoppedTurn, StoreError, TurnEnd};
use pb::CancelOutcome;
use tokio::time::{Instant, sleep};

use crate::{failure::Failure, state::ServerState, usecases::chat_turn::answer_request_id};

/// Time between two looks at a turn that was told to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Stops the turn that is under way in a conversation, and waits for its end.
pub(crate) async fn cancel_turn(
    state: &ServerState,
    caller: Caller,
    ask: pb::CancelTurnRequest,
) -> Result<pb::CancelTurnResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    parse::bounded_text("turn_request_id", &ask.turn_request_id, ID_BYTES)?;
    let wait = wait(ask.wait)?;
    let conversation = state.store.get_conversation(caller, id).await?;
    let policy = state
        .store
        .session()
        .resolved(&conversation.attributes.policy);
    let keep = ask.keep_partial.or(policy.keep_partial).unwrap_or(true);
    let mode = if keep { StopMode::Keep } else { StopMode::Drop };
    let named = (!ask.turn_request_id.is_empty()).then_some(ask.turn_request_id.as_str());
    let stop = StopAsk {
        turn_request_id: named,
        mode,
    };
    let Some(turn) = state.store.request_stop(caller, id, &stop).await? else {
        return match named {
            Some(request_id) => describe_end(state, caller, id, request_id).await,
            None => Ok(response(CancelOutcome::NotRunning, "", MessageId::NONE)),
        };
    };
    state.turn_stops.signal(turn.lease, mode);
    let request_id = turn.request_id.as_deref().unwrap_or_default();
    if !wait_for_end(state, caller, &turn, wait).await? {
        return Ok(response(
            CancelOutcome::Pending,
            request_id,
            MessageId::NONE,
        ));
    }
    let ended = describe_end(state, caller, id, request_id).await?;
    Ok(match ended.outcome() {
        // It was under way, and nothing of its answer is stored.
        CancelOutcome::NotRunning => response(CancelOutcome::Dropped, request_id, MessageId::NONE),
        _ => ended,
    })
}

/// How long the caller wants to wait; zero for a value that [`cancel_turn`] refuses later.
pub(crate) fn requested_wait(ask: &pb::CancelTurnRequest) -> Duration {
    wait(ask.wait).unwrap_or_default()
}

fn wait(requested: Option<prost_types::Duration>) -> Result<Duration, Failure> {
    let Some(requested) = requested else {
        return Ok(Duration::from_secs(CANCEL_WAIT_SECONDS));
    };
    let negative = || Failure::invalid("wait", "must not be negative");
    // Signs are checked first, because prost's conversion overflows on the most negative values.
    if requested.seconds < 0 || requested.nanos < 0 {
        return Err(negative());
    }
    let wait = Duration::try_from(requested).map_err(|_| negative())?;
    if wait > Duration::from_secs(CANCEL_WAIT_MAX_SECONDS) {
        return Err(Failure::limit(
            "wait",
            CANCEL_WAIT_MAX_SECONDS as usize,
            "seconds",
        ));
    }
    Ok(wait)
}

/// Polls until the turn has ended. False: the wait is over before.
async fn wait_for_end(
    state: &ServerState,
    caller: Caller,
    turn: &StoppedTurn,
    wait: Duration,
) -> Result<bool, StoreError> {
    let until = Instant::now() + wait;
    while state.store.is_running(caller, turn).await? {
        if Instant::now() + POLL_INTERVAL > until {
            return Ok(false);
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(true)
}

/// How the turn with this request id has ended, by what is stored.
async fn describe_end(
    state: &ServerState,
    caller: Caller,
    id: ConversationId,
    request_id: &str,
) -> Result<pb::CancelTurnResponse, Failure> {
    let answer = answer_request_id(request_id);
    let end = state.store.find_turn_end(caller, id, &answer).await?;
    Ok(match end {
        None => response(CancelOutcome::NotRunning, "", MessageId::NONE),
        Some(TurnEnd::Dropped) => response(CancelOutcome::Dropped, request_id, MessageId::NONE),
        Some(TurnEnd::Answered { message, stopped }) => {
            let outcome = if stopped {
                CancelOutcome::Kept
            } else {
                CancelOutcome::Answered
            };
            response(outcome, request_id, message)
        }
    })
}

fn response(outcome: CancelOutcome, request_id: &str, answer: MessageId) -> pb::CancelTurnResponse {
    pb::CancelTurnResponse {
        outcome: outcome.into(),
        turn_request_id: request_id.to_owned(),
        answer_message_id: answer.0,
    }
}
