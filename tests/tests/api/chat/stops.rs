//! Turns that a caller stops: what is kept of the answer, what a repetition gets, and how soon the
//! model's call ends.

use std::time::{Duration, Instant};

use anneal_core::{
    admission::{CallLimits, CallPurpose},
    caller::{Caller, ConversationId, TenantId},
    tokens::Tokens,
};
use anneal_llm::provider::Api;
use anneal_store::{CallAsk, ModelLease, StopAsk, StopMode};
use anneal_testkit::{
    Gate, MODEL, Say, Script, ScriptedModel, TestApp, TestConversation, TurnOutcome,
    assert_refused, eventually, pb, read_until_text, user,
};
use pb::{CancelOutcome, StopReason, chat_response::Event};
use tonic::{Code, Streaming};

const CALLER: Caller = Caller::of(TenantId::DEFAULT);

/// A model that says this text in OpenAI's protocol, and then nothing more, without an end.
async fn model_that_stalls(text: &'static str) -> ScriptedModel {
    // The role is the first event, the text is the second.
    ScriptedModel::start(move |request| Script::says(request, [Say::text(text)]).hanging_after(2))
        .await
}

/// Starts the turn `r` and reads it until this text has come.
async fn begin_turn(
    conversation: &TestConversation<'_>,
    text: &str,
) -> Streaming<pb::ChatResponse> {
    let turn = conversation.chat("Tell me.").request_id("r");
    let mut stream = turn.open().await.expect("begins");
    read_until_text(&mut stream, text).await;
    stream
}

/// Counts the leases of model calls. A running turn has one.
async fn count_leases(app: &TestApp) -> i64 {
    sqlx::query_scalar("select count(*) from ai_model_lease")
        .fetch_one(&mut app.db().await)
        .await
        .expect("counts")
}

#[tokio::test]
async fn what_has_come_of_a_stopped_answer_is_an_answer() {
    let model = model_that_stalls(" Once upon a time\n").await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    let stream = begin_turn(&conversation, " Once upon a time\n").await;
    let began = Instant::now();
    let cancelled = conversation.cancel_turn("r", None).await;
    model.wait_for_closed_calls(1).await;
    assert!(began.elapsed() < Duration::from_secs(1), "the call goes on");
    assert_eq!(
        (cancelled.outcome(), cancelled.answer_message_id),
        (CancelOutcome::Kept, 2)
    );
    assert_eq!(cancelled.turn_request_id, "r");
    let outcome = TurnOutcome::read(stream).await;
    let done = outcome.done();
    assert!(done.stopped && !done.replayed, "{done:?}");
    assert_eq!(
        (
            done.stop_reason(),
            &done.message_ids[..],
            done.answer_message_id
        ),
        (StopReason::Stopped, &[1, 2][..], 2)
    );
    let messages = conversation.messages().await;
    assert_eq!(
        messages
            .iter()
            .map(|message| message.stopped)
            .collect::<Vec<_>>(),
        [false, true]
    );
    assert_eq!(
        conversation.texts_by_role().await[1].1,
        " Once upon a time\n",
        "the text is stored as it came"
    );
    assert_eq!(count_leases(&app).await, 0);
    let again = conversation.chat("Tell me.").request_id("r").await;
    assert!(again.done().stopped && again.done().replayed);
    assert_eq!(
        (again.text().as_str(), again.done().stop_reason()),
        (" Once upon a time\n", StopReason::Stopped)
    );
    assert_eq!(model.requests().len(), 1, "a repetition calls no model");
    let next = conversation.context().await;
    assert!(next.text().contains("Once upon a time"));
}

#[tokio::test]
async fn a_stop_that_drops_leaves_the_question_and_a_repetition_calls_no_model() {
    let model = model_that_stalls("Once").await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    let stream = begin_turn(&conversation, "Once").await;
    let cancelled = conversation.cancel_turn("", Some(false)).await;
    assert_eq!(
        (cancelled.outcome(), cancelled.answer_message_id),
        (CancelOutcome::Dropped, 0)
    );
    let done = TurnOutcome::read(stream).await.done().clone();
    assert!(done.stopped, "{done:?}");
    assert_eq!(
        (&done.message_ids[..], done.answer_message_id),
        (&[1][..], 0)
    );
    assert_eq!(conversation.messages().await.len(), 1);
    let again = conversation.chat("Tell me.").request_id("r").await;
    let done = again.done();
    assert!(done.stopped && done.replayed && again.text().is_empty());
    assert_eq!(
        (&done.message_ids[..], done.answer_message_id),
        (&[1][..], 0)
    );
    assert_eq!(model.requests().len(), 1);
    let named = conversation.cancel_turn("r", None).await;
    assert_eq!(named.outcome(), CancelOutcome::Dropped);
}

#[tokio::test]
async fn nothing_is_kept_of_reasoning_blanks_and_half_a_call() {
    // Anthropic's answers begin with two events before the first block.
    let scripts: [fn(&anneal_testkit::ModelRequest) -> Script; 4] = [
        |_| Script::hang(),
        |request| {
            let says = [
                Say::thought("hm"),
                Say::Signature("s".into()),
                Say::text("x"),
            ];
            Script::says(request, says).hanging_after(6)
        },
        |request| Script::says(request, [Say::text(" \n")]).hanging_after(4),
        |request| Script::says(request, [Say::tool("t", "look", "{\"a\":1}")]).hanging_after(5),
    ];
    let model = ScriptedModel::start(move |request| scripts[request.nth](request)).await;
    let app = TestApp::with_models(model.settings_of(Api::Anthropic, &[MODEL]), MODEL).await;
    for nth in 1..=4 {
        let conversation = app.conversation().await;
        let turn = conversation.chat("Tell me.").request_id("r");
        let stream = turn.open().await.expect("begins");
        model.wait_for_calls(nth).await;
        let cancelled = conversation.cancel_turn("r", Some(true)).await;
        assert_eq!(cancelled.outcome(), CancelOutcome::Dropped, "{nth}");
        assert!(TurnOutcome::read(stream).await.done().stopped, "{nth}");
        assert_eq!(conversation.messages().await.len(), 1, "{nth}");
    }
}

/// A model that calls a tool completely, and then says nothing more.
async fn model_that_stalls_after_a_call() -> ScriptedModel {
    ScriptedModel::start(|request| {
        let call = Say::tool("t", "look", "{\"a\":1}");
        // Two events of the message, and four of the call.
        Script::says(request, [call, Say::text("x")]).hanging_after(6)
    })
    .await
}

#[tokio::test]
async fn a_complete_call_is_kept_and_the_next_context_answers_it() {
    let model = model_that_stalls_after_a_call().await;
    let app = TestApp::with_models(model.settings_of(Api::Anthropic, &[MODEL]), MODEL).await;
    let conversation = app.conversation().await;
    let mut stream = conversation
        .chat("Look.")
        .request_id("r")
        .open()
        .await
        .expect("begins");
    loop {
        let response = stream.message().await.expect("goes on").expect("goes on");
        if let Some(Event::ToolCall(call)) = response.event {
            assert_eq!(call.input, "{\"a\":1}");
            break;
        }
    }
    let cancelled = conversation.cancel_turn("r", None).await;
    assert_eq!(cancelled.outcome(), CancelOutcome::Kept);
    assert!(TurnOutcome::read(stream).await.done().stopped);
    for format in [
        pb::Format::OpenaiChat,
        pb::Format::AnthropicMessages,
        pb::Format::GeminiContents,
    ] {
        let ask = pb::BuildContextRequest {
            conversation_id: conversation.id.clone(),
            format: format.into(),
            current_input: vec![user("And?")],
            ..Default::default()
        };
        let built = conversation.build(ask).await.expect("builds");
        anneal_testkit::Rendered::read(&built, format).expect("the provider accepts it");
    }
}

#[tokio::test]
async fn a_call_is_dropped_in_a_conversation_that_keeps_no_tool_messages() {
    let model = model_that_stalls_after_a_call().await;
    let app = TestApp::with_models(model.settings_of(Api::Anthropic, &[MODEL]), MODEL).await;
    let policy = pb::Policy {
        store_tool_messages: Some(false),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    let mut stream = conversation
        .chat("Look.")
        .request_id("r")
        .open()
        .await
        .expect("begins");
    loop {
        let response = stream.message().await.expect("goes on").expect("goes on");
        if matches!(response.event, Some(Event::ToolCall(_))) {
            break;
        }
    }
    let cancelled = conversation.cancel_turn("r", None).await;
    assert_eq!(cancelled.outcome(), CancelOutcome::Dropped);
    assert!(TurnOutcome::read(stream).await.done().stopped);
    assert_eq!(conversation.messages().await.len(), 1);
}

#[tokio::test]
async fn the_policy_says_what_is_kept_unless_the_call_does() {
    let model = model_that_stalls("Once").await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    for (keep, outcome) in [
        (None, CancelOutcome::Dropped),
        (Some(true), CancelOutcome::Kept),
    ] {
        let policy = pb::Policy {
            keep_partial: Some(false),
            ..Default::default()
        };
        let conversation = app.conversation_with_policy(policy).await;
        let stream = begin_turn(&conversation, "Once").await;
        assert_eq!(conversation.cancel_turn("r", keep).await.outcome(), outcome);
        TurnOutcome::read(stream).await.done();
    }
}

#[tokio::test]
async fn a_turn_that_is_not_under_way_is_described_by_its_end() {
    let model = ScriptedModel::saying("All of it.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let none = pb::CancelTurnResponse {
        outcome: CancelOutcome::NotRunning.into(),
        ..Default::default()
    };
    assert_eq!(conversation.cancel_turn("", None).await, none);
    assert_eq!(conversation.cancel_turn("r", None).await, none);
    conversation.chat("Tell me.").request_id("r").await.done();
    assert_eq!(conversation.cancel_turn("", None).await, none);
    let answered = conversation.cancel_turn("r", None).await;
    assert_eq!(
        (answered.outcome(), answered.answer_message_id),
        (CancelOutcome::Answered, 2)
    );
    let ask = pb::CancelTurnRequest {
        conversation_id: conversation.id.clone(),
        wait: Some(prost_types::Duration {
            seconds: 31,
            nanos: 0,
        }),
        ..Default::default()
    };
    let refused = app.chats().cancel_turn(ask).await;
    assert_refused(refused, Code::InvalidArgument, "LIMIT_EXCEEDED", "wait");
}

#[tokio::test]
async fn two_stops_at_once_have_the_same_outcome() {
    let model = model_that_stalls("Once").await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    let stream = begin_turn(&conversation, "Once").await;
    let (one, two) = tokio::join!(
        conversation.cancel_turn("r", None),
        conversation.cancel_turn("", None)
    );
    assert_eq!(one.outcome(), CancelOutcome::Kept);
    // The second one may have come after the end, and has named no turn.
    assert!(
        [CancelOutcome::Kept, CancelOutcome::NotRunning].contains(&two.outcome()),
        "{two:?}"
    );
    TurnOutcome::read(stream).await.done();
    assert_eq!(conversation.messages().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_at_another_server_ends_the_turn_within_a_second() {
    let model = model_that_stalls("Once").await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let other = app.second_server().await;
    let conversation = app.conversation().await;
    let stream = begin_turn(&conversation, "Once").await;
    let began = Instant::now();
    let there = other.conversation_by_id(&conversation.id);
    let cancelled = there.cancel_turn("r", None).await;
    model.wait_for_closed_calls(1).await;
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(cancelled.outcome(), CancelOutcome::Kept);
    assert!(TurnOutcome::read(stream).await.done().stopped);
}

#[tokio::test]
async fn a_stop_that_comes_while_the_answer_is_stored_is_too_late() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, [Say::text("Whole.")]).after(&gate)
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    let turn = conversation.chat("Tell me.").request_id("r");
    let stream = turn.open().await.expect("begins");
    model.wait_for_calls(1).await;
    let held = app
        .hold_lock(anneal_testkit::LOCK_CONVERSATION, conversation.uuid())
        .await;
    gate.open_for_ever();
    // The answer waits for the conversation's row.
    app.wait_for_lock_waiters(1).await;
    let (cancelled, ()) = tokio::join!(conversation.cancel_turn("r", Some(false)), held.rollback());
    assert_eq!(
        (cancelled.outcome(), cancelled.answer_message_id),
        (CancelOutcome::Answered, 2)
    );
    let done = TurnOutcome::read(stream).await.done().clone();
    assert!(!done.stopped, "{done:?}");
}

/// Gives a conversation what a server that dies during the turn `r` leaves: a lease, of an hour.
async fn leave_lease(app: &TestApp, conversation: &TestConversation<'_>) {
    let lease = "insert into ai_model_lease
        (tenant_id, conversation_id, lease, model, turn, reserved_tokens, lease_until_ts, request_id)
        select tenant_id, conversation_id, gen_random_uuid(), 'm', true, 0, now() + interval '1 hour', 'r'
        from ai_conversation where conversation_id = $1";
    sqlx::query(lease)
        .bind(conversation.uuid())
        .execute(&mut app.db().await)
        .await
        .expect("a turn");
}

/// Stops the turn `r`. Its lease ends while the caller waits.
async fn cancel_while_the_lease_ends(
    app: &TestApp,
    conversation: &TestConversation<'_>,
) -> pb::CancelTurnResponse {
    let end = async {
        let mut db = app.db().await;
        eventually("the turn is told to stop", async || {
            let count = "select count(*) from ai_model_lease where stop is not null";
            let stops: i64 = sqlx::query_scalar(count)
                .fetch_one(&mut db)
                .await
                .expect("counts");
            stops == 1
        })
        .await;
        sqlx::query("update ai_model_lease set lease_until_ts = now()")
            .execute(&mut db)
            .await
            .expect("the lease ends");
    };
    tokio::join!(conversation.cancel_turn("r", None), end).0
}

#[tokio::test]
async fn a_turn_whose_server_has_died_is_dropped_for_good() {
    let model = ScriptedModel::start(|_| Script::status(500, &[], "{}")).await;
    let app = TestApp::with_scripted_model(&model).await;
    for is_anew in [false, true] {
        let conversation = app.conversation().await;
        let turn = async || {
            let turn = if is_anew {
                conversation.regenerate()
            } else {
                conversation.chat("Tell me.")
            };
            turn.request_id("r").await
        };
        if is_anew {
            conversation.turn("Why?", "It is so.").await;
        }
        assert!(turn().await.end.is_err(), "only the question is stored");
        let calls = model.requests().len();
        leave_lease(&app, &conversation).await;
        let cancelled = cancel_while_the_lease_ends(&app, &conversation).await;
        assert_eq!(
            (cancelled.outcome(), cancelled.turn_request_id.as_str()),
            (CancelOutcome::Dropped, "r"),
            "anew: {is_anew}"
        );
        assert_eq!(count_leases(&app).await, 0);
        let again = turn().await;
        assert!(again.done().stopped && again.done().replayed);
        assert_eq!(model.requests().len(), calls, "no model is called again");
        let named = conversation.cancel_turn("r", None).await;
        assert_eq!(named.outcome(), CancelOutcome::Dropped);
    }
}

#[tokio::test]
async fn a_server_that_was_paused_stores_no_answer_after_its_turn_was_dropped() {
    let model = ScriptedModel::saying("All of it.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let lease = admit(&app, ConversationId(conversation.uuid()), None).await;
    let cancelled = cancel_while_the_lease_ends(&app, &conversation).await;
    assert_eq!(cancelled.outcome(), CancelOutcome::Dropped);
    let renewed = app.store.renew_call(&lease).await.expect("answers");
    assert!(!renewed, "answers are stored under a lease");
    let first = conversation.chat("Tell me.").request_id("r").await;
    assert!(
        !first.done().stopped && !first.done().replayed,
        "not even its question was stored"
    );
}

#[tokio::test]
async fn the_stop_of_a_turn_whose_server_is_dead_waits_for_its_lease() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    leave_lease(&app, &conversation).await;
    let mut db = app.db().await;
    let ask = pb::CancelTurnRequest {
        conversation_id: conversation.id.clone(),
        wait: Some(prost_types::Duration {
            seconds: 0,
            nanos: 200_000_000,
        }),
        ..Default::default()
    };
    let cancelled = app.chats().cancel_turn(ask).await.expect("is answered");
    let cancelled = cancelled.into_inner();
    assert_eq!(
        (cancelled.outcome(), cancelled.turn_request_id.as_str()),
        (CancelOutcome::Pending, "r")
    );
    sqlx::query("update ai_model_lease set lease_until_ts = now()")
        .execute(&mut db)
        .await
        .expect("the lease ends");
    let later = conversation.cancel_turn("r", None).await;
    assert_eq!(later.outcome(), CancelOutcome::NotRunning);
}

/// Admits a call of the turn `r`.
async fn admit(
    app: &TestApp,
    conversation: ConversationId,
    replaces: Option<&ModelLease>,
) -> ModelLease {
    let ask = CallAsk {
        model: MODEL,
        conversation,
        is_stored: true,
        purpose: CallPurpose::Turn,
        tokens: Tokens::new(1),
        limits: CallLimits::default(),
        request_id: Some("r"),
        replaces,
    };
    let admitted = app
        .store
        .admit_call(CALLER, &ask)
        .await
        .expect("is decided");
    admitted.expect("is admitted")
}

#[tokio::test]
async fn a_call_that_takes_over_a_lease_takes_over_its_stop() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let id = ConversationId(conversation.uuid());
    let first = admit(&app, id, None).await;
    assert_eq!(first.requested_stop(), None);
    let mut turns = Vec::new();
    for mode in [StopMode::Drop, StopMode::Keep] {
        let ask = StopAsk {
            turn_request_id: Some("r"),
            mode,
        };
        let stopped = app.store.request_stop(CALLER, id, &ask).await;
        turns.push(stopped.expect("stops").expect("is under way"));
    }
    let second = admit(&app, id, Some(&first)).await;
    assert_eq!(
        second.requested_stop(),
        Some(StopMode::Drop),
        "the stronger stop holds"
    );
    let stops = app.store.find_stops(&[first, second.clone()]).await;
    assert_eq!(stops.expect("reads"), [(second.id(), StopMode::Drop)]);
    assert!(
        app.store
            .is_running(CALLER, &turns[0])
            .await
            .expect("reads"),
        "the turn goes on under another lease"
    );
    sqlx::query("delete from ai_model_lease")
        .execute(&mut app.db().await)
        .await
        .expect("the turn ends");
    assert!(
        !app.store
            .is_running(CALLER, &turns[0])
            .await
            .expect("reads")
    );
}

#[tokio::test]
async fn a_stop_that_waits_for_a_takeover_stops_the_call_that_takes_over() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let id = ConversationId(conversation.uuid());
    let first = admit(&app, id, None).await;
    let ended = "insert into ai_model_lease
        (tenant_id, conversation_id, lease, model, turn, reserved_tokens, lease_until_ts)
        select tenant_id, conversation_id, gen_random_uuid(), 'm', false, 0, now() - interval '1 hour'
        from ai_conversation";
    sqlx::query(ended)
        .execute(&mut app.db().await)
        .await
        .expect("a lease that has ended");
    // An admission deletes such leases after the one that it takes over.
    let lock = "select from ai_model_lease where conversation_id = $1 and not turn for update";
    let held = app.hold_lock(lock, conversation.uuid()).await;
    let stop = async {
        app.wait_for_lock_waiters(1).await;
        let ask = StopAsk {
            turn_request_id: Some("r"),
            mode: StopMode::Keep,
        };
        let release = async {
            app.wait_for_lock_waiters(2).await;
            held.rollback().await;
        };
        let (stopped, ()) = tokio::join!(app.store.request_stop(CALLER, id, &ask), release);
        stopped.expect("stops")
    };
    let (second, stopped) = tokio::join!(admit(&app, id, Some(&first)), stop);
    let stopped = stopped.expect("the turn is under way");
    assert_eq!(stopped.lease, second.id());
    let stops = app.store.find_stops(std::slice::from_ref(&second)).await;
    assert_eq!(stops.expect("reads"), [(second.id(), StopMode::Keep)]);
}
