//! GetMessage. A request with a version reads that version, which may be one that does not stand.
//! One with `alternatives` also lists the answers to the message's question.

use anneal_core::{caller::Caller, limits::RANGE_BYTES};
use anneal_proto::{convert::parse, v1 as pb};

use crate::{failure::Failure, limits::content_budget::WithReservation, reply, state::ServerState};

/// Returns one message: the whole message, or a byte range of its text.
pub(crate) async fn get_message(
    state: &ServerState,
    caller: Caller,
    ask: pb::GetMessageRequest,
) -> Result<WithReservation<pb::GetMessageResponse>, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let message_id = parse::message_id("message_id", ask.message_id)?;
    let version = match ask.version {
        0 => None,
        version => Some(parse::version("version", version)?),
    };
    let alternatives = if ask.alternatives {
        let listed = state
            .store
            .list_alternatives(caller, id, message_id)
            .await?;
        listed.into_iter().map(reply::alternative).collect()
    } else {
        Vec::new()
    };
    let Some(range) = ask.range.map(parse_range).transpose()? else {
        let read = |read_budget| {
            let store = state.store.clone();
            async move {
                match version {
                    None => {
                        store
                            .get_message(caller, id, message_id, &read_budget)
                            .await
                    }
                    Some(version) => {
                        let version = (message_id, version);
                        store
                            .get_message_version(caller, id, version, &read_budget)
                            .await
                    }
                }
            }
        };
        let message = state.content_budget.read(caller.tenant(), read).await?;
        return Ok(message.map(|message| pb::GetMessageResponse {
            message: Some(reply::message(message)),
            text: String::new(),
            range: None,
            alternatives,
        }));
    };
    let read = |read_budget| {
        let store = state.store.clone();
        async move {
            match version {
                None => {
                    store
                        .get_message_range(caller, id, message_id, range, &read_budget)
                        .await
                }
                Some(version) => {
                    let version = (message_id, version);
                    store
                        .get_message_version_range(caller, id, version, range, &read_budget)
                        .await
                }
            }
        }
    };
    let found = state.content_budget.read(caller.tenant(), read).await?;
    Ok(found.map(|found| pb::GetMessageResponse {
        message: Some(reply::message(found.message)),
        range: Some(pb::ByteRange {
            offset: found.offset as i64,
            length: found.text.len() as i64,
        }),
        text: found.text,
        alternatives,
    }))
}

/// Parses offset and length of a range, in bytes. A length of 0 means the maximum.
fn parse_range(range: pb::ByteRange) -> Result<(u64, u64), Failure> {
    let offset = u64::try_from(range.offset)
        .map_err(|_| Failure::invalid("range.offset", "must not be negative"))?;
    let length = u64::try_from(range.length)
        .map_err(|_| Failure::invalid("range.length", "must not be negative"))?;
    if range.length > RANGE_BYTES {
        return Err(Failure::limit(
            "range.length",
            RANGE_BYTES as usize,
            "bytes",
        ));
    }
    Ok((
        offset,
        if length == 0 {
            RANGE_BYTES as u64
        } else {
            length
        },
    ))
}
