//! Withdraws, restores and erases messages, and chooses earlier answers. Parses which messages a
//! request names, counts messages that were withdrawn before a worker had counted them, and
//! notifies workers and watchers.

use anneal_core::{
    caller::{Caller, ConversationId},
    job::JobKind,
    limits::{CHANGE_IDS, CHANGE_MESSAGES},
    message::{self, MessageId},
    tokens::{Tokens, count_parts},
};
use anneal_proto::{
    convert::{FieldError, parse},
    v1 as pb,
};
use anneal_store::{
    ChangeAsk, ChangeConditions, ChooseAsk, Entity, IdRange, MessageChange, MessageChangeKind,
    Selection, StoreError, ToolPairs, UncountedVersion,
};

use crate::{
    failure::Failure,
    limits::{content_budget::WithReservation, cpu_pool},
    state::ServerState,
};

/// Most times that messages are counted for one call. They are counted again only if workers
/// have counted other messages of the conversation in between.
const COUNT_ATTEMPTS: usize = 3;

/// Parses the messages that a request names: either ids, or a range.
pub(crate) fn parse_selection(
    message_ids: &[i64],
    range: Option<pb::IdRange>,
) -> Result<Selection, FieldError> {
    match range {
        Some(_) if !message_ids.is_empty() => Err(FieldError::invalid(
            "range",
            "must not be given together with message_ids",
        )),
        Some(range) => parse_range(range).map(Selection::Range),
        None => parse_ids(message_ids).map(Selection::Ids),
    }
}

fn parse_ids(message_ids: &[i64]) -> Result<Vec<MessageId>, FieldError> {
    if message_ids.is_empty() {
        return Err(FieldError::invalid(
            "message_ids",
            "must hold at least one id, unless range is given",
        ));
    }
    if message_ids.len() > CHANGE_IDS {
        return Err(FieldError::limit("message_ids", CHANGE_IDS, "ids"));
    }
    let ids = message_ids.iter().enumerate();
    ids.map(|(index, id)| parse::message_id(&format!("message_ids[{index}]"), *id))
        .collect()
}

fn parse_range(range: pb::IdRange) -> Result<IdRange, FieldError> {
    let first = parse::message_id("range.first_message_id", range.first_message_id)?;
    let last = parse::message_id("range.last_message_id", range.last_message_id)?;
    if last < first {
        return Err(FieldError::invalid(
            "range.last_message_id",
            "must not be less than first_message_id",
        ));
    }
    // Both ids are positive, so the difference does not overflow.
    if last.0 - first.0 >= CHANGE_MESSAGES as i64 {
        return Err(FieldError::limit("range", CHANGE_MESSAGES, "messages"));
    }
    Ok(IdRange { first, last })
}

/// Parses the fields `expected_last_message_id` and `etag` of a change.
pub(crate) fn parse_conditions(
    expected_last_message_id: Option<i64>,
    etag: &str,
) -> Result<ChangeConditions, FieldError> {
    Ok(ChangeConditions {
        expected_last: parse::expected_last(expected_last_message_id)?,
        revision: parse::etag(etag)?,
    })
}

/// Whether tool pairs are changed together, by the field `keep_tool_pairs_apart`.
pub(crate) const fn tool_pairs(keep_apart: bool) -> ToolPairs {
    if keep_apart {
        ToolPairs::Apart
    } else {
        ToolPairs::Together
    }
}

/// Withdraws messages.
pub(crate) async fn withdraw(
    state: &ServerState,
    caller: Caller,
    id: ConversationId,
    ask: &ChangeAsk,
) -> Result<MessageChange, Failure> {
    match state.store.withdraw_messages(caller, id, ask).await {
        Ok(change) => {
            announce(state, caller, id, &change);
            Ok(change)
        }
        Err(error) => Err(selection_failure(error, &ask.selection)),
    }
}

/// Erases messages. `name` is the caller's in logs, for the receipt.
pub(crate) async fn erase(
    state: &ServerState,
    (caller, name): (Caller, &str),
    id: ConversationId,
    ask: &ChangeAsk,
) -> Result<MessageChange, Failure> {
    match state.store.erase_messages(caller, id, ask, name).await {
        Ok(change) => {
            announce(state, caller, id, &change);
            Ok(change)
        }
        Err(error) => Err(selection_failure(error, &ask.selection)),
    }
}

/// Restores messages. The store needs exact counts of those that were withdrawn before they were
/// counted, if later messages of the conversation are counted: no worker counts them any more.
pub(crate) async fn restore(
    state: &ServerState,
    caller: Caller,
    id: ConversationId,
    ask: &ChangeAsk,
) -> Result<MessageChange, Failure> {
    let mut counts = Vec::new();
    for _ in 0..COUNT_ATTEMPTS {
        match state.store.restore_messages(caller, id, ask, &counts).await {
            Ok(change) => {
                announce(state, caller, id, &change);
                return Ok(change);
            }
            Err(StoreError::CountMissing) => {
                counts = count_withdrawn(state, caller, id, ask).await?;
            }
            Err(error) => return Err(selection_failure(error, &ask.selection)),
        }
    }
    Err(StoreError::CountMissing.into())
}

/// Makes an earlier answer to a question stand again. Its messages are counted as those of a
/// restoration.
pub(crate) async fn choose_alternative(
    state: &ServerState,
    caller: Caller,
    id: ConversationId,
    ask: &ChooseAsk,
) -> Result<MessageChange, Failure> {
    let mut counts = Vec::new();
    for _ in 0..COUNT_ATTEMPTS {
        let chosen = state.store.choose_alternative(caller, id, ask, &counts);
        match chosen.await {
            Ok(change) => {
                announce(state, caller, id, &change);
                return Ok(change);
            }
            Err(StoreError::CountMissing) => {
                let found = state
                    .store
                    .find_alternative(caller, id, ask.question, ask.number);
                let runs = found.await?.unwrap_or_default();
                let ids = runs
                    .iter()
                    .flat_map(|run| run.first.0..=run.last.0)
                    .map(MessageId);
                let messages = ChangeAsk {
                    selection: Selection::Ids(ids.collect()),
                    pairs: ToolPairs::Apart,
                    conditions: ChangeConditions::default(),
                    request_id: None,
                };
                counts = count_withdrawn(state, caller, id, &messages).await?;
            }
            Err(error) => return Err(alternative_failure(error)),
        }
    }
    Err(StoreError::CountMissing.into())
}

/// The failure for an error of the store. It names the field of the request that is at fault.
fn alternative_failure(error: StoreError) -> Failure {
    let field = match &error {
        StoreError::UnknownMessage(_) | StoreError::MessageWithdrawn(_) => "question_message_id",
        StoreError::NotFound(Entity::Alternative) | StoreError::MessageErased(_) => "number",
        StoreError::TooManyMessages => {
            return Failure::limit("question_message_id", CHANGE_MESSAGES, "messages");
        }
        _ => return error.into(),
    };
    Failure::NamedMessage {
        field: field.to_owned(),
        error,
    }
}

/// Counts the withdrawn messages of a selection that have no count, page by page.
async fn count_withdrawn(
    state: &ServerState,
    caller: Caller,
    id: ConversationId,
    ask: &ChangeAsk,
) -> Result<Vec<(MessageId, Tokens)>, Failure> {
    let mut counts: Vec<(MessageId, Tokens)> = Vec::new();
    loop {
        let after = counts.last().map_or(MessageId::NONE, |(id, _)| *id);
        let read = |read_budget| {
            let (store, ask) = (state.store.clone(), ask.clone());
            async move {
                store
                    .find_uncounted_withdrawn(caller, id, &ask, after, &read_budget)
                    .await
            }
        };
        let WithReservation {
            answer: versions,
            reservation,
        } = state.content_budget.read(caller.tenant(), read).await?;
        let Some(first) = versions.first() else {
            return Ok(counts);
        };
        let (bytes, parts) = size(&versions);
        let is_long = cpu_pool::is_long_count(first.encoding, bytes, parts);
        let count_all = move || {
            // The thread keeps the memory of the content reserved.
            let _reservation = reservation;
            let counted = versions
                .iter()
                .map(|version| (version.id, count_parts(version.encoding, &version.parts)));
            counted.collect::<Vec<_>>()
        };
        counts.extend(
            state
                .cpu
                .run_if(is_long, caller.tenant(), count_all)
                .await?,
        );
    }
}

/// The bytes of the versions' content, and the number of its parts.
fn size(versions: &[UncountedVersion]) -> (usize, usize) {
    let parts = || versions.iter().flat_map(|version| &version.parts);
    (parts().map(message::part_bytes).sum(), parts().count())
}

/// Notifies workers of the jobs that a change has caused, and watchers of the conversation, unless
/// an earlier call has made the change.
pub(super) fn announce(
    state: &ServerState,
    caller: Caller,
    id: ConversationId,
    change: &MessageChange,
) {
    if change.replayed || change.changed.is_empty() {
        return;
    }
    let kind = match change.kind {
        MessageChangeKind::Withdrawn => "withdrawn",
        MessageChangeKind::Restored => "restored",
        MessageChangeKind::Edited => "edited",
        MessageChangeKind::Erased => "erased",
    };
    metrics::counter!("anneal_message_changes_total", "kind" => kind).increment(1);
    announce_jobs(state, caller, id, &change.caused);
}

/// Notifies workers of these jobs, which a change of messages has caused, and watchers of the
/// conversation.
pub(super) fn announce_jobs(
    state: &ServerState,
    caller: Caller,
    id: ConversationId,
    caused: &[JobKind],
) {
    state.job_notifier.notify(caused);
    state.watch_registry.hint(caller, id);
}

/// The failure for an error of the store. If the error is about one message or about their number,
/// the failure names the field of the request that names them.
fn selection_failure(error: StoreError, selection: &Selection) -> Failure {
    let field = match &error {
        StoreError::UnknownMessage(id) => unknown_field(selection, *id),
        StoreError::MessageErased(id) => field_of(selection, *id),
        StoreError::TooManyMessages => {
            return Failure::limit(whole_field(selection), CHANGE_MESSAGES, "messages");
        }
        _ => return error.into(),
    };
    Failure::NamedMessage { field, error }
}

/// The field of the request that holds the whole selection.
const fn whole_field(selection: &Selection) -> &'static str {
    match selection {
        Selection::Ids(_) => "message_ids",
        Selection::Range(_) => "range",
        Selection::After(_) => "after_message_id",
    }
}

/// The field that names this message of the selection. A message that goes with the named ones,
/// because it is the other half of a tool pair, has the field of the whole selection.
fn field_of(selection: &Selection, message: MessageId) -> String {
    if let Selection::Ids(ids) = selection
        && let Some(index) = ids.iter().position(|id| *id == message)
    {
        return format!("message_ids[{index}]");
    }
    whole_field(selection).to_owned()
}

/// The field that names a message which the conversation does not have. Of a range, it is one of
/// the ends: all messages between two existing ones exist.
fn unknown_field(selection: &Selection, message: MessageId) -> String {
    match selection {
        Selection::Range(range) if range.first == message => "range.first_message_id".to_owned(),
        Selection::Range(_) => "range.last_message_id".to_owned(),
        Selection::Ids(_) | Selection::After(_) => field_of(selection, message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first_message_id: i64, last_message_id: i64) -> pb::IdRange {
        pb::IdRange {
            first_message_id,
            last_message_id,
        }
    }

    /// The field that the refusal of this selection names.
    fn refused_field(message_ids: &[i64], range: Option<pb::IdRange>) -> String {
        match parse_selection(message_ids, range).expect_err("is refused") {
            FieldError::Invalid { field, .. } | FieldError::Limit { field, .. } => field,
        }
    }

    #[test]
    fn a_selection_is_either_ids_or_a_range_within_the_limits() {
        let most = CHANGE_MESSAGES as i64;
        assert!(parse_selection(&[7, 1, 7], None).is_ok());
        assert!(parse_selection(&[1; CHANGE_IDS], None).is_ok());
        assert!(parse_selection(&[], Some(range(1, most))).is_ok());
        for (message_ids, field) in [
            (&[][..], "message_ids"),
            (&[1, 0][..], "message_ids[1]"),
            (&[1; CHANGE_IDS + 1][..], "message_ids"),
        ] {
            assert_eq!(refused_field(message_ids, None), field);
        }
        assert_eq!(refused_field(&[1], Some(range(1, 1))), "range");
        for (first, last, field) in [
            (0, 1, "range.first_message_id"),
            (1, -1, "range.last_message_id"),
            (2, 1, "range.last_message_id"),
            (1, most + 1, "range"),
            (1, i64::MAX, "range"),
        ] {
            assert_eq!(refused_field(&[], Some(range(first, last))), field);
        }
    }

    #[test]
    fn a_failure_names_the_field_that_names_the_message() {
        let ids = Selection::Ids(vec![MessageId(3), MessageId(9)]);
        let range = Selection::Range(IdRange {
            first: MessageId(3),
            last: MessageId(9),
        });
        let after = Selection::After(MessageId(9));
        for (error, selection, field) in [
            (
                StoreError::UnknownMessage(MessageId(9)),
                &ids,
                "message_ids[1]",
            ),
            (
                StoreError::UnknownMessage(MessageId(9)),
                &range,
                "range.last_message_id",
            ),
            (
                StoreError::UnknownMessage(MessageId(3)),
                &range,
                "range.first_message_id",
            ),
            (
                StoreError::UnknownMessage(MessageId(9)),
                &after,
                "after_message_id",
            ),
            (
                StoreError::MessageErased(MessageId(3)),
                &ids,
                "message_ids[0]",
            ),
            (StoreError::MessageErased(MessageId(4)), &ids, "message_ids"),
            (StoreError::MessageErased(MessageId(4)), &range, "range"),
        ] {
            let description = format!("{error:?} {selection:?}");
            match selection_failure(error, selection) {
                Failure::NamedMessage { field: named, .. } => {
                    assert_eq!(named, field, "{description}");
                }
                other => panic!("{description}: {other:?}"),
            }
        }
    }
}
