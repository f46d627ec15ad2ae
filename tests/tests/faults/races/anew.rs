//! A question is answered anew, or an earlier answer is chosen, beside another call: the rows are
//! those of one order of the two, and a turn that has lost its lease changes nothing.

use anneal_core::{
    admission::{CallLimits, CallPurpose},
    caller::ConversationId,
    message::MessageId,
    tokens::Tokens,
};
use anneal_store::{
    Anew, AnewAsk, AnewQuestion, CallAsk, ChangeConditions, ChooseAsk, MessageChange, ModelLease,
    Selection, StoreError,
};
use anneal_testkit::{LOCK_JOBS, TestApp, TestConversation, assistant};

use crate::races::{
    CALLER,
    changes::{ask, one, range, run_in_order, run_jobs_and_verify, withdraw},
};

fn id(conversation: &TestConversation<'_>) -> ConversationId {
    ConversationId(conversation.uuid())
}

/// Admits the call of a turn.
async fn admit(conversation: &TestConversation<'_>) -> ModelLease {
    let call = CallAsk {
        model: "a model",
        conversation: id(conversation),
        is_stored: true,
        purpose: CallPurpose::Turn,
        tokens: Tokens::new(100),
        limits: CallLimits::default(),
        request_id: Some("r"),
        replaces: None,
    };
    let admitted = conversation.app.store.admit_call(CALLER, &call).await;
    admitted.expect("decides").expect("admits")
}

/// Begins to answer the newest question anew, under this lease.
async fn begin(
    conversation: &TestConversation<'_>,
    request_id: &str,
    lease: &ModelLease,
) -> Result<Option<Anew>, StoreError> {
    let ask = AnewAsk {
        question: AnewQuestion::Newest,
        request_id: request_id.to_owned(),
        digest: AnewAsk::digest(None),
        conditions: ChangeConditions::default(),
    };
    let store = &conversation.app.store;
    store
        .begin_answer_anew(CALLER, id(conversation), &ask, lease)
        .await
}

async fn choose(
    conversation: &TestConversation<'_>,
    number: i32,
) -> Result<MessageChange, StoreError> {
    let ask = ChooseAsk {
        question: MessageId(1),
        number,
        conditions: ChangeConditions::default(),
        request_id: None,
    };
    let store = &conversation.app.store;
    store
        .choose_alternative(CALLER, id(conversation), &ask, &[])
        .await
}

async fn holds(conversation: &TestConversation<'_>, lease: &ModelLease) -> bool {
    let renewed = conversation.app.store.renew_call(lease).await;
    renewed.expect("answers")
}

async fn texts(conversation: &TestConversation<'_>) -> Vec<String> {
    let texts = conversation.texts_by_role().await;
    texts.into_iter().map(|(_, text)| text).collect()
}

#[tokio::test]
async fn the_turn_that_answers_anew_goes_on_and_any_other_change_ends_it() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let lease = admit(&conversation).await;
    let anew = begin(&conversation, "r", &lease).await.expect("begins");
    let anew = anew.expect("holds its lease");
    assert_eq!((anew.alternatives, anew.replayed), (1, false));
    assert_eq!(anew.question.len(), 1);
    assert!(holds(&conversation, &lease).await);
    assert_eq!(texts(&conversation).await, ["a"]);
    withdraw(&conversation, one(1)).await.expect("withdraws");
    assert!(!holds(&conversation, &lease).await);
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_turn_that_has_lost_its_lease_changes_nothing() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    conversation.append("c").await;
    let lease = admit(&conversation).await;
    withdraw(&conversation, one(3)).await.expect("withdraws");
    let before = conversation.conversation().await.etag;
    for _ in 0..2 {
        let begun = begin(&conversation, "r", &lease).await.expect("answers");
        assert_eq!(begun, None);
    }
    assert_eq!(conversation.conversation().await.etag, before);
    assert_eq!(texts(&conversation).await, ["a", "b"]);
    let other = admit(&conversation).await;
    let begun = begin(&conversation, "r", &other).await.expect("begins");
    assert!(begun.is_some_and(|anew| !anew.replayed));
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn of_two_calls_with_one_request_id_one_withdraws() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let lease = admit(&conversation).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (first, second) = run_in_order(
        &app,
        held,
        begin(&conversation, "r", &lease),
        begin(&conversation, "r", &lease),
    )
    .await;
    let first = first.expect("begins").expect("holds its lease");
    let second = second.expect("begins").expect("holds its lease");
    assert_eq!((first.replayed, second.replayed), (false, true));
    assert_eq!(
        (first.change_id, &first.question, first.alternatives),
        (second.change_id, &second.question, second.alternatives)
    );
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn an_append_that_comes_before_is_withdrawn_with_the_answer() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let lease = admit(&conversation).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (appended, begun) = run_in_order(
        &app,
        held,
        conversation.append_all(vec![assistant("c")]).send(),
        begin(&conversation, "r", &lease),
    )
    .await;
    appended.expect("appends");
    begun.expect("begins").expect("holds its lease");
    assert_eq!(texts(&conversation).await, ["a"]);
    let restored = choose(&conversation, 1).await.expect("chooses");
    assert_eq!(restored.changed, [range(2, 3)]);
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn an_append_that_comes_after_stands_beside_the_question() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let lease = admit(&conversation).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (begun, appended) = run_in_order(
        &app,
        held,
        begin(&conversation, "r", &lease),
        conversation.append("c").send(),
    )
    .await;
    begun.expect("begins").expect("holds its lease");
    appended.expect("appends");
    assert_eq!(texts(&conversation).await, ["a", "c"]);
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_choice_that_comes_after_a_rewind_restores_and_ends_the_turn() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let lease = admit(&conversation).await;
    begin(&conversation, "r", &lease).await.expect("begins");
    conversation.append("c").await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (rewound, chosen) = run_in_order(
        &app,
        held,
        withdraw(&conversation, ask(Selection::After(MessageId(1)))),
        choose(&conversation, 1),
    )
    .await;
    assert_eq!(rewound.expect("withdraws").changed, [range(3, 3)]);
    assert_eq!(chosen.expect("chooses").changed, [range(2, 2)]);
    assert_eq!(texts(&conversation).await, ["a", "b"]);
    assert!(!holds(&conversation, &lease).await);
    run_jobs_and_verify(&conversation).await;
}
