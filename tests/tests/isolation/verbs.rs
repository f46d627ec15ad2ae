//! What a credential with some of the verbs may not do by the back door: write by reading, read by writing.

use std::collections::HashMap;

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, ServerSettings};
use anneal_tests::{Answered, Guest, House, assert_refused, pb, prose, user};
use pb::{
    Pressure, chat_service_client::ChatServiceClient, context_service_client::ContextServiceClient,
    conversation_service_client::ConversationServiceClient, message_service_client::MessageServiceClient,
};
use serde_json::json;
use sqlx::{AssertSqlSafe, Row as _};
use tonic::{Code, Status};

const READ: &[Verb] = &[Verb::Read];
const APPEND: &[Verb] = &[Verb::Append];
const BOTH: &[Verb] = &[Verb::Read, Verb::Append];
/// Part of everything that one caller says and another must not hear.
const SECRET: &str = "xylophone";

async fn with_keys() -> House {
    House::guarded(ServerSettings::default(), AuthSettings { api_keys: true, ..Default::default() }).await
}

/// Somebody of anna's with these verbs.
async fn who_may(house: &House, verbs: &[Verb]) -> Guest {
    house.showing(&format!("Bearer {}", house.key("anna", verbs).await.text))
}

/// A conversation of anna's with a title, a system prompt, a label and some long messages.
async fn conversation(house: &House) -> String {
    let guest = who_may(house, BOTH).await;
    let made = ConversationServiceClient::new(guest.clone()).create_conversation(beginning()).await.expect("creates");
    let conversation_id = made.into_inner().conversation_id;
    let messages = (0..12).map(|n| user(&format!("{SECRET} {}", prose(n * 40, 20)))).collect();
    let ask = pb::AppendMessagesRequest { conversation_id: conversation_id.clone(), messages, ..Default::default() };
    MessageServiceClient::new(guest).append_messages(ask).await.expect("appends");
    house.run_jobs_until_idle().await;
    conversation_id
}

fn beginning() -> pb::CreateConversationRequest {
    pb::CreateConversationRequest {
        title: format!("the {SECRET}"),
        system_prompt: format!("You play the {SECRET}."),
        metadata: HashMap::from([("instrument".to_owned(), SECRET.to_owned())]),
        ..Default::default()
    }
}

fn build(conversation_id: &str) -> pb::BuildContextRequest {
    pb::BuildContextRequest { conversation_id: conversation_id.to_owned(), ..Default::default() }
}

/// A number that the database knows.
async fn number(house: &House, sql: &str) -> i64 {
    let row = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_one(&mut house.db().await).await.expect("asks");
    row.get(0)
}

fn lacks<T: std::fmt::Debug>(outcome: Result<T, Status>, verb: &str) {
    let status = outcome.expect_err("is refused");
    assert!(status.message().ends_with(&format!("lacks the verb {verb}")), "{status:?}");
    assert_refused::<()>(Err(status), Code::PermissionDenied, "VERB_MISSING", "");
}

#[tokio::test]
async fn who_may_only_read_queues_no_compaction() {
    const JOBS: &str = "select count(*) from ai_job";
    let house = with_keys().await;
    let id = conversation(&house).await;
    let mut reader = ContextServiceClient::new(who_may(&house, READ).await);
    let under = |pressure: Pressure| pb::BuildContextRequest { pressure: pressure.into(), ..build(&id) };
    lacks(reader.build_context(under(Pressure::Compact)).await, "append");
    lacks(reader.stream_context(under(Pressure::Compact)).await.map(|_| ()), "append");
    let missing = build(&uuid::Uuid::new_v4().to_string());
    lacks(reader.build_context(pb::BuildContextRequest { pressure: 2, ..missing }).await, "append");
    reader.build_context(under(Pressure::TruncateToolResults)).await.expect("builds");
    let look = pb::BuildContextRequest { dry_run: true, ..under(Pressure::Compact) };
    reader.build_context(look).await.expect("builds");
    assert_eq!(number(&house, JOBS).await, 0);
    let mut both = ContextServiceClient::new(who_may(&house, BOTH).await);
    both.build_context(under(Pressure::Compact)).await.expect("builds");
    assert_eq!(number(&house, JOBS).await, 1, "who may say so makes one");
}

#[tokio::test]
async fn who_may_only_read_moves_nobodys_cache_by_a_prompt_of_its_own() {
    const VERSIONS: &str = "select count(*) from ai_context_prefix";
    let house = with_keys().await;
    let id = conversation(&house).await;
    let mut reader = ContextServiceClient::new(who_may(&house, READ).await);
    let mut both = ContextServiceClient::new(who_may(&house, BOTH).await);
    reader.build_context(build(&id)).await.expect("builds");
    assert_eq!(number(&house, VERSIONS).await, 1, "what everybody would be sent begins the cache");
    let prompted = pb::BuildContextRequest { system_prompt: Some("Another.".into()), ..build(&id) };
    let modelled = pb::BuildContextRequest { model: "gpt-4".into(), ..prompted.clone() };
    for own in [&prompted, &modelled] {
        let built = reader.build_context(own.clone()).await.expect("builds").into_inner();
        assert!(built.cache_break.is_some(), "it is told what its own prompt costs");
    }
    assert_eq!(number(&house, VERSIONS).await, 1);
    let after = both.build_context(build(&id)).await.expect("builds").into_inner();
    assert_eq!(after.cache_break, None, "the others' cache holds");
    both.build_context(prompted).await.expect("builds");
    assert_eq!(number(&house, VERSIONS).await, 2);
}

/// An error that names a window.
fn overflow(model: &str, window: u32) -> pb::ClassifyErrorRequest {
    let body = format!(r#"{{"error":{{"code":"context_length_exceeded","message":"too long","n_ctx":{window}}}}}"#);
    pb::ClassifyErrorRequest { status: 400, body: body.into(), model: model.into(), ..Default::default() }
}

#[tokio::test]
async fn who_may_only_read_teaches_nothing_of_models() {
    let house = with_keys().await;
    let mut reader = ContextServiceClient::new(who_may(&house, READ).await);
    let verdict = reader.classify_error(overflow("gpt-5", 1_000)).await.expect("classifies").into_inner();
    assert_eq!((verdict.is_overflow, verdict.limit_tokens), (true, Some(1_000)), "it is told all the same");
    assert_eq!(number(&house, "select count(*) from ai_model").await, 0);
    let mut both = ContextServiceClient::new(who_may(&house, BOTH).await);
    both.classify_error(overflow("gpt-5", 1_000)).await.expect("classifies");
    assert_eq!(number(&house, "select window_tokens from ai_model where model = 'gpt-5'").await, 1_000);
}

#[tokio::test]
async fn a_window_that_a_call_went_beyond_is_forgotten() {
    const WINDOW: &str = "select coalesce(window_tokens, 0) from ai_model where model = 'gpt-5'";
    let house = House::start().await;
    let talk = house.conversation().await;
    house.contexts().classify_error(overflow("gpt-5", 1_000)).await.expect("classifies");
    for (input_tokens, window) in [(1_000, 1_000), (1_001, 0), (900, 0)] {
        let conversation_id = talk.id.clone();
        let ask = pb::ReportUsageRequest { conversation_id, model: "gpt-5".into(), input_tokens, ..Default::default() };
        house.contexts().report_usage(ask).await.expect("takes it");
        assert_eq!(number(&house, WINDOW).await, window, "after a call of {input_tokens}");
    }
}

#[tokio::test]
async fn made_up_names_of_models_fill_no_table() {
    const MODELS: &str = "select count(*) from ai_model";
    let house = House::start().await;
    let talk = house.conversation().await;
    house.contexts().classify_error(overflow("gpt-5", 1_000)).await.expect("classifies");
    let fill = "insert into ai_model (tenant_id, model) select m.tenant_id, 'm' || n
        from ai_model as m, generate_series(1, 999) as n";
    sqlx::raw_sql(fill).execute(&mut house.db().await).await.expect("fills");
    house.contexts().classify_error(overflow("another", 1_000)).await.expect("classifies");
    let report = |model: &str| {
        let (conversation_id, model) = (talk.id.clone(), model.to_owned());
        pb::ReportUsageRequest {
            conversation_id,
            model,
            input_tokens: 1_500,
            context_tokens: 1_000,
            ..Default::default()
        }
    };
    let reported = house.contexts().report_usage(report("another")).await.expect("takes it").into_inner();
    assert_eq!((reported.reports, number(&house, MODELS).await), (0, 1_000));
    let known = house.contexts().report_usage(report("m7")).await.expect("takes it").into_inner();
    assert_eq!(known.reports, 1, "of those that are known more is learnt");
}

#[tokio::test]
async fn who_may_only_append_is_told_nothing_that_others_have_said() {
    let house = with_keys().await;
    let id = conversation(&house).await;
    let (writer, both) = (who_may(&house, APPEND).await, who_may(&house, BOTH).await);
    let (mut says, mut knows) =
        (ConversationServiceClient::new(writer.clone()), ConversationServiceClient::new(both.clone()));
    let mut told = Vec::new();
    let change = |paths: &[&str], new: pb::Conversation| pb::UpdateConversationRequest {
        conversation: Some(pb::Conversation { conversation_id: id.clone(), ..new }),
        update_mask: Some(prost_types::FieldMask { paths: paths.iter().map(|path| (*path).to_owned()).collect() }),
        ..Default::default()
    };
    let pinned = change(&["pinned"], pb::Conversation { pinned: true, ..Default::default() });
    told.push(format!("{:?}", says.update_conversation(pinned.clone()).await.expect("changes").into_inner()));
    let whole = knows.update_conversation(pinned).await.expect("changes").into_inner();
    assert!(whole.title.contains(SECRET) && whole.system_prompt.contains(SECRET) && !whole.metadata.is_empty());
    let titled = change(&["title"], pb::Conversation { title: "mine".into(), ..Default::default() });
    let own = says.update_conversation(titled).await.expect("changes").into_inner();
    assert_eq!((own.title.as_str(), own.message_count), ("mine", 12), "its own words it may hear");
    told.push(format!("{own:?}"));
    let scope =
        pb::SessionScope { agent_id: "a".into(), chat_type: "dm".into(), sender_id: "s".into(), ..Default::default() };
    let resolve = |defaults| pb::ResolveSessionRequest { scope: Some(scope.clone()), defaults, ..Default::default() };
    let made = knows.resolve_session(resolve(Some(beginning()))).await.expect("resolves").into_inner();
    assert!(format!("{made:?}").contains(SECRET));
    told.push(format!("{:?}", says.resolve_session(resolve(None)).await.expect("resolves").into_inner()));
    let rotate = pb::RotateSessionRequest { scope: Some(scope.clone()), ..Default::default() };
    told.push(format!("{:?}", says.rotate_session(rotate).await.expect("rotates").into_inner()));
    let mut compacts = ContextServiceClient::new(writer);
    let ask = pb::CompactRequest { conversation_id: id.clone(), request_id: "r".into(), ..Default::default() };
    compacts.compact(ask.clone()).await.expect("queues");
    house.run_jobs_until_idle().await;
    let done = compacts.compact(ask.clone()).await.expect("is done").into_inner();
    assert_eq!(done.outcome(), pb::CompactOutcome::Created);
    assert!(done.checkpoint.as_ref().is_some_and(|made| made.last_message_id > 0));
    told.push(format!("{done:?}"));
    let heard = ContextServiceClient::new(both).compact(ask).await.expect("is done").into_inner();
    assert!(!heard.checkpoint.expect("there is one").summary.is_empty(), "who may read is told");
    assert!(done.checkpoint.expect("there is one").summary.is_empty());
    for answer in told {
        assert!(!answer.contains(SECRET), "{answer}");
    }
}

#[tokio::test]
async fn a_turn_is_for_who_may_append_and_read() {
    let house = with_keys().await;
    let id = conversation(&house).await;
    let ask = || pb::ChatRequest { conversation_id: id.clone(), messages: vec![user("Hello?")], ..Default::default() };
    let turn = async |verbs| ChatServiceClient::new(who_may(&house, verbs).await).chat(ask()).await.map(|_| ());
    lacks(turn(APPEND).await, "read");
    lacks(turn(READ).await, "append");
    for (verbs, status) in [(APPEND, 403), (READ, 403), (BOTH, 422)] {
        let key = house.key("anna", verbs).await.text;
        let asked = house.web().json("POST", "/api/agents/a/chat", &json!({"message": "Hello?"}));
        let answered = Answered::to(asked.header("authorization", format!("Bearer {key}"))).await;
        let reason = if status == 403 { "VERB_MISSING" } else { "MODEL_NOT_CONFIGURED" };
        answered.assert_problem(status, reason, "");
    }
}
