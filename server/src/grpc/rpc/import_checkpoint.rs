//! ImportCheckpoint.

use anneal_core::{
    caller::Caller,
    limits::{ID_BYTES, SUMMARY_BYTES},
    tokens::Tokens,
};
use anneal_proto::{convert::parse, v1 as pb};
use anneal_store::ImportedSummary;

use crate::{failure::Failure, limits::cpu_pool, reply, state::ServerState};

/// Creates a checkpoint from a summary that another system wrote.
pub(crate) async fn import_checkpoint(
    state: &ServerState,
    caller: Caller,
    ask: pb::ImportCheckpointRequest,
) -> Result<pb::Checkpoint, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let request_id = parse::request_id(&ask.request_id)?;
    let last = parse::message_id("last_message_id", ask.last_message_id)?;
    let text = parse::bounded_text("summary", &ask.summary, SUMMARY_BYTES)?;
    if text.is_empty() {
        return Err(Failure::invalid("summary", "must not be empty"));
    }
    let model = parse::bounded_text("model", &ask.model, ID_BYTES)?;
    let encoding = state
        .store
        .get_conversation(caller, id)
        .await?
        .attributes
        .encoding;
    let (is_long, text) = (
        cpu_pool::is_long_count(encoding, text.len(), 0),
        text.to_owned(),
    );
    let count = move || {
        (
            encoding.counter().count(&text),
            encoding.estimate(&text),
            text,
        )
    };
    let (tokens, estimate, text) = state.cpu.run_if(is_long, caller.tenant(), count).await?;
    let imported = ImportedSummary {
        last,
        text,
        tokens,
        estimate,
        model: model.into(),
        tokens_before: ask.tokens_before.map(Tokens::new),
        tokens_after: ask.tokens_after.map(Tokens::new),
    };
    let checkpoint = state
        .store
        .import_checkpoint(caller, id, request_id, &imported)
        .await?;
    Ok(reply::checkpoint(id, checkpoint))
}
