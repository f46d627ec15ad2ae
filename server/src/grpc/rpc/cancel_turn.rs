//! CancelTurn.

use std::{pin::pin, time::Duration};

use anneal_core::{
    caller::{Caller, ConversationId},
    limits::{CANCEL_WAIT_MAX_SECONDS, CANCEL_WAIT_SECONDS, ID_BYTES},
    message::MessageId,
};
use anneal_proto::{convert::parse, v1 as pb};
use anneal_store::{StopAsk, StopMode, StoppedTurn, StoreError, TurnEnd, TurnRequestIds};
use pb::CancelOutcome;
use tokio::time::{Instant, sleep};

use crate::{failure::Failure, state::ServerState, usecases::chat_turn::answer_request_id};

/// Time between the first two looks at a turn that was told to stop. Each later one is twice as
/// long, up to [`MAX_PAUSE`]: most turns end at once, and a slow one may have many callers that
/// wait.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The longest time between two looks.
const MAX_PAUSE: Duration = Duration::from_millis(500);

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
    // Without a request id it ran on an older server, and it is not known how it has ended.
    if ended.outcome() != CancelOutcome::NotRunning || turn.request_id.is_none() {
        return Ok(ended);
    }
    // It has failed, its server has died, or it has ended without an answer to store: nothing of
    // its answer is stored, and nothing will be. A caller that repeats it does not want an answer
    // that another one has stopped, so that is recorded in each case.
    let answer = answer_request_id(request_id);
    let request_ids = TurnRequestIds {
        turn: request_id,
        answer: &answer,
    };
    let end = state
        .store
        .record_stop_of_ended_turn(caller, id, request_ids)
        .await?;
    Ok(ended_turn(end, request_id))
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

/// Looks again and again until the turn has ended, and at once when it ends in this process. False:
/// the wait is over before.
async fn wait_for_end(
    state: &ServerState,
    caller: Caller,
    turn: &StoppedTurn,
    wait: Duration,
) -> Result<bool, StoreError> {
    let until = Instant::now() + wait;
    let mut local_end = pin!(state.turn_stops.wait_for_end(turn.lease));
    let (mut is_local, mut pause) = (true, FIRST_PAUSE);
    while state.store.is_running(caller, turn).await? {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        tokio::select! {
            // Only a hint: another call of the turn may go on.
            () = &mut local_end, if is_local => (is_local, pause) = (false, FIRST_PAUSE),
            () = sleep(pause.min(left)) => pause = longer(pause),
        }
    }
    Ok(true)
}

/// The pause after one of this length.
fn longer(pause: Duration) -> Duration {
    (pause * 2).min(MAX_PAUSE)
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
    Ok(end.map_or_else(
        || response(CancelOutcome::NotRunning, "", MessageId::NONE),
        |end| ended_turn(end, request_id),
    ))
}

fn ended_turn(end: TurnEnd, request_id: &str) -> pb::CancelTurnResponse {
    match end {
        TurnEnd::Dropped => response(CancelOutcome::Dropped, request_id, MessageId::NONE),
        TurnEnd::Answered { message, stopped } => {
            let outcome = if stopped {
                CancelOutcome::Kept
            } else {
                CancelOutcome::Answered
            };
            response(outcome, request_id, message)
        }
    }
}

fn response(outcome: CancelOutcome, request_id: &str, answer: MessageId) -> pb::CancelTurnResponse {
    pb::CancelTurnResponse {
        outcome: outcome.into(),
        turn_request_id: request_id.to_owned(),
        answer_message_id: answer.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_that_waits_as_long_as_it_may_looks_some_dozens_of_times() {
        let pauses = std::iter::successors(Some(FIRST_PAUSE), |pause| Some(longer(*pause)));
        let mut waited = Duration::ZERO;
        let longest = Duration::from_secs(CANCEL_WAIT_MAX_SECONDS);
        let looks = pauses
            .take_while(|pause| {
                waited += *pause;
                waited < longest
            })
            .count();
        assert!((50..=65).contains(&looks), "{looks}");
    }
}
