//! Every page, with a conversation that fills it. Tests that hold for all pages go through this
//! table.

use anneal_server::{AuthSettings, WebSettings};
use anneal_testkit::{TestApp, TestConversation, assistant, call, media, pb, prose, result, user};
use uuid::Uuid;

/// An app without credentials whose page is on.
pub(crate) async fn start_open_app() -> TestApp {
    let web = WebSettings {
        enabled: Some(true),
        ..WebSettings::default()
    };
    TestApp::with_page(AuthSettings::default(), web).await
}

/// An app that wants API keys. Its page is on.
pub(crate) async fn start_app_with_keys() -> TestApp {
    let auth = AuthSettings {
        api_keys: true,
        ..AuthSettings::default()
    };
    TestApp::with_page(auth, WebSettings::default()).await
}

/// A conversation with everything that a page shows: tool calls, a picture, Markdown, a separator,
/// a withdrawn message, a checkpoint.
pub(crate) async fn create_full_conversation(app: &TestApp) -> TestConversation<'_> {
    let policy = pb::Policy {
        max_message_count: Some(10),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let ask = pb::CreateConversationRequest {
        title: "A harbor, 港口, مرفأ, 🚢".into(),
        agent_id: "support".into(),
        user_id: "ada".into(),
        policy: Some(policy),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    for number in 0..6 {
        let id = format!("c{number}");
        let found = result(&id, &prose(number * 60, 40));
        let messages = vec![
            user(&format!("Question {number}: what lies in the harbor?")),
            call(&id, r#"{"path": "harbor.txt"}"#),
            found,
            assistant(
                "## Ships\n\n- a *schooner*\n- a `barque`\n\n| name | tons |\n|---|---|\n| Ada | 40 |\n",
            ),
        ];
        let appended = conversation.append_all(messages).send().await;
        appended.expect("the messages are stored");
    }
    app.run_jobs_until_idle().await;
    conversation.insert_separator().await;
    let picture = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==";
    let messages = vec![media(picture), assistant("That is a dot.")];
    let appended = conversation.append_all(messages).send().await;
    appended.expect("the messages are stored");
    conversation
}

/// The boundary of the conversation's newest checkpoint; 0: it has none.
pub(crate) async fn newest_checkpoint(conversation: &TestConversation<'_>) -> i64 {
    let checkpoints = conversation.checkpoints().await;
    checkpoints.first().map_or(0, |it| it.last_message_id)
}

/// The paths of every page that shows this conversation, or anything else, to a person without
/// credentials. `checkpoint`: the boundary of one of its checkpoints. One page is refused; without
/// a checkpoint, another one is.
pub(crate) fn paths(conversation: &str, checkpoint: i64) -> Vec<String> {
    [
        "/conversations",
        "/conversations?text=nothing+has+this+title",
        &format!("/conversations/{conversation}"),
        &format!("/conversations/{conversation}/delete"),
        &format!("/conversations/{conversation}?before=9"),
        &format!("/conversations/{conversation}/messages/1"),
        &format!("/conversations/{conversation}/xray"),
        &format!("/conversations/{conversation}/xray/strip"),
        &format!("/conversations/{conversation}/xray/eras"),
        &format!("/conversations/{conversation}/xray/messages/3"),
        &format!("/conversations/{conversation}/xray/checkpoints"),
        &format!("/conversations/{conversation}/xray/checkpoints/{checkpoint}"),
        &format!("/conversations/{conversation}/xray/at/9"),
        &format!("/conversations/{conversation}/what-if"),
        "/conversations/00000000-0000-7000-8000-000000000000",
        "/operations",
    ]
    .map(str::to_owned)
    .into()
}

/// Gives the conversation a dead checkpoint job with this error.
pub(crate) async fn kill_job(app: &TestApp, conversation: &str, error: &str) {
    let id: Uuid = conversation.parse().expect("a UUID");
    sqlx::query(
        "insert into ai_job_dead (tenant_id, kind, conversation_id, generation, attempts, last_error, dirty_ts)
         select tenant_id, 2, conversation_id, 1, 3, $2, now() from ai_conversation where conversation_id = $1",
    )
    .bind(id)
    .bind(error)
    .execute(&mut app.db().await)
    .await
    .expect("a dead job");
}
