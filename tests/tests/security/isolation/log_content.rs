//! No content is logged when a statement fails.

use anneal_testkit::{AnnealBinary, Folder, TestApp, assert_refused, pb, user};
use pb::message_service_client::MessageServiceClient;
use tonic::{Code, transport::Endpoint};

use crate::isolation::BINARY;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_statement_logs_no_content() {
    const SECRET: &str = "xylophone";
    let (app, folder) = (TestApp::start().await, Folder::new());
    let conversation = app.conversation().await;
    // PostgreSQL's error quotes the text that is not JSON.
    let failing_check = "alter table ai_message add check ((content::text || ' no JSON')::json is not null) not valid";
    sqlx::raw_sql(failing_check)
        .execute(&mut app.db().await)
        .await
        .expect("alters");
    let (server, port) = AnnealBinary::new(BINARY, &folder, &app.url).server().await;
    let channel = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))
        .expect("an address")
        .connect_lazy();
    let ask = pb::AppendMessagesRequest {
        conversation_id: conversation.id.clone(),
        messages: vec![user(SECRET)],
        ..Default::default()
    };
    let refused = MessageServiceClient::new(channel)
        .append_messages(ask)
        .await;
    assert_refused(refused, Code::Internal, "INTERNAL", "");
    let line = server
        .wait_for_line("a call failed with an internal error")
        .await;
    assert!(line.contains("22P02"), "the SQLSTATE is logged: {line}");
    let lines = server.lines().join("\n");
    assert!(!lines.contains(SECRET), "{lines}");
}
