//! Withdrawn messages keep their ids, and nothing else shows them.

use anneal_testkit::{
    TestApp, TestConversation, appended_ids, assert_refused, assistant, pb, user,
};
use pb::{BoundaryKind, Reason, RepairKind, Representation, conversation_event::Event};
use tonic::Code;

use super::{
    append_turns, conversation_of_turns, conversation_with_checkpoints, conversation_with_tools,
    conversation_with_two_calls, ids, listed_ids, listed_tokens, marked_text, question,
    turns_by_id,
};

/// The pages of a list: the ids of all messages, and the places of all separators, in the order of
/// the list.
async fn list_in_pages(
    conversation: &TestConversation<'_>,
    newest_first: bool,
    page_size: i32,
) -> (Vec<i64>, Vec<i64>) {
    let (mut messages, mut separators) = (Vec::new(), Vec::new());
    let mut page_token = String::new();
    loop {
        let ask = pb::ListMessagesRequest {
            conversation_id: conversation.id.clone(),
            page_size,
            page_token,
            newest_first,
            ..Default::default()
        };
        let page = conversation
            .app
            .messages()
            .list_messages(ask)
            .await
            .expect("lists")
            .into_inner();
        messages.extend(page.messages.iter().map(|message| message.message_id));
        separators.extend(page.separators.iter().map(|one| one.after_message_id));
        if page.next_page_token.is_empty() {
            return (messages, separators);
        }
        page_token = page.next_page_token;
    }
}

#[tokio::test]
async fn a_withdrawn_message_keeps_its_id_and_is_in_no_list_total_or_context() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 2).await;
    let before = conversation.conversation().await;
    let change = conversation.withdraw(&[4, 3]).await;
    assert!(change.change_id > 0 && !change.replayed, "{change:?}");
    assert_eq!(ids(&change.changed), [(3, 4)]);
    assert!(change.void_checkpoints.is_empty(), "{change:?}");
    assert_eq!(
        (change.boundary_message_id, change.boundary_kind()),
        (0, BoundaryKind::Unspecified)
    );
    assert_eq!(listed_ids(&conversation).await, [1, 2]);
    for page_size in [1, 50] {
        let newest_first = list_in_pages(&conversation, true, page_size).await;
        assert_eq!(newest_first.0, [2, 1], "{page_size}");
    }
    let after = conversation.conversation().await;
    assert_eq!((after.message_count, after.withdrawn_messages), (4, 2));
    assert_eq!((before.turn, after.turn), (2, 1));
    assert_ne!(before.etag, after.etag);
    assert_eq!(change.etag, after.etag);
    assert_eq!(change.withdrawn_messages, 2);
    let total = after.token_total.expect("a total");
    assert_eq!(change.token_total, Some(total));
    assert_eq!(
        (total.tokens, total.estimated_messages),
        (listed_tokens(&conversation).await, 0)
    );
    for range in [None, Some(pb::ByteRange::default())] {
        let ask = pb::GetMessageRequest {
            conversation_id: conversation.id.clone(),
            message_id: 3,
            range,
            ..Default::default()
        };
        let refused = app.messages().get_message(ask).await;
        assert_refused(refused, Code::FailedPrecondition, "MESSAGE_WITHDRAWN", "");
    }
    let built = conversation.context().await;
    built.assert_covers(4);
    for id in [3, 4] {
        assert_eq!(
            built.representation(id),
            (Representation::Withdrawn, Reason::Withdrawn)
        );
    }
    let told = conversation_of_turns(&app, 1).await;
    assert_eq!(built.texts_by_role(), told.context().await.texts_by_role());
    assert_eq!(
        conversation.usage().await,
        told.usage().await,
        "the usage is that of a conversation which was only told what is left"
    );
    conversation.verify().await;

    let appended = conversation.append("And what else?").await;
    assert_eq!(
        (appended.messages[0].message_id, appended.messages[0].turn),
        (5, 2),
        "ids are never used again, and turns are those of what is left"
    );
    conversation.verify().await;
}

#[tokio::test]
async fn messages_are_named_in_any_order_or_as_a_range_and_withdrawn_ones_are_skipped() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 3).await;
    let change = conversation.withdraw(&[5, 2, 5]).await;
    assert_eq!(ids(&change.changed), [(2, 2), (5, 5)]);
    let change = conversation.withdraw_range(1, 6).await;
    assert_eq!(ids(&change.changed), [(1, 1), (3, 4), (6, 6)]);
    assert!(listed_ids(&conversation).await.is_empty());
    let before = conversation.conversation().await;
    assert_eq!((before.turn, before.withdrawn_messages), (0, 6));
    assert_eq!(before.token_total.expect("a total").tokens, 0);
    let nothing = conversation.withdraw_range(1, 6).await;
    assert_eq!((nothing.change_id, nothing.changed.len()), (0, 0));
    assert_eq!(conversation.conversation().await, before);
    assert!(conversation.context().await.0.messages.is_empty());
    conversation.verify().await;
}

#[tokio::test]
async fn a_call_is_withdrawn_with_its_results_and_a_result_with_its_call() {
    let app = TestApp::start().await;
    let conversation = conversation_with_tools(&app).await;
    let change = conversation.withdraw(&[3]).await;
    assert_eq!(ids(&change.changed), [(2, 3)], "the call of the result");
    let change = conversation.withdraw(&[6]).await;
    assert_eq!(ids(&change.changed), [(6, 7)], "the result of the call");
    assert_eq!(listed_ids(&conversation).await, [1, 4, 5, 8]);
    let built = conversation.context().await;
    built.assert_tools_paired();
    assert!(built.repairs().is_empty(), "{:?}", built.repairs());
    conversation.verify().await;

    let conversation = conversation_with_two_calls(&app).await;
    let change = conversation.withdraw(&[4]).await;
    assert_eq!(
        ids(&change.changed),
        [(2, 4)],
        "the message with the call, and the result of its other call"
    );
    assert_eq!(listed_ids(&conversation).await, [1, 5]);
}

#[tokio::test]
async fn pairs_are_kept_apart_on_request_and_contexts_repair_what_is_left() {
    let app = TestApp::start().await;
    let conversation = conversation_with_tools(&app).await;
    let change = conversation.withdraw(&[3]).keep_tool_pairs_apart().await;
    assert_eq!(ids(&change.changed), [(3, 3)]);
    let change = conversation.withdraw(&[6]).keep_tool_pairs_apart().await;
    assert_eq!(ids(&change.changed), [(6, 6)]);
    let built = conversation.context().await;
    built.assert_tools_paired();
    let repairs = built.repairs();
    for repair in [(RepairKind::ResultAdded, 2), (RepairKind::ResultDropped, 7)] {
        assert!(repairs.contains(&repair), "{repair:?}: {repairs:?}");
    }
    conversation.verify().await;
}

#[tokio::test]
async fn turns_are_those_of_the_messages_that_are_left() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 3).await;
    let before = turns_by_id(&conversation).await;
    assert_eq!(before, [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3)]);
    conversation.withdraw(&[3, 4]).await;
    assert_eq!(
        turns_by_id(&conversation).await,
        [(1, 1), (2, 1), (5, 2), (6, 2)]
    );
    assert_eq!(conversation.conversation().await.turn, 2);
    conversation.verify().await;
    conversation.withdraw(&[2]).await;
    assert_eq!(
        turns_by_id(&conversation).await,
        [(1, 1), (5, 1), (6, 1)],
        "two questions in a row are one turn"
    );
    assert_eq!(conversation.conversation().await.turn, 1);
    conversation.verify().await;
    conversation.withdraw(&[6]).await;
    let appended = conversation.append("A third question in a row?").await;
    assert_eq!(
        appended.messages[0].turn, 1,
        "the newest message that is left is a question, too"
    );
    conversation.verify().await;
    conversation.restore_range(1, 6).await;
    assert_eq!(turns_by_id(&conversation).await[..6], before);
    assert_eq!(turns_by_id(&conversation).await[6], (7, 4));
    conversation.verify().await;
}

#[tokio::test]
async fn a_title_is_taken_from_the_first_question_that_is_left() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 2).await;
    let title = async || conversation.conversation().await.title;
    assert_eq!(title().await, question(1));
    conversation.withdraw(&[2]).await;
    assert_eq!(title().await, question(1));
    conversation.withdraw(&[1]).await;
    assert_eq!(title().await, question(2));
    conversation.withdraw(&[3]).await;
    assert_eq!(title().await, "");
    conversation.append("A new one?").await;
    assert_eq!(title().await, "A new one?");
    conversation.restore(&[1]).await;
    assert_eq!(title().await, question(1));

    let named = app
        .conversation_with(pb::CreateConversationRequest {
            title: "Mine".into(),
            ..Default::default()
        })
        .await;
    append_turns(&named, 1..=1).await;
    named.withdraw(&[1]).await;
    assert_eq!(named.conversation().await.title, "Mine");
}

#[tokio::test]
async fn checkpoints_whose_range_holds_a_withdrawn_message_no_longer_hold() {
    let app = TestApp::start().await;
    let (conversation, [older, newer]) = conversation_with_checkpoints(&app).await;
    let newest = conversation.conversation().await.message_count;

    // A message of the tail is in no checkpoint's range.
    let change = conversation.withdraw(&[newest]).await;
    assert!(change.void_checkpoints.is_empty(), "{change:?}");
    assert_eq!(change.boundary_message_id, newer);

    let change = conversation.withdraw(&[older + 1]).await;
    assert_eq!(ids(&change.void_checkpoints), [(1, newer)]);
    assert_eq!(
        (change.boundary_message_id, change.boundary_kind()),
        (older, BoundaryKind::Checkpoint),
        "contexts start after the newest checkpoint that holds"
    );
    let checkpoints = conversation.checkpoints().await;
    assert_eq!(checkpoints.len(), 1);
    let built = conversation.context().await;
    built.assert_covers(newest);
    assert_eq!(built.0.boundary_message_id, older);
    assert!(built.text().contains(&checkpoints[0].summary));
    conversation.verify().await;

    let change = conversation.withdraw(&[1]).await;
    assert_eq!(ids(&change.void_checkpoints), [(1, older)]);
    assert_eq!(
        (change.boundary_message_id, change.boundary_kind()),
        (0, BoundaryKind::Unspecified)
    );
    assert!(conversation.checkpoints().await.is_empty());
    let built = conversation.context().await;
    for id in [1, older + 1, newest] {
        assert!(!built.text().contains(&marked_text(id)), "message {id}");
    }
    assert!(built.text().contains(&marked_text(2)));
    conversation.verify().await;

    // The tail has more messages than the threshold again.
    app.run_jobs_until_idle().await;
    let checkpoints = conversation.checkpoints().await;
    assert_eq!(checkpoints.len(), 1, "a checkpoint is made of what is left");
    for id in [1, older + 1, newest] {
        let mark = format!("mark{id}x");
        assert!(!checkpoints[0].summary.contains(&mark), "message {id}");
    }
    conversation.verify().await;
}

#[tokio::test]
async fn a_separator_stays_when_the_message_before_it_is_withdrawn() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 1).await;
    conversation.insert_separator().await;
    append_turns(&conversation, 2..=3).await;
    conversation.insert_separator().await;
    let change = conversation.withdraw(&[1, 2, 5, 6]).await;
    assert_eq!(
        (change.boundary_message_id, change.boundary_kind()),
        (6, BoundaryKind::Separator)
    );
    for page_size in [1, 2, 50] {
        for (newest_first, messages) in [(false, [3, 4]), (true, [4, 3])] {
            let (listed, mut separators) =
                list_in_pages(&conversation, newest_first, page_size).await;
            separators.sort_unstable();
            assert_eq!(
                (&listed[..], &separators[..]),
                (&messages[..], &[2, 6][..]),
                "{page_size} {newest_first}"
            );
        }
    }
    assert_eq!(conversation.delete_separator(6).await, 2);
    let texts = conversation.context().await.texts_by_role();
    assert_eq!(texts, conversation.texts_by_role().await);
    conversation.verify().await;
}

#[tokio::test]
async fn a_watch_passes_over_withdrawn_messages_and_goes_on() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 2).await;
    let mut running = conversation.watch().await;
    conversation.withdraw(&[2, 4]).await;
    let mut late = conversation.watch_after(0).await;
    conversation
        .append_all(vec![user("Still there?"), assistant("Yes.")])
        .await;
    let is_last =
        |event: &Event| matches!(event, Event::MessageAppended(message) if message.message_id == 6);
    assert_eq!(appended_ids(&running.until(is_last).await), [5, 6]);
    assert_eq!(appended_ids(&late.until(is_last).await), [1, 3, 5, 6]);
    conversation.rewind(0).await;
    let mut empty = conversation.watch_after(0).await;
    conversation.append("Anybody?").await;
    let is_last =
        |event: &Event| matches!(event, Event::MessageAppended(message) if message.message_id == 7);
    assert_eq!(appended_ids(&empty.until(is_last).await), [7]);
}

#[tokio::test]
async fn one_call_changes_at_most_ten_thousand_messages() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    for _ in 0..101 {
        conversation.append_all(vec![user("x"); 100]).await;
    }
    for (request, field) in [
        (conversation.rewind(99), "after_message_id"),
        (conversation.withdraw_range(100, 10_100), "range"),
    ] {
        let refused = request.send().await;
        assert_refused(refused, Code::InvalidArgument, "LIMIT_EXCEEDED", field);
    }
    let change = conversation.rewind(100).await;
    assert_eq!(ids(&change.changed), [(101, 10_100)]);
    assert_eq!(listed_ids(&conversation).await.len(), 100);
    let change = conversation.restore_range(101, 10_100).await;
    assert_eq!(change.withdrawn_messages, 0);
    conversation.verify().await;
}
