//! Cases of calls about messages that are withdrawn or erased, and about a tool result without its
//! call. Those that are answered change nothing.

use anneal_testkit::{TestApp, assistant, call, id_range, result, user};
use tonic::Code;

use crate::hostile::{
    ask_about,
    case::{Case, INVALID, NO_VERSION, Refusal, VERSION_MISMATCH, answered, refused},
    edits::edit,
};

const WITHDRAWN: Refusal = (Code::FailedPrecondition, "MESSAGE_WITHDRAWN");
const ERASED: Refusal = (Code::FailedPrecondition, "MESSAGE_ERASED");
const NO_CALL: Refusal = (Code::FailedPrecondition, "TOOL_CALL_MISSING");

/// The call, which is withdrawn without its result.
const CALL: i64 = 3;
/// The result, which stands.
const RESULT: i64 = 4;
/// A withdrawn question.
const FALLEN: i64 = 5;
/// A question that was edited and is erased.
const GONE: i64 = 6;

/// Creates a conversation with such messages. Returns its id.
async fn create_conversation(app: &TestApp) -> String {
    let conversation = app.conversation().await;
    let messages = vec![
        user("a"),
        assistant("b"),
        call("c", "{}"),
        result("c", "found"),
        user("withdrawn"),
        user("erased"),
        assistant("d"),
    ];
    conversation.append_all(messages).await;
    conversation.edit(GONE, user("edited")).await;
    conversation.withdraw(&[FALLEN]).await;
    conversation.withdraw(&[CALL]).keep_tool_pairs_apart().await;
    conversation.erase(&[GONE]).await;
    conversation.id
}

/// Cases of messages that no longer stand.
// tidy: allow(long-function): a table of cases
#[expect(clippy::too_many_lines, reason = "a table of cases")]
pub(crate) async fn changed_messages(app: &TestApp) -> Vec<Case> {
    let id = create_conversation(app).await;
    let id = id.as_str();
    let restore = |message_ids: &[i64]| {
        ask_about!(
            id,
            RestoreMessagesRequest {
                message_ids: message_ids
            }
        )
    };
    let get = |message_id: i64, version: i32| {
        ask_about!(
            id,
            GetMessageRequest {
                message_id: message_id,
                version: version
            }
        )
    };
    vec![
        refused(
            "an erased message is restored",
            restore(&[GONE]),
            ERASED,
            "message_ids[0]",
        ),
        refused(
            "a withdrawn and an erased message are restored",
            restore(&[FALLEN, GONE]),
            ERASED,
            "message_ids[1]",
        ),
        refused(
            "a range with an erased message is restored",
            ask_about!(
                id,
                RestoreMessagesRequest {
                    range: id_range(FALLEN, GONE + 1)
                }
            ),
            ERASED,
            "range",
        ),
        answered(
            "withdrawn messages are withdrawn",
            ask_about!(
                id,
                WithdrawMessagesRequest {
                    message_ids: [FALLEN, GONE]
                }
            ),
        ),
        answered(
            "an erased message is erased",
            ask_about!(
                id,
                EraseMessagesRequest {
                    message_ids: [GONE]
                }
            ),
        ),
        refused(
            "a withdrawn message is edited",
            edit(id, FALLEN, user("x")),
            WITHDRAWN,
            "message_id",
        ),
        refused(
            "an erased message is edited",
            edit(id, GONE, user("x")),
            WITHDRAWN,
            "message_id",
        ),
        refused(
            "a withdrawn message of another version is edited",
            ask_about!(
                id,
                EditMessageRequest {
                    message_id: FALLEN,
                    message: user("x"),
                    expected_version: 9_i32
                }
            ),
            WITHDRAWN,
            "message_id",
        ),
        refused(
            "a result without its call is edited",
            edit(id, RESULT, result("c", "found more")),
            NO_CALL,
            "message.parts",
        ),
        refused(
            "a result becomes that of another call",
            edit(id, RESULT, result("d", "found more")),
            INVALID,
            "message.parts",
        ),
        refused(
            "a result becomes its call",
            edit(id, RESULT, call("c", "{}")),
            INVALID,
            "message.role",
        ),
        refused(
            "a result of another version is edited",
            ask_about!(
                id,
                EditMessageRequest {
                    message_id: RESULT,
                    message: result("c", "found more"),
                    expected_version: 2_i32
                }
            ),
            VERSION_MISMATCH,
            "",
        ),
        refused("a withdrawn message", get(FALLEN, 0), WITHDRAWN, ""),
        answered("the version of a withdrawn message", get(FALLEN, 1)),
        refused("an erased message", get(GONE, 0), WITHDRAWN, ""),
        refused(
            "a version of an erased message",
            get(GONE, 1),
            NO_VERSION,
            "",
        ),
        refused(
            "a later version of an erased message",
            get(GONE, 2),
            NO_VERSION,
            "",
        ),
        answered(
            "versions of an erased message",
            ask_about!(id, ListMessageVersionsRequest { message_id: GONE }),
        ),
        answered(
            "a fork at an erased message",
            ask_about!(id, ForkConversationRequest { message_id: GONE }),
        ),
    ]
}
