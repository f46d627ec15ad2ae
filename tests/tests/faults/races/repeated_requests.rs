//! Two concurrent calls with one request id: the second waits for the first and returns its result.
//! A second call with another body is refused. If the first is rolled back, the second is
//! performed.

use anneal_testkit::{LOCK_JOBS, TestApp, TestConversation, pb, status_details, user};
use uuid::Uuid;

/// The conversation, called through the second server. Two appends through one server would not
/// race: a server runs the appends to a conversation one after the other.
fn on_second_server<'a>(
    second: &'a TestApp,
    conversation: &TestConversation<'_>,
) -> TestConversation<'a> {
    TestConversation {
        app: second,
        id: conversation.id.clone(),
    }
}

#[tokio::test]
async fn an_append_repeated_while_it_is_stored_waits_and_returns_the_same() {
    let app = TestApp::start().await;
    let second = app.second_server().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let messages = || vec![user("c"), user("d")];
    let (first, again, ()) = tokio::join!(
        // The first append has stored the messages and waits for the job's row.
        conversation.append_all(messages()).request_id("r").send(),
        async {
            app.wait_for_lock_waiters(1).await;
            on_second_server(&second, &conversation)
                .append_all(messages())
                .request_id("r")
                .send()
                .await
        },
        async {
            app.wait_for_lock_waiters(2).await;
            held.rollback().await;
        },
    );
    let (first, again) = (first.expect("appends"), again.expect("answers"));
    assert_eq!((first.replayed, again.replayed), (false, true));
    assert_eq!(first.messages, again.messages);
    assert_eq!(conversation.conversation().await.message_count, 4);
    conversation.verify().await;
}

#[tokio::test]
async fn another_append_with_the_same_request_id_waits_and_is_refused() {
    let app = TestApp::start().await;
    let second = app.second_server().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (first, other, ()) = tokio::join!(
        conversation.append("c").request_id("r").send(),
        async {
            app.wait_for_lock_waiters(1).await;
            on_second_server(&second, &conversation)
                .append("something else")
                .request_id("r")
                .send()
                .await
        },
        async {
            app.wait_for_lock_waiters(2).await;
            held.rollback().await;
        },
    );
    assert_eq!(first.expect("appends").messages.len(), 1);
    assert_eq!(
        status_details(&other.expect_err("has another body")).reason,
        "REQUEST_ID_REUSED"
    );
    assert_eq!(conversation.conversation().await.message_count, 3);
}

#[tokio::test]
async fn an_append_repeated_after_the_first_was_rolled_back_is_stored() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let id = conversation.uuid();
    // The first append of a server that dies: not committed, then rolled back.
    let first =
        "insert into ai_message (tenant_id, conversation_id, message_id, role, turn, token_estimate, text_bytes,
            content, content_digest, request_id, request_digest, request_messages)
        select tenant_id, conversation_id, 3, 1, 2, 1, 1, '[]', '', 'r', '', 1
        from ai_conversation where conversation_id = $1";
    let mut dying = app.hold_lock(anneal_testkit::LOCK_CONVERSATION, id).await;
    assert_eq!(dying.run(first, id).await, 1);
    let (again, ()) = tokio::join!(conversation.append("c").request_id("r").send(), async {
        app.wait_for_lock_waiters(1).await;
        dying.rollback().await;
    });
    let again = again.expect("appends");
    assert_eq!((again.replayed, again.messages[0].message_id), (false, 3));
    conversation.verify().await;
}

#[tokio::test]
async fn a_separator_repeated_while_it_is_inserted_waits_and_returns_the_same() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    // The first insert waits for the unique index of its row.
    let separator_row = "insert into ai_separator (tenant_id, conversation_id, after_message_id)
        select tenant_id, conversation_id, 2 from ai_conversation where conversation_id = $1";
    let held = app.hold_lock(separator_row, conversation.uuid()).await;
    let insert_separator = || {
        let ask = pb::InsertSeparatorRequest {
            conversation_id: conversation.id.clone(),
            request_id: Uuid::nil().to_string(),
            ..Default::default()
        };
        let mut messages = app.messages();
        async move {
            messages
                .insert_separator(ask)
                .await
                .expect("inserts")
                .into_inner()
        }
    };
    let (first, (again, appended), ()) = tokio::join!(
        insert_separator(),
        async {
            app.wait_for_lock_waiters(1).await;
            // The repeated insert must not put a separator after a message appended meanwhile.
            tokio::join!(insert_separator(), conversation.append("c").send())
        },
        async {
            // Both inserts and the append wait.
            app.wait_for_lock_waiters(3).await;
            held.rollback().await;
        },
    );
    assert_eq!(first, again);
    assert_eq!(first.after_message_id, 2);
    assert_eq!(appended.expect("appends").messages[0].message_id, 3);
}
