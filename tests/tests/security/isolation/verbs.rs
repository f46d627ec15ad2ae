//! A credential gives no more than its verbs: a caller with `read` alone (a reader) changes
//! nothing, and a caller with `append` alone (an appender) receives no content of others. Two more
//! tests are about what the service learns about models (table `ai_model`): it forgets a window
//! that a call exceeds, and it stores a limited number of models.

use std::collections::HashMap;

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, ServerSettings};
use anneal_testkit::{
    AuthorizedChannel, HttpResponse, TestApp, assert_refused, assistant, pb, prose, user,
};
use pb::{
    Pressure, chat_service_client::ChatServiceClient, context_service_client::ContextServiceClient,
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use serde_json::json;
use sqlx::{AssertSqlSafe, Row as _};
use tonic::{Code, Status};

const READ: &[Verb] = &[Verb::Read];
const APPEND: &[Verb] = &[Verb::Append];
const BOTH: &[Verb] = &[Verb::Read, Verb::Append];
/// Part of every text that an appender must not receive.
const SECRET: &str = "xylophone";

async fn start_with_keys() -> TestApp {
    TestApp::with_auth(
        ServerSettings::default(),
        AuthSettings {
            api_keys: true,
            ..Default::default()
        },
    )
    .await
}

/// Creates a key of anna with these verbs. Returns a channel with this key.
async fn channel_with_verbs(app: &TestApp, verbs: &[Verb]) -> AuthorizedChannel {
    app.authorized_channel(&format!("Bearer {}", app.key("anna", verbs).await.text))
}

/// Creates a conversation of anna with a title, a system prompt, a label and 12 long messages.
async fn create_conversation(app: &TestApp) -> String {
    let channel = channel_with_verbs(app, BOTH).await;
    let made = ConversationServiceClient::new(channel.clone())
        .create_conversation(defaults())
        .await
        .expect("creates");
    let conversation_id = made.into_inner().conversation_id;
    let messages = (0..12)
        .map(|n| user(&format!("{SECRET} {}", prose(n * 40, 20))))
        .collect();
    let ask = pb::AppendMessagesRequest {
        conversation_id: conversation_id.clone(),
        messages,
        ..Default::default()
    };
    MessageServiceClient::new(channel)
        .append_messages(ask)
        .await
        .expect("appends");
    app.run_jobs_until_idle().await;
    conversation_id
}

/// A request for a conversation, also used as the `defaults` of a session. Title, system prompt and
/// label contain [`SECRET`].
fn defaults() -> pb::CreateConversationRequest {
    pb::CreateConversationRequest {
        title: format!("the {SECRET}"),
        system_prompt: format!("You play the {SECRET}."),
        metadata: HashMap::from([("instrument".to_owned(), SECRET.to_owned())]),
        ..Default::default()
    }
}

fn build(conversation_id: &str) -> pb::BuildContextRequest {
    pb::BuildContextRequest {
        conversation_id: conversation_id.to_owned(),
        ..Default::default()
    }
}

/// The integer that this statement selects.
async fn select_number(app: &TestApp, sql: &str) -> i64 {
    let row = sqlx::query(AssertSqlSafe(sql.to_owned()))
        .fetch_one(&mut app.db().await)
        .await
        .expect("the query succeeds");
    row.get(0)
}

/// Asserts that the call was refused because this verb is missing.
fn assert_lacks<T: std::fmt::Debug>(outcome: Result<T, Status>, verb: &str) {
    let status = outcome.expect_err("is refused");
    assert!(
        status
            .message()
            .ends_with(&format!("lacks the verb {verb}")),
        "{status:?}"
    );
    assert_refused::<()>(Err(status), Code::PermissionDenied, "VERB_MISSING", "");
}

#[tokio::test]
async fn a_reader_cannot_queue_a_compaction() {
    const JOBS: &str = "select count(*) from ai_job";
    let app = start_with_keys().await;
    let id = create_conversation(&app).await;
    let mut reader = ContextServiceClient::new(channel_with_verbs(&app, READ).await);
    let under = |pressure: Pressure| pb::BuildContextRequest {
        pressure: pressure.into(),
        ..build(&id)
    };
    assert_lacks(
        reader.build_context(under(Pressure::Compact)).await,
        "append",
    );
    assert_lacks(
        reader
            .stream_context(under(Pressure::Compact))
            .await
            .map(|_| ()),
        "append",
    );
    // The verb is checked before the conversation is looked up.
    let missing = build(&uuid::Uuid::new_v4().to_string());
    assert_lacks(
        reader
            .build_context(pb::BuildContextRequest {
                pressure: Pressure::Compact.into(),
                ..missing
            })
            .await,
        "append",
    );
    reader
        .build_context(under(Pressure::TruncateToolResults))
        .await
        .expect("builds");
    let dry_run = pb::BuildContextRequest {
        dry_run: true,
        ..under(Pressure::Compact)
    };
    reader.build_context(dry_run).await.expect("builds");
    assert_eq!(select_number(&app, JOBS).await, 0);
    let mut both = ContextServiceClient::new(channel_with_verbs(&app, BOTH).await);
    both.build_context(under(Pressure::Compact))
        .await
        .expect("builds");
    assert_eq!(
        select_number(&app, JOBS).await,
        1,
        "a caller with the verb append queues a job"
    );
}

#[tokio::test]
async fn a_context_with_a_readers_own_prompt_records_no_version_of_the_prefix() {
    const VERSIONS: &str = "select count(*) from ai_context_prefix";
    let app = start_with_keys().await;
    let id = create_conversation(&app).await;
    let mut reader = ContextServiceClient::new(channel_with_verbs(&app, READ).await);
    let mut both = ContextServiceClient::new(channel_with_verbs(&app, BOTH).await);
    reader.build_context(build(&id)).await.expect("builds");
    assert_eq!(
        select_number(&app, VERSIONS).await,
        1,
        "the context with the stored prompt records the first version"
    );
    let prompted = pb::BuildContextRequest {
        system_prompt: Some("Another.".into()),
        ..build(&id)
    };
    let with_model = pb::BuildContextRequest {
        model: "gpt-4".into(),
        ..prompted.clone()
    };
    for ask in [&prompted, &with_model] {
        let built = reader
            .build_context(ask.clone())
            .await
            .expect("builds")
            .into_inner();
        assert!(
            built.cache_break.is_some(),
            "the answer reports that the reader's own prompt breaks the cache"
        );
    }
    assert_eq!(select_number(&app, VERSIONS).await, 1);
    let after = both
        .build_context(build(&id))
        .await
        .expect("builds")
        .into_inner();
    assert_eq!(
        after.cache_break, None,
        "the recorded version is still that of the stored prompt"
    );
    both.build_context(prompted).await.expect("builds");
    assert_eq!(select_number(&app, VERSIONS).await, 2);
}

/// A request to classify a context overflow that names this window.
fn overflow(model: &str, window: u32) -> pb::ClassifyErrorRequest {
    let body = format!(
        r#"{{"error":{{"code":"context_length_exceeded","message":"too long","n_ctx":{window}}}}}"#
    );
    pb::ClassifyErrorRequest {
        status: 400,
        body: body.into(),
        model: model.into(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_reader_changes_nothing_that_is_learned_about_models() {
    let app = start_with_keys().await;
    let mut reader = ContextServiceClient::new(channel_with_verbs(&app, READ).await);
    let verdict = reader
        .classify_error(overflow("gpt-5", 1_000))
        .await
        .expect("classifies")
        .into_inner();
    assert_eq!(
        (verdict.is_overflow, verdict.limit_tokens),
        (true, Some(1_000)),
        "the answer is complete"
    );
    assert_eq!(
        select_number(&app, "select count(*) from ai_model").await,
        0
    );
    let mut both = ContextServiceClient::new(channel_with_verbs(&app, BOTH).await);
    both.classify_error(overflow("gpt-5", 1_000))
        .await
        .expect("classifies");
    assert_eq!(
        select_number(
            &app,
            "select window_tokens from ai_model where model = 'gpt-5'"
        )
        .await,
        1_000
    );
}

#[tokio::test]
async fn a_learned_window_that_a_call_exceeds_is_forgotten() {
    const WINDOW: &str = "select coalesce(window_tokens, 0) from ai_model where model = 'gpt-5'";
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    app.contexts()
        .classify_error(overflow("gpt-5", 1_000))
        .await
        .expect("classifies");
    for (input_tokens, window) in [(1_000, 1_000), (1_001, 0), (900, 0)] {
        let conversation_id = conversation.id.clone();
        let ask = pb::ReportUsageRequest {
            conversation_id,
            model: "gpt-5".into(),
            input_tokens,
            ..Default::default()
        };
        app.contexts().report_usage(ask).await.expect("is accepted");
        assert_eq!(
            select_number(&app, WINDOW).await,
            window,
            "after a call of {input_tokens}"
        );
    }
}

#[tokio::test]
async fn unknown_model_names_do_not_fill_ai_model() {
    const MODELS: &str = "select count(*) from ai_model";
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    app.contexts()
        .classify_error(overflow("gpt-5", 1_000))
        .await
        .expect("classifies");
    // With these the tenant has 1,000 models, the most that are stored.
    let fill = "insert into ai_model (tenant_id, model) select m.tenant_id, 'm' || n
        from ai_model as m, generate_series(1, 999) as n";
    sqlx::raw_sql(fill)
        .execute(&mut app.db().await)
        .await
        .expect("fills");
    app.contexts()
        .classify_error(overflow("another", 1_000))
        .await
        .expect("classifies");
    let report = |model: &str| {
        let (conversation_id, model) = (conversation.id.clone(), model.to_owned());
        pb::ReportUsageRequest {
            conversation_id,
            model,
            input_tokens: 1_500,
            context_tokens: 1_000,
            ..Default::default()
        }
    };
    let reported = app
        .contexts()
        .report_usage(report("another"))
        .await
        .expect("is accepted")
        .into_inner();
    assert_eq!(
        (reported.reports, select_number(&app, MODELS).await),
        (0, 1_000)
    );
    let known = app
        .contexts()
        .report_usage(report("m7"))
        .await
        .expect("is accepted")
        .into_inner();
    assert_eq!(known.reports, 1, "reports of a known model are stored");
}

/// Resolves and rotates a session. Returns the answers that the appender received.
async fn resolve_and_rotate_session(
    appender: &mut ConversationServiceClient<AuthorizedChannel>,
    both: &mut ConversationServiceClient<AuthorizedChannel>,
) -> Vec<String> {
    let scope = pb::SessionScope {
        agent_id: "a".into(),
        chat_type: "dm".into(),
        sender_id: "s".into(),
        ..Default::default()
    };
    let resolve = |defaults| pb::ResolveSessionRequest {
        scope: Some(scope.clone()),
        defaults,
        ..Default::default()
    };
    let created = both
        .resolve_session(resolve(Some(defaults())))
        .await
        .expect("resolves")
        .into_inner();
    assert!(format!("{created:?}").contains(SECRET));
    let resolved = format!(
        "{:?}",
        appender
            .resolve_session(resolve(None))
            .await
            .expect("resolves")
            .into_inner()
    );
    let rotate = pb::RotateSessionRequest {
        scope: Some(scope.clone()),
        ..Default::default()
    };
    let rotated = format!(
        "{:?}",
        appender
            .rotate_session(rotate)
            .await
            .expect("rotates")
            .into_inner()
    );
    vec![resolved, rotated]
}

/// Withdraws, restores and edits the first message with this channel. Returns what the caller
/// receives.
async fn change_messages(channel: AuthorizedChannel, id: &str) -> Vec<String> {
    let mut changer = MessageServiceClient::new(channel);
    let ask = pb::WithdrawMessagesRequest {
        conversation_id: id.to_owned(),
        message_ids: vec![1],
        ..Default::default()
    };
    let withdrawn = changer.withdraw_messages(ask).await.expect("withdraws");
    let ask = pb::RestoreMessagesRequest {
        conversation_id: id.to_owned(),
        message_ids: vec![1],
        ..Default::default()
    };
    let restored = changer.restore_messages(ask).await.expect("restores");
    let edit = |message: pb::NewMessage| pb::EditMessageRequest {
        conversation_id: id.to_owned(),
        message_id: 1,
        message: Some(message),
        ..Default::default()
    };
    let refused = changer.edit_message(edit(assistant("mine"))).await;
    let refused = refused.expect_err("the message has another role");
    let edited = changer.edit_message(edit(user("mine"))).await;
    vec![
        format!("{withdrawn:?}"),
        format!("{restored:?}"),
        format!("{refused:?}"),
        format!("{:?}", edited.expect("edits")),
    ]
}

#[tokio::test]
async fn an_appender_receives_no_content_of_others() {
    let app = start_with_keys().await;
    let id = create_conversation(&app).await;
    let (append_channel, both_channel) = (
        channel_with_verbs(&app, APPEND).await,
        channel_with_verbs(&app, BOTH).await,
    );
    let (mut appender, mut both) = (
        ConversationServiceClient::new(append_channel.clone()),
        ConversationServiceClient::new(both_channel.clone()),
    );
    let mut received = Vec::new();
    let change = |paths: &[&str], new: pb::Conversation| pb::UpdateConversationRequest {
        conversation: Some(pb::Conversation {
            conversation_id: id.clone(),
            ..new
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        }),
        ..Default::default()
    };
    let pinned = change(
        &["pinned"],
        pb::Conversation {
            pinned: true,
            ..Default::default()
        },
    );
    received.push(format!(
        "{:?}",
        appender
            .update_conversation(pinned.clone())
            .await
            .expect("changes")
            .into_inner()
    ));
    let full_answer = both
        .update_conversation(pinned)
        .await
        .expect("changes")
        .into_inner();
    assert!(
        full_answer.title.contains(SECRET)
            && full_answer.system_prompt.contains(SECRET)
            && !full_answer.metadata.is_empty()
    );
    let titled = change(
        &["title"],
        pb::Conversation {
            title: "mine".into(),
            ..Default::default()
        },
    );
    let reduced_answer = appender
        .update_conversation(titled)
        .await
        .expect("changes")
        .into_inner();
    assert_eq!(
        (reduced_answer.title.as_str(), reduced_answer.message_count),
        ("mine", 12),
        "the appender receives the field that it has changed"
    );
    received.push(format!("{reduced_answer:?}"));
    received.extend(resolve_and_rotate_session(&mut appender, &mut both).await);
    let fork = pb::ForkConversationRequest {
        conversation_id: id.clone(),
        ..Default::default()
    };
    let forked = appender.fork_conversation(fork).await.expect("forks");
    assert_eq!(forked.get_ref().message_count, 12);
    received.push(format!("{forked:?}"));
    received.extend(change_messages(append_channel.clone(), &id).await);
    let mut compactor = ContextServiceClient::new(append_channel);
    let ask = pb::CompactRequest {
        conversation_id: id.clone(),
        request_id: "r".into(),
        ..Default::default()
    };
    compactor.compact(ask.clone()).await.expect("queues");
    app.run_jobs_until_idle().await;
    let done = compactor
        .compact(ask.clone())
        .await
        .expect("is done")
        .into_inner();
    assert_eq!(done.outcome(), pb::CompactOutcome::Created);
    assert!(
        done.checkpoint
            .as_ref()
            .is_some_and(|made| made.last_message_id > 0)
    );
    received.push(format!("{done:?}"));
    let readable = ContextServiceClient::new(both_channel)
        .compact(ask)
        .await
        .expect("is done")
        .into_inner();
    assert!(
        !readable
            .checkpoint
            .expect("there is one")
            .summary
            .is_empty(),
        "a caller with read receives the summary"
    );
    assert!(done.checkpoint.expect("there is one").summary.is_empty());
    for answer in received {
        assert!(!answer.contains(SECRET), "{answer}");
    }
}

#[tokio::test]
async fn a_turn_needs_append_and_read() {
    let app = start_with_keys().await;
    let id = create_conversation(&app).await;
    let ask = || pb::ChatRequest {
        conversation_id: id.clone(),
        messages: vec![user("Hello?")],
        ..Default::default()
    };
    let turn = async |verbs| {
        ChatServiceClient::new(channel_with_verbs(&app, verbs).await)
            .chat(ask())
            .await
            .map(|_| ())
    };
    assert_lacks(turn(APPEND).await, "read");
    assert_lacks(turn(READ).await, "append");
    // With both verbs the turn is refused only because no model is configured.
    for (verbs, status) in [(APPEND, 403), (READ, 403), (BOTH, 422)] {
        let key = app.key("anna", verbs).await.text;
        let asked =
            app.http_client()
                .json("POST", "/api/agents/a/chat", &json!({"message": "Hello?"}));
        let answered =
            HttpResponse::send(asked.header("authorization", format!("Bearer {key}"))).await;
        let reason = if status == 403 {
            "VERB_MISSING"
        } else {
            "MODEL_NOT_CONFIGURED"
        };
        answered.assert_problem(status, reason, "");
    }
}
