//! Earlier answers to a question stay: they are listed, and one of them can be chosen again.

use anneal_testkit::{
    Gate, Say, Script, ScriptedModel, TestApp, TestConversation, TurnOutcome, assert_refused,
    assistant, pb, user,
};
use pb::Role;
use tonic::Code;

use super::{ids, numbered_answers};

/// A conversation with one question, to which messages 2, 3 and 4 are answers.
async fn answered_three_times(app: &TestApp) -> TestConversation<'_> {
    let conversation = app.conversation().await;
    conversation.chat("Why?").await.done();
    conversation.regenerate().await.done();
    conversation.regenerate().await.done();
    conversation
}

/// Number, text and whether it stands, of each answer.
fn listed(alternatives: &[pb::Alternative]) -> Vec<(i32, &str, bool)> {
    let alternatives = alternatives.iter();
    alternatives
        .map(|one| (one.number, one.text.as_str(), one.current))
        .collect()
}

#[tokio::test]
async fn all_answers_are_listed_with_the_one_that_stands_last() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = answered_three_times(&app).await;
    let alternatives = conversation.alternatives(1).await;
    assert_eq!(
        listed(&alternatives),
        [
            (1, "Answer 0.", false),
            (2, "Answer 1.", false),
            (3, "Answer 2.", true)
        ]
    );
    for (one, message) in alternatives.iter().zip(2..) {
        assert_eq!(ids(&one.messages), [(message, message)]);
        assert_eq!((one.question_message_id, one.question_version), (1, 1));
        assert_eq!(one.model, anneal_testkit::MODEL);
        assert!(one.created_time.is_some() && !one.stopped);
    }
    for message in 2..=4 {
        assert_eq!(
            conversation.alternatives(message).await,
            alternatives,
            "message {message} is an answer to the same question"
        );
    }
}

#[tokio::test]
async fn a_chosen_answer_takes_the_place_of_the_one_that_stands() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = answered_three_times(&app).await;
    let chosen = conversation.choose(1, 1).await.expect("chooses");
    assert_eq!(ids(&chosen.changed), [(2, 2)]);
    assert_eq!(chosen.withdrawn_messages, 2);
    assert_eq!(
        conversation.texts_by_role().await,
        [
            (Role::User, "Why?".to_owned()),
            (Role::Assistant, "Answer 0.".to_owned())
        ]
    );
    let context = conversation.context_with(vec![user("And?")]).await.text();
    assert!(
        context.contains("Answer 0.")
            && !context.contains("Answer 1.")
            && !context.contains("Answer 2."),
        "{context}"
    );
    assert_eq!(
        listed(&conversation.alternatives(1).await),
        [
            (2, "Answer 1.", false),
            (3, "Answer 2.", false),
            (1, "Answer 0.", true)
        ]
    );
    let again = conversation.choose(1, 1).await.expect("answers");
    assert_eq!((again.change_id, again.etag), (0, chosen.etag));
    conversation.verify().await;
}

#[tokio::test]
async fn a_chosen_answer_that_is_withdrawn_again_keeps_its_number() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = answered_three_times(&app).await;
    conversation.choose(1, 2).await.expect("chooses");
    conversation.chat("And?").await.done();
    conversation.choose(1, 1).await.expect("chooses");
    let alternatives = conversation.alternatives(1).await;
    assert_eq!(
        listed(&alternatives),
        [
            (2, "Answer 1.", false),
            (3, "Answer 2.", false),
            (1, "Answer 0.", true)
        ]
    );
    assert_eq!(
        ids(&alternatives[0].messages),
        [(3, 3), (5, 6)],
        "with what followed it"
    );
    conversation.regenerate().await.done();
    assert_eq!(
        listed(&conversation.alternatives(1).await),
        [
            (1, "Answer 0.", false),
            (2, "Answer 1.", false),
            (3, "Answer 2.", false),
            (4, "Answer 4.", true)
        ]
    );
    conversation.choose(1, 2).await.expect("chooses");
    let texts: Vec<String> = conversation
        .texts_by_role()
        .await
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    assert_eq!(texts, ["Why?", "Answer 1.", "And?", "Answer 3."]);
    conversation.verify().await;
}

#[tokio::test]
async fn an_answer_that_was_restored_keeps_its_number() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    conversation.chat("Why?").await.done();
    conversation.regenerate().await.done();
    conversation.withdraw(&[3]).send().await.expect("withdraws");
    conversation.restore(&[2]).send().await.expect("restores");
    let outcome = conversation.regenerate().await;
    assert_eq!(outcome.started().alternatives, 1);
    assert_eq!(
        listed(&conversation.alternatives(1).await),
        [(1, "Answer 0.", false), (2, "Answer 2.", true)]
    );
}

#[tokio::test]
async fn of_answers_side_by_side_the_chosen_one_stays() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    conversation.chat("Why?").await.done();
    conversation.regenerate().await.done();
    conversation.restore(&[2]).send().await.expect("restores");
    conversation.chat("And?").await.done();
    let chosen = conversation.choose(1, 1).await.expect("chooses");
    assert_eq!(ids(&chosen.changed), [(3, 3)]);
    let texts: Vec<String> = conversation
        .texts_by_role()
        .await
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    assert_eq!(texts, ["Why?", "Answer 0.", "And?", "Answer 2."]);
    assert_eq!(
        listed(&conversation.alternatives(1).await),
        [(2, "Answer 1.", false), (1, "Answer 0.", true)]
    );
    let again = conversation.choose(1, 1).await.expect("answers");
    assert_eq!(again.change_id, 0, "what follows the answer stays");
    conversation.verify().await;
}

#[tokio::test]
async fn what_an_application_appends_to_a_chosen_answer_belongs_to_it() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let told = vec![
        user("Why?"),
        assistant("Let me think."),
        assistant("Because."),
    ];
    conversation.append_all(told).await;
    conversation.regenerate().await.done();
    conversation.choose(1, 1).await.expect("chooses");
    conversation
        .append_all(vec![assistant("And one more thing.")])
        .await;
    let again = conversation.choose(1, 1).await.expect("answers");
    assert_eq!(again.change_id, 0, "it stands already");
    assert_eq!(conversation.texts_by_role().await.len(), 4);
    conversation.verify().await;
}

#[tokio::test]
async fn an_answer_that_was_never_withdrawn_is_the_first_and_stands() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    conversation.append("Nothing?").await;
    assert!(conversation.alternatives(1).await.is_empty());
    conversation.regenerate().await.done();
    assert_eq!(
        listed(&conversation.alternatives(2).await),
        [(1, "Answer 0.", true)]
    );
    let unchanged = conversation.choose(1, 1).await.expect("answers");
    assert_eq!(unchanged.change_id, 0);
}

#[tokio::test]
async fn a_repeated_choice_changes_nothing() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = answered_three_times(&app).await;
    let ask = pb::ChooseAlternativeRequest {
        conversation_id: conversation.id.clone(),
        request_id: "r".into(),
        question_message_id: 1,
        number: 1,
        ..Default::default()
    };
    let first = app.chats().choose_alternative(ask.clone()).await;
    let first = first.expect("chooses").into_inner();
    conversation.choose(1, 2).await.expect("chooses");
    let again = app.chats().choose_alternative(ask.clone()).await;
    let again = again.expect("answers").into_inner();
    assert_eq!(
        (again.change_id, again.replayed, &again.changed),
        (first.change_id, true, &first.changed)
    );
    assert_eq!(conversation.texts_by_role().await[1].1, "Answer 1.");
    let other = pb::ChooseAlternativeRequest { number: 3, ..ask };
    let refused = app.chats().choose_alternative(other.clone()).await;
    assert_refused(refused, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    let mismatch = pb::ChooseAlternativeRequest {
        request_id: String::new(),
        expected_last_message_id: Some(1),
        ..other
    };
    let refused = app.chats().choose_alternative(mismatch).await;
    assert_refused(refused, Code::Aborted, "LAST_MESSAGE_MISMATCH", "");
}

#[tokio::test]
async fn an_answer_that_cannot_stand_again_is_refused() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = answered_three_times(&app).await;
    for (question, number, field) in [
        (1, 9, "number"),
        (2, 1, "question_message_id"),
        (99, 1, "question_message_id"),
    ] {
        let refused = conversation.choose(question, number).await;
        let (code, reason) = if question == 2 {
            (Code::FailedPrecondition, "MESSAGE_WITHDRAWN")
        } else {
            (Code::NotFound, "MESSAGE_NOT_FOUND")
        };
        assert_refused(refused, code, reason, field);
    }
    conversation.erase(&[2]).await;
    let refused = conversation.choose(1, 1).await;
    assert_refused(
        refused,
        Code::FailedPrecondition,
        "MESSAGE_ERASED",
        "number",
    );
    assert_eq!(
        listed(&conversation.alternatives(1).await)[0],
        (1, "", false),
        "nothing is left of its text"
    );
    assert_eq!(conversation.texts_by_role().await[1].1, "Answer 2.");
}

#[tokio::test]
async fn a_choice_ends_a_turn_that_runs() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| {
            let script = Script::says(request, [Say::text(&format!("Answer {}.", request.nth))]);
            if request.nth == 3 {
                script.after(&gate)
            } else {
                script
            }
        }
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = answered_three_times(&app).await;
    let running = conversation.chat("And?").open().await.expect("begins");
    model.wait_for_calls(4).await;
    conversation.choose(1, 1).await.expect("chooses");
    gate.open_for_ever();
    let lost = TurnOutcome::read(running).await;
    assert_refused(lost.end, Code::Unavailable, "MODEL_UNAVAILABLE", "");
    let texts: Vec<String> = conversation
        .texts_by_role()
        .await
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    assert_eq!(texts, ["Why?", "Answer 0."]);
    conversation.verify().await;
}

#[tokio::test]
async fn a_long_answer_that_was_withdrawn_before_it_was_counted_is_counted_when_it_is_chosen() {
    let long = "A long answer. ".repeat(2_000);
    let model = ScriptedModel::start(move |request| match request.nth {
        0 => Script::says(request, [Say::text(&long)]),
        _ => Script::says(request, [Say::text("Short.")]),
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    conversation.chat("Why?").await.done();
    conversation.regenerate().await.done();
    app.run_jobs_until_idle().await;
    conversation.choose(1, 1).await.expect("chooses");
    let chosen = conversation.message(2).await;
    let tokens = chosen.tokens.expect("tokens");
    assert!(!tokens.estimated && tokens.tokens > 2_000, "{tokens:?}");
    let listed = conversation.alternatives(2).await;
    let excerpt = &listed.last().expect("stands").text;
    assert!(excerpt.len() == 1_024 && excerpt.starts_with("A long answer."));
    conversation.verify().await;
}
