//! Restored messages are as before they were withdrawn.

use anneal_testkit::{TestApp, TestConversation, assert_refused, assistant, pb, prose, user};
use tonic::Code;

use super::{
    append_marked_turn, conversation_of_turns, conversation_with_tools, ids, listed_ids,
    listed_tokens,
};

#[tokio::test]
async fn restored_messages_totals_and_contexts_are_as_before() {
    let app = TestApp::start().await;
    let conversation = conversation_with_tools(&app).await;
    let labelled = pb::NewMessage {
        metadata: [("source".to_owned(), "web".to_owned())].into(),
        ..user("With a label.")
    };
    conversation.append_all(vec![labelled]).await;
    let (messages, before) = (
        conversation.messages().await,
        conversation.conversation().await,
    );
    let texts = conversation.context().await.texts_by_role();
    let newest = before.message_count;
    let change = conversation.withdraw(&[1, 2, 7, newest]).await;
    assert_eq!(change.withdrawn_messages, 6, "two calls with their results");
    let partly = conversation.restore(&[newest]).await;
    assert_eq!(ids(&partly.changed), [(newest, newest)]);
    let change = conversation.restore_range(1, newest).await;
    assert_eq!(ids(&change.changed), [(1, 3), (6, 7)]);
    assert_eq!(change.withdrawn_messages, 0);
    assert_eq!(change.token_total, before.token_total);
    assert_eq!(conversation.messages().await, messages);
    assert_eq!(conversation.context().await.texts_by_role(), texts);
    let after = conversation.conversation().await;
    assert_eq!(
        pb::Conversation {
            etag: before.etag.clone(),
            ..after
        },
        before
    );
    conversation.verify().await;
}

#[tokio::test]
async fn messages_that_stand_are_skipped() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 2).await;
    let before = conversation.conversation().await;
    let nothing = conversation.restore_range(1, 4).await;
    assert_eq!((nothing.change_id, nothing.changed.len()), (0, 0));
    assert_eq!(conversation.conversation().await, before);
    conversation.withdraw(&[3]).await;
    let change = conversation.restore(&[4, 3, 1]).await;
    assert_eq!(ids(&change.changed), [(3, 3)]);
}

#[tokio::test]
async fn calls_and_results_come_back_together_unless_they_are_kept_apart() {
    let app = TestApp::start().await;
    let conversation = conversation_with_tools(&app).await;
    conversation.rewind(0).await;
    let change = conversation.restore(&[3]).await;
    assert_eq!(ids(&change.changed), [(2, 3)]);
    let change = conversation.restore(&[6]).keep_tool_pairs_apart().await;
    assert_eq!(ids(&change.changed), [(6, 6)]);
    assert_eq!(listed_ids(&conversation).await, [2, 3, 6]);
    conversation.context().await.assert_tools_paired();
    conversation.verify().await;
}

/// A conversation of an app whose server counts nothing, with three messages of equal text. None is
/// counted.
async fn uncounted_conversation(app: &TestApp) -> TestConversation<'_> {
    let conversation = app.conversation().await;
    conversation
        .append_all(vec![
            user(&prose(1, 9)),
            assistant("Yes."),
            user(&prose(1, 9)),
        ])
        .await;
    conversation
}

#[tokio::test]
async fn a_message_that_is_restored_before_it_is_counted_is_counted_later() {
    let app = TestApp::counted_by_workers().await;
    let conversation = uncounted_conversation(&app).await;
    let change = conversation.withdraw(&[3]).await;
    let total = change.token_total.expect("a total");
    assert_eq!(
        (total.tokens, total.estimated_messages),
        (listed_tokens(&conversation).await, 3)
    );
    conversation.restore(&[3]).await;
    let messages = conversation.messages().await;
    assert!(messages[2].tokens.is_some_and(|count| count.estimated));
    app.run_jobs_until_idle().await;
    let messages = conversation.messages().await;
    assert_eq!(messages[2].tokens, messages[0].tokens);
    assert!(messages[2].tokens.is_some_and(|count| !count.estimated));
    conversation.verify().await;
}

#[tokio::test]
async fn a_message_that_was_never_counted_is_counted_when_it_is_restored() {
    let app = TestApp::counted_by_workers().await;
    let conversation = uncounted_conversation(&app).await;
    conversation.withdraw(&[2, 3]).await;
    app.run_jobs_until_idle().await;
    let total = conversation.conversation().await.token_total;
    let total = total.expect("a total");
    assert_eq!(
        (total.tokens, total.estimated_messages),
        (listed_tokens(&conversation).await, 0),
        "withdrawn messages are counted as nothing"
    );
    conversation.verify().await;
    let change = conversation.restore_range(1, 3).await;
    assert_eq!(ids(&change.changed), [(2, 3)]);
    let messages = conversation.messages().await;
    assert_eq!(messages[2].tokens, messages[0].tokens);
    assert!(
        messages
            .iter()
            .all(|message| message.tokens.is_some_and(|count| !count.estimated)),
        "{messages:?}"
    );
    let total = change.token_total.expect("a total");
    assert_eq!(
        (total.tokens, total.estimated_messages),
        (listed_tokens(&conversation).await, 0)
    );
    conversation.verify().await;
}

#[tokio::test]
async fn a_checkpoint_that_was_made_without_a_restored_message_no_longer_holds() {
    let app = TestApp::start().await;
    let conversation = app
        .conversation_with_policy(pb::Policy {
            max_message_count: Some(8),
            keep_recent_turns: Some(1),
            ..Default::default()
        })
        .await;
    for turn in 1..=5 {
        append_marked_turn(&conversation).await;
        if turn == 2 {
            conversation.withdraw(&[3]).await;
        }
    }
    app.run_jobs_until_idle().await;
    let checkpoint = conversation
        .checkpoints()
        .await
        .pop()
        .expect("a checkpoint");
    assert!(checkpoint.last_message_id > 3);
    conversation.verify().await;
    let change = conversation.restore(&[3]).await;
    assert_eq!(
        ids(&change.void_checkpoints),
        [(1, checkpoint.last_message_id)]
    );
    assert_eq!(change.boundary_message_id, 0);
    let built = conversation.context().await;
    assert_eq!(built.texts_by_role(), conversation.texts_by_role().await);
    app.run_jobs_until_idle().await;
    let again = conversation
        .checkpoints()
        .await
        .pop()
        .expect("another checkpoint");
    assert_ne!(again.source_digest, checkpoint.source_digest);
    conversation.verify().await;
}

#[tokio::test]
async fn the_summary_of_a_large_message_is_made_again_after_it_is_restored() {
    let app = TestApp::start().await;
    let conversation = app
        .conversation_with_policy(pb::Policy {
            large_message_threshold: Some(200),
            large_summaries: pb::LargeSummaries::Eager.into(),
            ..Default::default()
        })
        .await;
    conversation.turn(&prose(1, 40), "I have read it.").await;
    app.run_jobs_until_idle().await;
    let before = conversation.message(1).await;
    assert!(before.summary.is_some());
    conversation.withdraw(&[1]).await;
    app.run_jobs_until_idle().await;
    conversation.restore(&[1]).await;
    assert_eq!(conversation.message(1).await.summary, None);
    app.run_jobs_until_idle().await;
    let after = conversation.message(1).await;
    let text = |message: &pb::Message| message.summary.as_ref().map(|one| one.text.clone());
    assert!(text(&after).is_some() && text(&after) == text(&before));
    conversation.verify().await;
}

#[tokio::test]
async fn a_message_whose_content_is_gone_cannot_be_restored() {
    let app = TestApp::start().await;
    let conversation = conversation_with_tools(&app).await;
    conversation.rewind(0).await;
    let erase = "delete from ai_message_version where conversation_id = $1 and message_id = 3";
    sqlx::query(erase)
        .bind(conversation.uuid())
        .execute(&mut app.db().await)
        .await
        .expect("erases");
    for (request, field) in [
        (conversation.restore(&[1, 3]), "message_ids[1]"),
        (conversation.restore_range(1, 4), "range"),
    ] {
        let refused = request.send().await;
        assert_refused(refused, Code::FailedPrecondition, "MESSAGE_ERASED", field);
    }
    assert!(
        listed_ids(&conversation).await.is_empty(),
        "nothing is restored if one message cannot be"
    );
    conversation.restore(&[1, 4]).await;
    assert_eq!(listed_ids(&conversation).await, [1, 4]);
}
