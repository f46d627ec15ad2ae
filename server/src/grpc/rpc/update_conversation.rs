//! UpdateConversation.

use anneal_core::{caller::Caller, limits::TITLE_BYTES, policy::PolicyOverrides, tokens::Tokens};
use anneal_proto::{
    convert::{chat_options, parse, policy},
    v1 as pb,
};
use anneal_store::{ConversationChange, ConversationStatus};

use crate::{
    failure::Failure,
    limits::cpu_pool,
    reply::{self, GivenFields},
    state::ServerState,
};

/// Updates the fields that the mask names.
pub(crate) async fn update_conversation(
    state: &ServerState,
    caller: Caller,
    ask: pb::UpdateConversationRequest,
) -> Result<pb::Conversation, Failure> {
    let request_id = parse::request_id(&ask.request_id)?.map(str::to_owned);
    let new = ask
        .conversation
        .ok_or_else(|| Failure::invalid("conversation", "must be given"))?;
    let id = parse::conversation_id_in("conversation.conversation_id", &new.conversation_id)?;
    let mut paths = ask.update_mask.map(|mask| mask.paths).unwrap_or_default();
    paths.sort_unstable();
    paths.dedup();
    if paths.is_empty() {
        return Err(Failure::invalid(
            "update_mask",
            "must name at least one field",
        ));
    }
    let mut change = ConversationChange {
        revision: parse::etag(&ask.etag)?,
        ..ConversationChange::default()
    };
    // The policy is parsed below: its check needs the token count of the system prompt.
    for path in paths.iter().filter(|path| *path != "policy") {
        apply(&mut change, path, &new)?;
    }
    let sets_policy = paths.iter().any(|path| path == "policy");
    let mut prompt_tokens = None;
    if sets_policy || change.system_prompt.is_some() {
        let stored = state.store.get_conversation(caller, id).await?.attributes;
        let stored_bytes = stored.system_prompt.len();
        let prompt = change.system_prompt.clone().unwrap_or(stored.system_prompt);
        let has_grown = prompt.len() > stored_bytes;
        let (encoding, is_long) = (
            stored.encoding,
            cpu_pool::is_long_count(stored.encoding, prompt.len(), 0),
        );
        let tokens = state
            .cpu
            .run_if(is_long, caller.tenant(), move || {
                encoding.counter().count(&prompt)
            })
            .await?;
        prompt_tokens = change.system_prompt.is_some().then_some(tokens);
        if sets_policy {
            change.policy = Some(policy::parse(new.policy, &state.store.session(), tokens)?);
        } else if has_grown {
            check_prompt(state, &stored.policy, tokens)?;
        }
    }
    let changed = state
        .store
        .update_conversation(
            caller,
            id,
            request_id.as_deref(),
            change.digest(),
            &change,
            prompt_tokens,
        )
        .await?;
    if change.policy.is_some() {
        state.job_notifier.notify(&anneal_core::job::JobKind::ALL);
    }
    let given = GivenFields {
        title: change.title.as_deref(),
        system_prompt: change.system_prompt.as_deref(),
        metadata: change.metadata.is_some().then_some(&new.metadata),
    };
    Ok(reply::conversation_for(caller, changed, &given))
}

/// Fails if a checkpoint would leave too much of the policy's threshold with a system prompt of
/// this many tokens.
fn check_prompt(
    state: &ServerState,
    stored: &PolicyOverrides,
    tokens: Tokens,
) -> Result<(), Failure> {
    let policy = state.store.session().policy(stored, None);
    policy.check(tokens).map(|_| ()).map_err(|error| {
        Failure::invalid(
            "conversation.system_prompt",
            format!(
                "has {tokens} tokens, with which the policy's {} must be {}",
                error.key, error.must_be
            ),
        )
    })
}

/// Checks the field of `new` that `path` names, and copies it into `change`.
fn apply(
    change: &mut ConversationChange,
    path: &str,
    new: &pb::Conversation,
) -> Result<(), Failure> {
    match path {
        "title" => {
            change.title =
                Some(parse::bounded_text("conversation.title", &new.title, TITLE_BYTES)?.into());
        }
        "status" => change.status = Some(status(new.status)?),
        "pinned" => change.pinned = Some(new.pinned),
        "metadata" => {
            change.metadata = Some(parse::metadata(
                "conversation.metadata",
                new.metadata.clone(),
            )?);
        }
        "system_prompt" => {
            change.system_prompt = Some(parse::system_prompt(&new.system_prompt)?.into());
        }
        "chat_options" => {
            let options = new.chat_options.clone().unwrap_or_default();
            change.chat_options = Some(chat_options::parse("conversation.chat_options", options)?);
        }
        _ => {
            let fields = "title, status, pinned, metadata, system_prompt, policy, chat_options";
            return Err(Failure::invalid(
                "update_mask",
                format!("may name {fields}"),
            ));
        }
    }
    Ok(())
}

fn status(number: i32) -> Result<ConversationStatus, Failure> {
    match pb::ConversationStatus::try_from(number) {
        Ok(pb::ConversationStatus::Active) => Ok(ConversationStatus::Active),
        Ok(pb::ConversationStatus::Archived) => Ok(ConversationStatus::Archived),
        Ok(pb::ConversationStatus::Unspecified) => {
            Err(Failure::invalid("conversation.status", "must be given"))
        }
        Err(_) => Err(Failure::invalid(
            "conversation.status",
            format!("{number} is not a status"),
        )),
    }
}
