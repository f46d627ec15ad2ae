//! The conversation of a response: the one that the caller names, or one of a chain of responses. A
//! response that continues another one gets the same conversation, unless that one has gone on:
//! then it gets a fork.

use anneal_core::{caller::ConversationId, message::MessageId};
use anneal_proto::{
    convert::parse,
    v1::{
        self as pb, conversation_service_server::ConversationService as _,
        message_service_server::MessageService as _,
    },
};
use prost_types::FieldMask;

use super::{
    create_body::{CreateBody, Origin, Reduction},
    input::no_conversation,
    parameters::inherited_options,
    record::Record,
    request_ids::Attempt,
};
use crate::http::{caller::HttpCaller, openai::errors::ApiError};

/// More tokens than any message or conversation has.
const NO_THRESHOLD: u64 = 1 << 40;

/// Where a response is stored.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) id: ConversationId,
    /// The newest message before the input.
    pub(super) after: MessageId,
    /// Whether the conversation belongs to a chain of responses.
    pub(super) is_chain: bool,
    /// Whether it was made for this response.
    pub(super) is_new: bool,
    /// The options that its turns inherit.
    pub(super) options: pb::ChatOptions,
    /// The model of its policy.
    pub(super) model: Option<String>,
    pub(super) on_overflow: pb::OnOverflow,
}

/// A place in a conversation at which a response continues.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) conversation: ConversationId,
    /// The last message of the response before.
    pub(super) last: MessageId,
    pub(super) is_chain: bool,
}

impl Point {
    /// The end of a response. Fails if it keeps nothing or has not ended.
    pub(super) async fn of_response(record: &mut Record) -> Result<Self, ApiError> {
        let status = record.settle().await?.status();
        let last = record.row.answer_message_id.or(record.row.question_last_id);
        match last.filter(|_| status.has_output()) {
            Some(last) => Ok(Self {
                conversation: record.row.conversation_id,
                last,
                is_chain: record.row.is_chain,
            }),
            None => Err(ApiError::invalid(
                "previous_response_id",
                Some("invalid_value"),
                format!(
                    "The previous response cannot be continued: its status is {}.",
                    serde_json::json!(status)
                ),
            )),
        }
    }
}

/// Finds or makes the conversation of a response, in this attempt.
pub(super) async fn find(
    caller: &HttpCaller,
    body: &CreateBody,
    point: Option<Point>,
    attempt: Attempt<'_>,
) -> Result<Target, ApiError> {
    let Some(point) = point else {
        return match body.origin {
            Origin::Conversation(id) => find_conversation(caller, body, id).await,
            Origin::Nothing | Origin::Response(_) => create(caller, body, attempt.turn).await,
        };
    };
    if point.is_chain
        && attempt.index == 0
        && let Some(target) = find_end_of_chain(caller, body, point).await?
    {
        return Ok(target);
    }
    fork(caller, body, point, attempt.fork()).await
}

/// The policy of a chain's conversation.
pub(super) fn chain_policy(reduction: Reduction) -> pb::Policy {
    // Results of tools answer calls of the response before.
    let with_tools = pb::Policy {
        store_tool_messages: Some(true),
        ..pb::Policy::default()
    };
    let untouched = pb::Policy {
        max_message_count: Some(0),
        large_message_threshold: Some(NO_THRESHOLD),
        idle_checkpoints: pb::IdleCheckpoints::Off.into(),
        ..with_tools.clone()
    };
    match reduction {
        Reduction::Automatic => with_tools,
        Reduction::Nothing => pb::Policy {
            token_threshold: Some(NO_THRESHOLD),
            ..untouched
        },
        Reduction::Compaction(threshold) => pb::Policy {
            token_threshold: threshold,
            ..untouched
        },
    }
}

async fn get(caller: &HttpCaller, id: ConversationId) -> Result<pb::Conversation, ApiError> {
    let ask = pb::GetConversationRequest {
        conversation_id: id.to_string(),
    };
    let found = caller.services.get_conversation(caller.request(ask)).await;
    found
        .map(tonic::Response::into_inner)
        .map_err(|status| match status.code() {
            tonic::Code::NotFound => no_conversation(id),
            _ => status.into(),
        })
}

async fn find_conversation(
    caller: &HttpCaller,
    body: &CreateBody,
    id: ConversationId,
) -> Result<Target, ApiError> {
    let conversation = get(caller, id).await?;
    let reduces = conversation.policy.as_ref().is_some_and(asks_for_reduction);
    let mut target = target_of(caller, body, conversation)?;
    if reduces {
        target.on_overflow = pb::OnOverflow::Reduce;
    }
    Ok(target)
}

/// Whether a conversation's own policy has checkpoints or summaries.
fn asks_for_reduction(policy: &pb::Policy) -> bool {
    let is_reached = |tokens: Option<u64>| tokens.is_some_and(|tokens| tokens < NO_THRESHOLD);
    let has_idle_checkpoints = !matches!(
        policy.idle_checkpoints(),
        pb::IdleCheckpoints::Unspecified | pb::IdleCheckpoints::Off
    );
    !policy.profile.is_empty()
        || is_reached(policy.token_threshold)
        || is_reached(policy.large_message_threshold)
        || policy.token_threshold_auto.is_some()
        || policy.token_threshold_below_window.is_some()
        || policy.max_message_count.is_some_and(|most| most > 0)
        || has_idle_checkpoints
}

/// The conversation of the response before, if nothing stands in it after that response.
async fn find_end_of_chain(
    caller: &HttpCaller,
    body: &CreateBody,
    point: Point,
) -> Result<Option<Target>, ApiError> {
    let mut conversation = get(caller, point.conversation).await?;
    if conversation.message_count != point.last.0 {
        let ask = pb::ListMessagesRequest {
            conversation_id: point.conversation.to_string(),
            page_size: 1,
            after_message_id: point.last.0,
            without_content: true,
            ..pb::ListMessagesRequest::default()
        };
        let listed = caller.services.list_messages(caller.request(ask)).await?;
        if !listed.into_parts().1.messages.is_empty() {
            return Ok(None);
        }
    }
    set_policy(caller, body, &mut conversation).await?;
    let target = target_of(caller, body, conversation)?;
    Ok(Some(Target {
        is_chain: true,
        ..target
    }))
}

async fn create(
    caller: &HttpCaller,
    body: &CreateBody,
    request_id: &str,
) -> Result<Target, ApiError> {
    let ask = pb::CreateConversationRequest {
        request_id: request_id.to_owned(),
        policy: Some(chain_policy(body.reduction)),
        ..pb::CreateConversationRequest::default()
    };
    let created = caller
        .services
        .create_conversation(caller.request(ask))
        .await?;
    let target = target_of(caller, body, created.into_inner())?;
    Ok(Target {
        is_chain: true,
        is_new: true,
        ..target
    })
}

async fn fork(
    caller: &HttpCaller,
    body: &CreateBody,
    point: Point,
    request_id: String,
) -> Result<Target, ApiError> {
    let ask = pb::ForkConversationRequest {
        conversation_id: point.conversation.to_string(),
        request_id,
        message_id: point.last.0,
        ..pb::ForkConversationRequest::default()
    };
    let forked = caller
        .services
        .fork_conversation(caller.request(ask))
        .await?;
    let mut forked = forked.into_inner();
    if point.is_chain {
        set_policy(caller, body, &mut forked).await?;
    }
    let target = target_of(caller, body, forked)?;
    Ok(Target {
        is_chain: true,
        is_new: true,
        ..target
    })
}

/// Gives a chain's conversation the policy that this request asks for.
async fn set_policy(
    caller: &HttpCaller,
    body: &CreateBody,
    conversation: &mut pb::Conversation,
) -> Result<(), ApiError> {
    let policy = chain_policy(body.reduction);
    if conversation.policy.clone().unwrap_or_default() == policy {
        return Ok(());
    }
    conversation.policy = Some(policy.clone());
    let ask = pb::UpdateConversationRequest {
        conversation: Some(pb::Conversation {
            conversation_id: conversation.conversation_id.clone(),
            policy: Some(policy),
            ..pb::Conversation::default()
        }),
        update_mask: Some(FieldMask {
            paths: vec!["policy".to_owned()],
        }),
        ..pb::UpdateConversationRequest::default()
    };
    caller
        .services
        .update_conversation(caller.request(ask))
        .await?;
    Ok(())
}

fn target_of(
    caller: &HttpCaller,
    body: &CreateBody,
    conversation: pb::Conversation,
) -> Result<Target, ApiError> {
    let options = inherited_options(&caller.services.state.settings.get(), &conversation)?;
    let model = conversation.policy.unwrap_or_default().model;
    Ok(Target {
        id: parse::conversation_id(&conversation.conversation_id)?,
        after: MessageId(conversation.message_count),
        is_chain: false,
        is_new: false,
        options,
        model: (!model.is_empty()).then_some(model),
        on_overflow: body.reduction.on_overflow(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_has_no_checkpoints_unless_the_request_asks_for_them() {
        let policy = chain_policy(Reduction::Nothing);
        assert_eq!(policy.token_threshold, Some(NO_THRESHOLD));
        assert_eq!(policy.max_message_count, Some(0));
        assert_eq!(policy.large_message_threshold, Some(NO_THRESHOLD));
        assert_eq!(policy.idle_checkpoints(), pb::IdleCheckpoints::Off);
        let asked = chain_policy(Reduction::Compaction(Some(5_000)));
        assert_eq!(asked.token_threshold, Some(5_000));
        assert_eq!(asked.large_message_threshold, Some(NO_THRESHOLD));
        assert!(!asks_for_reduction(&policy) && asks_for_reduction(&asked));
        let automatic = chain_policy(Reduction::Automatic);
        assert_eq!(automatic.token_threshold, None);
        for policy in [policy, asked, automatic] {
            assert_eq!(policy.store_tool_messages, Some(true));
        }
    }
}
