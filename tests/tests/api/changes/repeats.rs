//! Repeated changes have one effect, and conditions are checked. Repeated appends and turns are
//! answered as before, or refused if their messages are withdrawn.

use anneal_testkit::{ScriptedModel, TestApp, assert_refused, assistant, pb, user};
use tonic::Code;

use super::{append_turns, conversation_of_turns, conversation_with_checkpoints, ids, listed_ids};

#[tokio::test]
async fn a_repeated_change_is_answered_like_the_first_and_does_nothing() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 3).await;
    let withdraw = || conversation.withdraw(&[4, 3]).request_id("w");
    let first = withdraw().await;
    append_turns(&conversation, 4..=4).await;
    let before = conversation.conversation().await;
    let again = withdraw().await;
    assert_eq!(
        (again.change_id, &again.changed, again.replayed),
        (first.change_id, &first.changed, true)
    );
    assert_eq!(
        (again.token_total, &again.etag, again.withdrawn_messages),
        (before.token_total, &before.etag, 2),
        "the figures are those of now"
    );
    assert_eq!(conversation.conversation().await, before);

    let rewind = || conversation.rewind(6).request_id("b");
    let first = rewind().await;
    append_turns(&conversation, 5..=5).await;
    let again = rewind().await;
    assert_eq!(
        (again.change_id, &again.changed, again.replayed),
        (first.change_id, &first.changed, true)
    );
    assert_eq!(listed_ids(&conversation).await, [1, 2, 5, 6, 9, 10]);

    let restore = || conversation.restore(&[3]).request_id("r");
    restore().await;
    conversation.withdraw(&[3]).await;
    let again = restore().await;
    assert!(
        again.replayed && ids(&again.changed) == [(3, 3)],
        "{again:?}"
    );
    assert_eq!(
        listed_ids(&conversation).await,
        [1, 2, 5, 6, 9, 10],
        "the message was withdrawn after it had been restored"
    );
    withdraw().await;
    assert_eq!(listed_ids(&conversation).await, [1, 2, 5, 6, 9, 10]);
    conversation.verify().await;
}

#[tokio::test]
async fn a_repeated_change_lists_the_checkpoints_that_it_voided() {
    let app = TestApp::start().await;
    let (conversation, _) = conversation_with_checkpoints(&app).await;
    let first = conversation.withdraw(&[1]).request_id("w").await;
    assert_eq!(first.void_checkpoints.len(), 2);
    let again = conversation.withdraw(&[1]).request_id("w").await;
    assert_eq!(ids(&again.void_checkpoints), ids(&first.void_checkpoints));
}

#[tokio::test]
async fn a_repeated_call_that_changed_nothing_changes_nothing() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 1).await;
    let restore = || conversation.restore(&[1]).request_id("n");
    assert_eq!(restore().await.change_id, 0);
    conversation.withdraw(&[1]).await;
    let again = restore().await;
    assert_eq!(
        (again.change_id, again.changed.len(), again.replayed),
        (0, 0, true)
    );
    assert_eq!(listed_ids(&conversation).await, [2]);
}

#[tokio::test]
async fn the_same_change_from_two_callers_at_once_is_made_once() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 2).await;
    let withdraw = || conversation.withdraw(&[3, 4]).request_id("w").send();
    let (one, two) = tokio::join!(withdraw(), withdraw());
    let (one, two) = (one.expect("succeeds"), two.expect("succeeds"));
    assert_eq!((one.change_id, &one.changed), (two.change_id, &two.changed));
    assert!(one.replayed != two.replayed, "{one:?} {two:?}");
    assert_eq!(one.etag, two.etag);
    // Without a request id the second call finds nothing to withdraw.
    let withdraw = || conversation.withdraw(&[1]).send();
    let (one, two) = tokio::join!(withdraw(), withdraw());
    let changes = [one, two].map(|change| change.expect("succeeds").changed.len());
    assert_eq!(changes.iter().sum::<usize>(), 1, "{changes:?}");
    conversation.verify().await;
}

#[tokio::test]
async fn a_request_id_of_another_change_is_refused() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 2).await;
    conversation.withdraw(&[1]).request_id("w").await;
    conversation.restore(&[1]).request_id("r").await;
    for request in [
        conversation.withdraw(&[2]).request_id("w"),
        conversation.withdraw_range(1, 1).request_id("w"),
        conversation
            .withdraw(&[1])
            .keep_tool_pairs_apart()
            .request_id("w"),
        conversation.restore(&[2]).request_id("r"),
    ] {
        let refused = request.send().await;
        assert_refused(refused, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    }
    assert_eq!(listed_ids(&conversation).await, [1, 2, 3, 4]);
}

#[tokio::test]
async fn changes_are_made_only_under_their_conditions() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 2).await;
    let etag = conversation.conversation().await.etag;
    for request in [
        conversation.withdraw(&[1]).expecting(3),
        conversation.rewind(0).expecting(5),
        conversation.restore(&[1]).expecting(0),
    ] {
        let refused = request.send().await;
        assert_refused(refused, Code::Aborted, "LAST_MESSAGE_MISMATCH", "");
    }
    let other = (etag.parse::<i64>().expect("a number") + 1).to_string();
    for request in [
        conversation.withdraw(&[1]).etag(&other),
        conversation.rewind(0).etag(&other),
        conversation.restore(&[1]).etag(&other),
    ] {
        let refused = request.send().await;
        assert_refused(refused, Code::Aborted, "ETAG_MISMATCH", "");
    }
    assert_eq!(listed_ids(&conversation).await, [1, 2, 3, 4]);

    let withdraw = || {
        conversation
            .withdraw(&[4])
            .expecting(4)
            .etag(&etag)
            .request_id("w")
    };
    let first = withdraw().await;
    append_turns(&conversation, 3..=3).await;
    assert!(
        withdraw().await.replayed,
        "the conditions of a repeated call are not checked again"
    );
    // The newest message may be a withdrawn one.
    conversation.rewind(4).expecting(6).await;
    conversation.withdraw(&[3]).expecting(6).await;

    let title = pb::UpdateConversationRequest {
        conversation: Some(pb::Conversation {
            conversation_id: conversation.id.clone(),
            title: "Mine".into(),
            ..Default::default()
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["title".into()],
        }),
        etag: first.etag,
        ..Default::default()
    };
    let refused = app.conversations().update_conversation(title).await;
    assert_refused(refused, Code::Aborted, "ETAG_MISMATCH", "");
}

#[tokio::test]
async fn a_repeated_append_of_withdrawn_messages_is_answered_as_before() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let append = || {
        conversation
            .append_all(vec![user("Once?"), assistant("Once.")])
            .request_id("a")
    };
    let first = append().await;
    conversation.rewind(0).await;
    let again = append().await;
    let ids_and_turns = |appended: &pb::AppendMessagesResponse| {
        appended
            .messages
            .iter()
            .map(|message| (message.message_id, message.turn))
            .collect::<Vec<_>>()
    };
    assert!(again.replayed);
    assert_eq!(ids_and_turns(&again), ids_and_turns(&first));
    assert!(listed_ids(&conversation).await.is_empty());
    let refused = conversation
        .append_all(vec![user("Twice?"), assistant("Once.")])
        .request_id("a")
        .send()
        .await;
    assert_refused(refused, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
}

#[tokio::test]
async fn a_repeated_turn_is_refused_if_its_question_or_answer_is_withdrawn() {
    let model = ScriptedModel::saying("Once.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let turn = || conversation.chat("Say it once.").request_id("turn");
    turn().await.done();
    for withdrawn in [&[2][..], &[1], &[1, 2]] {
        conversation.withdraw(withdrawn).await;
        assert_refused(
            turn().await.end,
            Code::FailedPrecondition,
            "MESSAGE_WITHDRAWN",
            "",
        );
        conversation.restore(&[1, 2]).await;
        assert!(turn().await.done().replayed);
    }
    assert_eq!(model.requests().len(), 1);
    assert_eq!(conversation.messages().await.len(), 2);

    // Without its answer, the question can be asked again with another request id.
    conversation.rewind(0).await;
    let anew = conversation.chat("Say it once.").request_id("anew").await;
    assert_eq!(anew.done().message_ids, [3, 4]);
    conversation.verify().await;
}
