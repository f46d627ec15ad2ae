//! ListTokenRuns.

use anneal_core::{caller::Caller, message::MessageId};
use anneal_proto::{convert::parse, v1 as pb};
use anneal_store::{StoreError, TokenRun, TokenRunsAsk};

use crate::{failure::Failure, state::ServerState};

/// Runs of a request that asks for no number.
const DEFAULT_RUNS: i64 = 400;

/// Most runs of an answer.
const MOST_RUNS: i64 = 2_000;

/// Most messages of an answer. Their rows are read one by one, without content.
const MOST_MESSAGES: i64 = 200_000;

/// Returns the tokens of a conversation's messages in runs of equal length.
pub(crate) async fn list_token_runs(
    state: &ServerState,
    caller: Caller,
    ask: pb::ListTokenRunsRequest,
) -> Result<pb::ListTokenRunsResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let first = parse::message_id_or_zero("first_message_id", ask.first_message_id)?;
    let last = parse::message_id_or_zero("last_message_id", ask.last_message_id)?;
    if last != MessageId::NONE && last < first {
        return Err(Failure::invalid(
            "last_message_id",
            "must not be before first_message_id",
        ));
    }
    let runs = match i64::from(ask.runs) {
        negative @ i64::MIN..0 => {
            return Err(Failure::invalid(
                "runs",
                format!("must not be negative, is {negative}"),
            ));
        }
        0 => DEFAULT_RUNS,
        runs => runs.min(MOST_RUNS),
    };
    let ask = TokenRunsAsk {
        first: first.max(MessageId::NONE.next()),
        last,
        runs,
        most_messages: MOST_MESSAGES,
    };
    match state.store.list_token_runs(caller, id, ask).await {
        Ok(found) => Ok(pb::ListTokenRunsResponse {
            runs: found.into_iter().map(token_run).collect(),
        }),
        Err(StoreError::TooManyMessages) => Err(Failure::limit(
            "last_message_id",
            MOST_MESSAGES as usize,
            "messages from first_message_id on",
        )),
        Err(error) => Err(error.into()),
    }
}

fn token_run(run: TokenRun) -> pb::TokenRun {
    let (largest, largest_tokens) = run
        .largest
        .map_or((0, 0), |(id, tokens)| (id.0, tokens.get()));
    pb::TokenRun {
        first_message_id: run.first.0,
        last_message_id: run.last.0,
        tokens: run.tokens.get(),
        largest_message_id: largest,
        largest_tokens,
        summarized_messages: run.summarized,
        withdrawn_messages: run.withdrawn,
        estimated: run.estimated,
    }
}
