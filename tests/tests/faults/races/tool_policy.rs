//! A conversation's setting for tool messages changes while an append waits for the conversation:
//! the setting that is in force when the append is stored decides what is kept.

use anneal_testkit::{TestApp, TestConversation, assistant, call, pb, prose, result};

const KEEP_TOOLS: &str = "update ai_conversation
    set policy = policy || '{\"store_tool_messages\": true}' where conversation_id = $1";
const KEEP_NO_TOOLS: &str = "update ai_conversation
    set policy = policy || '{\"store_tool_messages\": false}' where conversation_id = $1";

/// A call, its result and an answer that has this text.
fn messages(answer: &str) -> Vec<pb::NewMessage> {
    vec![call("a", "{}"), result("a", "a boat"), assistant(answer)]
}

/// Appends while another transaction changes the setting. That transaction commits once the append
/// waits.
async fn append_during_change(
    conversation: &TestConversation<'_>,
    change: &'static str,
    answer: &str,
) -> pb::AppendMessagesResponse {
    let app = conversation.app;
    let held = app.hold_lock(change, conversation.uuid()).await;
    let (appended, ()) = tokio::join!(
        conversation.append_all(messages(answer)).request_id("r"),
        async {
            app.wait_for_lock_waiters(1).await;
            held.commit().await;
        }
    );
    appended
}

#[tokio::test]
async fn an_append_that_waits_is_stored_under_the_setting_that_is_in_force_then() {
    let app = TestApp::start().await;
    // Short appends share a statement with others. Appends of more than 64 KiB, as the second one
    // here, do not.
    for answer in [String::from("A boat."), prose(0, 2_000)] {
        let conversation = app.conversation().await;
        let appended = append_during_change(&conversation, KEEP_NO_TOOLS, &answer).await;
        assert_eq!(
            (appended.messages.len(), &appended.skipped),
            (1, &vec![0, 1])
        );
        let again = conversation
            .append_all(messages(&answer))
            .request_id("r")
            .await;
        assert!(again.replayed);
        assert_eq!(
            (again.messages, again.skipped),
            (appended.messages, appended.skipped)
        );
        conversation.verify().await;

        let conversation = app
            .conversation_with_policy(pb::Policy {
                store_tool_messages: Some(false),
                ..Default::default()
            })
            .await;
        let appended = append_during_change(&conversation, KEEP_TOOLS, &answer).await;
        assert_eq!((appended.messages.len(), &appended.skipped), (3, &vec![]));
        let again = conversation
            .append_all(messages(&answer))
            .request_id("r")
            .await;
        assert!(again.replayed && again.skipped.is_empty());
        assert_eq!(again.messages, appended.messages);
        conversation.verify().await;
    }
}
