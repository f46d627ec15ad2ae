//! A turn answers the newest question anew: what stands after it is withdrawn first.

use anneal_testkit::{
    Gate, Say, Script, ScriptedModel, TestApp, TurnOutcome, assert_refused, assistant, call, pb,
    prose, result, user,
};
use pb::Role;
use tonic::Code;

use super::{ids, numbered_answers};

#[tokio::test]
async fn a_new_answer_takes_the_place_of_the_last_one() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    conversation.chat("Why?").await.done();
    let outcome = conversation.regenerate().await;
    assert_eq!(outcome.text(), "Answer 1.");
    let started = outcome.started();
    assert_eq!(
        (started.message_ids.as_slice(), started.turn),
        (&[1][..], 1)
    );
    assert_eq!((started.alternatives, started.replayed), (1, false));
    assert_eq!(
        (
            outcome.done().message_ids.as_slice(),
            outcome.done().answer_message_id
        ),
        (&[1, 3][..], 3)
    );
    let sent = model.requests()[1].texts().concat();
    assert!(
        sent.contains("Why?") && !sent.contains("Answer 0"),
        "{sent}"
    );
    assert_eq!(
        conversation.texts_by_role().await,
        [
            (Role::User, "Why?".to_owned()),
            (Role::Assistant, "Answer 1.".to_owned())
        ]
    );
    let now = conversation.conversation().await;
    assert_eq!((now.message_count, now.withdrawn_messages), (3, 1));
    conversation.verify().await;
}

#[tokio::test]
async fn the_question_is_every_message_of_the_user_since_the_last_other_one() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let messages = vec![
        user("One."),
        assistant("Yes."),
        user("Two?"),
        user("Three?"),
    ];
    conversation.append_all(messages).await;
    conversation.chat("Four?").await.done();
    let outcome = conversation.regenerate().await;
    assert_eq!(outcome.started().message_ids, [3, 4, 5]);
    assert_eq!(outcome.done().message_ids, [3, 4, 5, 7]);
    assert_eq!(
        ids(&conversation.alternatives(5).await[0].messages),
        [(6, 6)]
    );
}

#[tokio::test]
async fn a_whole_tool_loop_is_withdrawn_with_its_answer() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let messages = vec![
        user("Look."),
        call("c", "{}"),
        result("c", "A tree."),
        assistant("It is a tree."),
    ];
    conversation.append_all(messages).await;
    let outcome = conversation.regenerate().await;
    assert_eq!(outcome.done().message_ids, [1, 5]);
    let sent = model.requests()[0].texts().concat();
    assert!(!sent.contains("tree"), "{sent}");
    let alternatives = conversation.alternatives(1).await;
    assert_eq!(ids(&alternatives[0].messages), [(2, 4)]);
    assert_eq!(ids(&alternatives[1].messages), [(5, 5)]);
    conversation.verify().await;
}

#[tokio::test]
async fn a_question_in_a_checkpoint_is_sent_again_also_if_an_earlier_one_ends_with_it() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    conversation.turn(&prose(0, 50), "Noted.").await;
    conversation.turn("Why is that so?", "Because.").await;
    conversation.append_all(vec![assistant("Still.")]).await;
    app.run_jobs_until_idle().await;
    for last in [3, 4] {
        let ask = pb::ImportCheckpointRequest {
            conversation_id: conversation.id.clone(),
            request_id: format!("up to {last}"),
            last_message_id: last,
            summary: "They inspected turbines.".into(),
            ..Default::default()
        };
        let imported = app.contexts().import_checkpoint(ask).await;
        imported.expect("imports");
    }
    let outcome = conversation.regenerate().await;
    assert_eq!(outcome.done().message_ids, [3, 6]);
    let sent = model.requests()[0].texts().concat();
    assert!(
        sent.contains("Why is that so?") && !sent.contains("They inspected turbines."),
        "{sent}"
    );
    conversation.verify().await;
}

#[tokio::test]
async fn an_unanswered_question_is_answered_and_nothing_is_withdrawn() {
    let model = ScriptedModel::start(|request| match request.nth {
        0 => Script::status(500, &[], "{}"),
        _ => Script::says(request, [Say::text("Now.")]),
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let failed = conversation.chat("Now?").await;
    assert_refused(failed.end, Code::Unavailable, "MODEL_UNAVAILABLE", "");
    let request = conversation.regenerate().request_id("r");
    let outcome = request.clone().await;
    assert_eq!(outcome.started().alternatives, 0);
    assert!(outcome.started().change_id > 0, "{:?}", outcome.started());
    assert_eq!(outcome.done().message_ids, [1, 2]);
    assert!(request.await.done().replayed);
    assert_eq!(conversation.conversation().await.withdrawn_messages, 0);
}

#[tokio::test]
async fn one_request_id_has_one_answer_and_one_alternative() {
    let model = ScriptedModel::start(|request| match request.nth {
        1 => Script::status(500, &[], "{}"),
        nth => Script::says(request, [Say::text(&format!("Answer {nth}."))]),
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    conversation.chat("Why?").await.done();
    let request = conversation.regenerate().request_id("r");
    let failed = request.clone().await;
    assert_refused(failed.end, Code::Unavailable, "MODEL_UNAVAILABLE", "");
    assert_eq!(
        conversation.texts_by_role().await,
        [(Role::User, "Why?".to_owned())],
        "the question stands unanswered"
    );
    assert_eq!(conversation.alternatives(1).await.len(), 1);
    let answered = request.clone().await;
    assert_eq!(
        (answered.text().as_str(), answered.done().replayed),
        ("Answer 2.", false)
    );
    let replayed = request.await;
    assert_eq!(
        (replayed.text().as_str(), replayed.done().replayed),
        ("Answer 2.", true)
    );
    assert_eq!(
        (
            &replayed.started().message_ids,
            replayed.started().change_id
        ),
        (
            &answered.started().message_ids,
            answered.started().change_id
        )
    );
    assert_eq!(model.requests().len(), 3);
    assert_eq!(conversation.alternatives(1).await.len(), 2);
    conversation.verify().await;
}

#[tokio::test]
async fn a_question_that_the_conversation_has_left_behind_is_not_answered_again() {
    let model = ScriptedModel::start(|request| match request.nth {
        1 => Script::status(500, &[], "{}"),
        nth => Script::says(request, [Say::text(&format!("Answer {nth}."))]),
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    conversation.chat("Why?").await.done();
    let request = conversation.regenerate().request_id("r");
    let failed = request.clone().await;
    assert_refused(failed.end, Code::Unavailable, "MODEL_UNAVAILABLE", "");
    conversation.chat("And this?").await.done();
    let overtaken = request.clone().await;
    assert_refused(overtaken.end, Code::Aborted, "TURN_OVERTAKEN", "");
    conversation.withdraw(&[1]).await;
    let withdrawn = request.await;
    assert_refused(
        withdrawn.end,
        Code::FailedPrecondition,
        "MESSAGE_WITHDRAWN",
        "",
    );
}

#[tokio::test]
async fn a_turn_that_finds_no_question_is_refused_and_changes_nothing() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let empty = app.conversation().await;
    let refused = empty.regenerate().await;
    assert_refused(
        refused.end,
        Code::NotFound,
        "MESSAGE_NOT_FOUND",
        "regenerate",
    );
    let conversation = app.conversation().await;
    conversation.chat("Why?").await.done();
    conversation.insert_separator().await;
    let before = conversation.conversation().await.etag;
    let refused = conversation.regenerate().await;
    assert_refused(
        refused.end,
        Code::NotFound,
        "MESSAGE_NOT_FOUND",
        "regenerate",
    );
    let mut both = conversation.regenerate();
    both.ask.messages = vec![user("And?")];
    let refused = both.await;
    assert_refused(
        refused.end,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "regenerate",
    );
    assert_eq!(conversation.conversation().await.etag, before);
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a_condition_that_does_not_hold_and_a_request_id_of_another_call_are_refused() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    conversation.chat("Why?").request_id("asked").await.done();
    let mut request = conversation.regenerate();
    request.ask.expected_last_message_id = Some(1);
    let refused = request.await;
    assert_refused(refused.end, Code::Aborted, "LAST_MESSAGE_MISMATCH", "");
    let refused = conversation.regenerate().request_id("asked").await;
    assert_refused(refused.end, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    conversation.regenerate().request_id("anew").await.done();
    let refused = conversation.edit_and_answer(1, "How?").request_id("anew");
    assert_refused(
        refused.await.end,
        Code::AlreadyExists,
        "REQUEST_ID_REUSED",
        "",
    );
    assert_eq!(model.requests().len(), 2);
}

#[tokio::test]
async fn beside_a_turn_that_runs_nothing_is_withdrawn() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| match request.nth {
            0 => Script::says(request, [Say::text("First.")]),
            _ => Script::says(request, [Say::text("Second.")]).after(&gate),
        }
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    conversation.chat("One?").await.done();
    let running = conversation.chat("Two?").open().await.expect("begins");
    model.wait_for_calls(2).await;
    let refused = conversation.regenerate().await;
    assert_refused(refused.end, Code::Aborted, "TURN_IN_PROGRESS", "");
    gate.open_for_ever();
    TurnOutcome::read(running).await.done();
    assert_eq!(conversation.messages().await.len(), 4);
}
