//! What callers say stands in no log, whatever goes wrong with it.

use anneal_tests::{Anneal, Folder, House, assert_refused, pb, user};
use pb::message_service_client::MessageServiceClient;
use tonic::{Code, transport::Endpoint};

use crate::BINARY;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_fails_leaves_nothing_of_the_row_in_the_log() {
    const SECRET: &str = "xylophone";
    let (house, folder) = (House::start().await, Folder::new());
    let talk = house.conversation().await;
    // PostgreSQL says where it could not read on, and quotes what stands there.
    let broken = "alter table ai_message add check ((content::text || ' no JSON')::json is not null) not valid";
    sqlx::raw_sql(broken).execute(&mut house.db().await).await.expect("alters");
    let (server, port) = Anneal::new(BINARY, &folder, &house.url).server().await;
    let channel = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("an address").connect_lazy();
    let ask = pb::AppendMessagesRequest {
        conversation_id: talk.id.clone(),
        messages: vec![user(SECRET)],
        ..Default::default()
    };
    let refused = MessageServiceClient::new(channel).append_messages(ask).await;
    assert_refused(refused, Code::Internal, "INTERNAL", "");
    let said = server.said("a call failed inside").await;
    assert!(said.contains("22P02") && said.contains("json_ereport_error"), "what is wrong is said: {said}");
    let lines = server.lines().join("\n");
    assert!(!lines.contains(SECRET), "{lines}");
}
