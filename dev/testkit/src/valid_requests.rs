//! A valid request of every RPC as bytes. Tests change one part of it.

use pb::append_large_message_request::{Frame, Header};
use prost::Message as _;

use crate::{pb, text, user};

/// A valid request of this RPC, with this conversation id if the RPC has such a field. Most
/// requests that can have a request id get this one. AppendLargeMessage gets its first frame only.
// tidy: allow(long-function): a table of requests
#[expect(clippy::too_many_lines, reason = "a table of requests")]
pub fn valid_request(rpc: &str, conversation_id: &str, request_id: &str) -> Vec<u8> {
    let conversation_id = || conversation_id.to_owned();
    let request_id = || request_id.to_owned();
    macro_rules! ask {
        ($ask:ident { $($field:ident: $value:expr),* $(,)? }) => {
            pb::$ask { conversation_id: conversation_id(), $($field: $value,)* ..Default::default() }.encode_to_vec()
        };
    }
    let scope = || pb::SessionScope {
        agent_id: "a".into(),
        channel: "c".into(),
        sender_id: "anna".into(),
        ..Default::default()
    };
    match rpc {
        "CreateConversation" => pb::CreateConversationRequest {
            request_id: request_id(),
            ..Default::default()
        }
        .encode_to_vec(),
        "ForkConversation" => ask!(ForkConversationRequest {
            request_id: request_id()
        }),
        "ListConversations"
        | "ListErasures"
        | "GetQueueStats"
        | "GetModelStats"
        | "GetInstallationStats" => Vec::new(),
        "GetConversation" => pb::GetConversationRequest {
            conversation_id: conversation_id(),
        }
        .encode_to_vec(),
        "UpdateConversation" => pb::UpdateConversationRequest {
            conversation: Some(pb::Conversation {
                conversation_id: conversation_id(),
                title: "mine".into(),
                ..Default::default()
            }),
            update_mask: Some(prost_types::FieldMask {
                paths: vec!["title".into()],
            }),
            request_id: request_id(),
            ..Default::default()
        }
        .encode_to_vec(),
        "DeleteConversation" => pb::DeleteConversationRequest {
            conversation_id: conversation_id(),
            request_id: request_id(),
            ..Default::default()
        }
        .encode_to_vec(),
        "ResolveSession" => pb::ResolveSessionRequest {
            scope: Some(scope()),
            ..Default::default()
        }
        .encode_to_vec(),
        "RotateSession" => pb::RotateSessionRequest {
            scope: Some(scope()),
            request_id: request_id(),
            ..Default::default()
        }
        .encode_to_vec(),
        "AppendMessages" => ask!(AppendMessagesRequest {
            messages: vec![user("hello")],
            request_id: request_id()
        }),
        "AppendLargeMessage" => {
            let message = Some(text(pb::Role::User, ""));
            let header = Header {
                conversation_id: conversation_id(),
                message,
                ..Default::default()
            };
            pb::AppendLargeMessageRequest {
                frame: Some(Frame::Header(header)),
            }
            .encode_to_vec()
        }
        "ListMessages" => ask!(ListMessagesRequest {}),
        "GetMessage" => ask!(GetMessageRequest { message_id: 1 }),
        "InsertSeparator" => ask!(InsertSeparatorRequest {
            request_id: request_id()
        }),
        "DeleteSeparator" => ask!(DeleteSeparatorRequest {
            after_message_id: 2
        }),
        "WithdrawMessages" => ask!(WithdrawMessagesRequest {
            message_ids: vec![1],
            request_id: request_id()
        }),
        "Rewind" => ask!(RewindRequest {
            request_id: request_id()
        }),
        "RestoreMessages" => ask!(RestoreMessagesRequest {
            message_ids: vec![1],
            request_id: request_id()
        }),
        "EditMessage" => ask!(EditMessageRequest {
            message_id: 1,
            message: Some(user("edited")),
            request_id: request_id()
        }),
        "ListMessageVersions" => ask!(ListMessageVersionsRequest { message_id: 1 }),
        "EraseMessages" => ask!(EraseMessagesRequest {
            message_ids: vec![1],
            request_id: request_id()
        }),
        "EraseUser" => pb::EraseUserRequest {
            request_id: request_id(),
            user_id: "nobody".into(),
            dry_run: false,
        }
        .encode_to_vec(),
        "EraseTenant" => pb::EraseTenantRequest {
            request_id: request_id(),
            confirm_tenant: "default".into(),
            dry_run: true,
        }
        .encode_to_vec(),
        // No erasure has this id.
        "GetErasure" => pb::GetErasureRequest {
            erasure_id: uuid::Uuid::nil().to_string(),
        }
        .encode_to_vec(),
        "WatchConversation" => ask!(WatchConversationRequest {}),
        // With an input, because a separator may be the newest.
        "BuildContext" | "StreamContext" => ask!(BuildContextRequest {
            current_input: vec![user("hello")]
        }),
        "GetContextUsage" => ask!(GetContextUsageRequest {}),
        "Compact" => ask!(CompactRequest {
            request_id: request_id()
        }),
        "ListCheckpoints" => ask!(ListCheckpointsRequest {}),
        "ListCacheEras" => ask!(ListCacheErasRequest {}),
        "ListTokenRuns" => ask!(ListTokenRunsRequest {}),
        "ImportCheckpoint" => ask!(ImportCheckpointRequest {
            last_message_id: 1,
            summary: "so far".into()
        }),
        "ReportUsage" => ask!(ReportUsageRequest {
            model: "m".into(),
            input_tokens: 10
        }),
        "ClassifyError" => pb::ClassifyErrorRequest {
            status: 400,
            ..Default::default()
        }
        .encode_to_vec(),
        "Chat" => ask!(ChatRequest {
            messages: vec![user("hello")],
            request_id: request_id()
        }),
        "CancelTurn" => ask!(CancelTurnRequest {}),
        "ChooseAlternative" => ask!(ChooseAlternativeRequest {
            question_message_id: 1,
            number: 1,
            request_id: request_id()
        }),
        "RequeueJob" => ask!(RequeueJobRequest {
            kind: pb::JobKind::Checkpoint.into()
        }),
        "DiscardJob" => ask!(DiscardJobRequest {
            kind: pb::JobKind::Checkpoint.into()
        }),
        "VerifyConversation" => pb::VerifyConversationRequest {
            conversation_id: conversation_id(),
        }
        .encode_to_vec(),
        "ListJobs" => ask!(ListJobsRequest {}),
        _ => panic!("{rpc} has no valid request in this file yet; tests of all RPCs need one"),
    }
}
