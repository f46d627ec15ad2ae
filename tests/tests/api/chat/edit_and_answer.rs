//! A turn edits a message of the user, withdraws everything after it, and answers it.

use anneal_testkit::{TestApp, assert_refused, pb, user};
use pb::Role;
use tonic::Code;

use super::{ids, numbered_answers};

#[tokio::test]
async fn an_edited_question_is_answered_in_place_of_everything_after_it() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    conversation.chat("One?").await.done();
    conversation.chat("Two?").await.done();
    let outcome = conversation.edit_and_answer(1, "Uno?").await;
    assert_eq!(
        (outcome.text().as_str(), outcome.started().alternatives),
        ("Answer 2.", 1)
    );
    assert_eq!(outcome.done().message_ids, [1, 5]);
    let sent = model.requests()[2].texts().concat();
    assert!(
        sent.contains("Uno?") && !sent.contains("One?") && !sent.contains("Answer"),
        "{sent}"
    );
    assert_eq!(
        conversation.texts_by_role().await,
        [
            (Role::User, "Uno?".to_owned()),
            (Role::Assistant, "Answer 2.".to_owned())
        ]
    );
    let now = conversation.conversation().await;
    assert_eq!(
        (now.turn, now.withdrawn_messages, now.title.as_str()),
        (1, 3, "Uno?")
    );
    assert_eq!(conversation.message(1).await.version, 2);
    let alternatives = conversation.alternatives(1).await;
    let listed: Vec<_> = alternatives
        .iter()
        .map(|one| (one.number, one.question_version, ids(&one.messages)))
        .collect();
    assert_eq!(
        listed,
        [(1, 1, vec![(2, 4)]), (2, 2, vec![(5, 5)])],
        "the earlier answer is to the earlier version"
    );
    assert_refused(
        conversation.choose(1, 1).await,
        Code::Aborted,
        "VERSION_MISMATCH",
        "",
    );
    conversation.verify().await;
}

#[tokio::test]
async fn the_same_text_makes_no_version_and_the_earlier_answer_can_be_chosen() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    conversation.chat("One?").await.done();
    let outcome = conversation.edit_and_answer(1, "One?").await;
    assert_eq!(outcome.done().message_ids, [1, 3]);
    assert_eq!(conversation.message(1).await.version, 1);
    let chosen = conversation.choose(1, 1).await.expect("chooses");
    assert_eq!(ids(&chosen.changed), [(2, 2)]);
    conversation.verify().await;
}

#[tokio::test]
async fn the_labels_of_the_question_stay_unless_the_new_one_has_labels() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let mut labelled = user("One?");
    labelled.metadata = [("source".to_owned(), "web".to_owned())].into();
    let mut relabelled = user("Uno?");
    relabelled.metadata = [("source".to_owned(), "app".to_owned())].into();
    conversation.chat_all(vec![labelled]).await.done();
    for (message, version, source) in [
        (user("One?"), 1, "web"),
        (user("Uno?"), 2, "web"),
        (relabelled, 3, "app"),
    ] {
        let mut turn = conversation.chat_all(vec![message]);
        turn.ask.edit_message_id = Some(1);
        turn.await.done();
        let question = conversation.message(1).await;
        assert_eq!(question.version, version);
        assert_eq!(question.metadata["source"], source, "version {version}");
    }
    conversation.verify().await;
}

#[tokio::test]
async fn the_newest_message_is_edited_and_nothing_is_withdrawn() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    conversation.append("Oen?").await;
    let outcome = conversation.edit_and_answer(1, "One?").await;
    assert_eq!(outcome.started().alternatives, 0);
    assert_eq!(
        conversation.texts_by_role().await,
        [
            (Role::User, "One?".to_owned()),
            (Role::Assistant, "Answer 0.".to_owned())
        ]
    );
    assert_eq!(conversation.conversation().await.withdrawn_messages, 0);
    conversation.verify().await;
}

#[tokio::test]
async fn one_request_id_makes_one_version_and_one_answer() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    conversation.chat("One?").await.done();
    let request = conversation.edit_and_answer(1, "Uno?").request_id("r");
    let first = request.clone().await;
    let again = request.await;
    assert_eq!((again.text(), again.done().replayed), (first.text(), true));
    let other = conversation.edit_and_answer(1, "Un?").request_id("r").await;
    assert_refused(other.end, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    assert_eq!(conversation.message(1).await.version, 2);
    assert_eq!(
        (conversation.messages().await.len(), model.requests().len()),
        (2, 2)
    );
}

#[tokio::test]
async fn only_a_message_of_the_user_that_contexts_have_is_edited() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    conversation.chat("One?").await.done();
    conversation.chat("Two?").await.done();
    conversation.chat("Three?").await.done();
    conversation.withdraw(&[5]).await;
    let before = conversation.conversation().await.etag;
    let cases = [
        (2, Code::InvalidArgument, "INVALID_FIELD"),
        (5, Code::FailedPrecondition, "MESSAGE_WITHDRAWN"),
        (99, Code::NotFound, "MESSAGE_NOT_FOUND"),
        (0, Code::InvalidArgument, "INVALID_FIELD"),
    ];
    for (message, code, reason) in cases {
        let refused = conversation.edit_and_answer(message, "Uno?").await;
        assert_refused(refused.end, code, reason, "edit_message_id");
    }
    let mut two = conversation.edit_and_answer(1, "Uno?");
    two.ask.messages.push(user("Due?"));
    let refused = two.await;
    assert_refused(
        refused.end,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "messages",
    );
    assert_eq!(conversation.conversation().await.etag, before);
    conversation.insert_separator().await;
    let refused = conversation.edit_and_answer(1, "Uno?").await;
    assert_refused(
        refused.end,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "edit_message_id",
    );
    assert_eq!(model.requests().len(), 3);
}

#[tokio::test]
async fn an_erasure_of_the_question_leaves_no_digest_of_its_text() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    conversation.chat("One?").await.done();
    let request = conversation.edit_and_answer(1, "Uno?").request_id("r");
    request.clone().await.done();
    conversation.erase(&[1]).await;
    let digests: Vec<i32> = sqlx::query_scalar(
        "select octet_length(request_digest) from ai_request where conversation_id = $1 and method = 'chat_anew'",
    )
    .bind(conversation.uuid())
    .fetch_all(&mut app.db().await)
    .await
    .expect("reads");
    assert_eq!(digests, [0]);
    assert_refused(
        request.await.end,
        Code::FailedPrecondition,
        "MESSAGE_WITHDRAWN",
        "",
    );
}
