//! Cases of sessions: scopes and defaults.

use anneal_testkit::pb;

use crate::hostile::{
    ask,
    case::{Case, INVALID, LIMIT, answered, refused},
};

/// Scopes and defaults of sessions.
// tidy: allow(long-function): a table of cases
pub(crate) fn sessions() -> Vec<Case> {
    let scope = || pb::SessionScope {
        agent_id: "a".into(),
        sender_id: "anna".into(),
        ..Default::default()
    };
    let resolve = |scope: pb::SessionScope| ask!(ResolveSessionRequest { scope: scope });
    let rotate = |defaults: pb::CreateConversationRequest| {
        ask!(RotateSessionRequest {
            scope: scope(),
            defaults: defaults
        })
    };
    let none = pb::CreateConversationRequest::default;
    let group = || pb::SessionScope {
        chat_type: "supergroup".into(),
        ..scope()
    };
    vec![
        refused("no scope", ask!(ResolveSessionRequest {}), INVALID, "scope"),
        refused(
            "no agent",
            resolve(pb::SessionScope {
                agent_id: String::new(),
                ..scope()
            }),
            INVALID,
            "scope.agent_id",
        ),
        refused(
            "no sender",
            resolve(pb::SessionScope {
                sender_id: String::new(),
                ..scope()
            }),
            INVALID,
            "scope.sender_id",
        ),
        refused(
            "a group chat without a group id",
            resolve(group()),
            INVALID,
            "scope.group_id",
        ),
        refused(
            "NUL in a thread",
            resolve(pb::SessionScope {
                thread_id: "\0".into(),
                ..scope()
            }),
            INVALID,
            "scope.thread_id",
        ),
        refused(
            "a channel of 129 bytes",
            resolve(pb::SessionScope {
                channel: "c".repeat(129),
                ..scope()
            }),
            LIMIT,
            "scope.channel",
        ),
        refused(
            "a chat type of 1 MiB",
            resolve(pb::SessionScope {
                chat_type: "d".repeat(1 << 20),
                ..scope()
            }),
            LIMIT,
            "scope.chat_type",
        ),
        refused(
            "a request id in the defaults",
            rotate(pb::CreateConversationRequest {
                request_id: "r".into(),
                ..none()
            }),
            INVALID,
            "defaults.request_id",
        ),
        refused(
            "another agent in the defaults",
            rotate(pb::CreateConversationRequest {
                agent_id: "b".into(),
                ..none()
            }),
            INVALID,
            "defaults.agent_id",
        ),
        refused(
            "NUL in a title",
            rotate(pb::CreateConversationRequest {
                title: "\0".into(),
                ..none()
            }),
            INVALID,
            "defaults.title",
        ),
        answered(
            "colons in an account",
            resolve(pb::SessionScope {
                account_id: "a:b:direct:%3A".into(),
                ..scope()
            }),
        ),
        answered(
            "a chat type with bidirectional marks",
            resolve(pb::SessionScope {
                chat_type: "\u{202e}md".into(),
                ..scope()
            }),
        ),
        answered(
            "capitals of another language",
            resolve(pb::SessionScope {
                channel: "İSTANBUL".into(),
                ..scope()
            }),
        ),
    ]
}
