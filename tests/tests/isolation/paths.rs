//! Over HTTP: every path of the description that names a session × a foreign session: the answer is that to a missing one.

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, ServerSettings};
use anneal_tests::{Answered, House, pb, user};
use pb::{conversation_service_client::ConversationServiceClient, message_service_client::MessageServiceClient};
use serde_json::{Value, json};
use uuid::Uuid;

struct Two {
    house: House,
    anna: String,
    bert: String,
    /// Bert's session with his agent `a`.
    foreign: String,
}

async fn two_tenants() -> Two {
    let house = House::guarded(ServerSettings::default(), AuthSettings { api_keys: true, ..Default::default() }).await;
    let anna = format!("Bearer {}", house.key("anna", &Verb::ALL).await.text);
    let bert = format!("Bearer {}", house.key("bert", &Verb::ALL).await.text);
    let guest = house.showing(&bert);
    let ask = pb::CreateConversationRequest { agent_id: "a".into(), title: "secret".into(), ..Default::default() };
    let made = ConversationServiceClient::new(guest.clone()).create_conversation(ask).await.expect("creates");
    let foreign = made.into_inner().conversation_id;
    let messages = vec![user("secret")];
    let ask = pb::AppendMessagesRequest { conversation_id: foreign.clone(), messages, ..Default::default() };
    MessageServiceClient::new(guest).append_messages(ask).await.expect("appends");
    Two { house, anna, bert, foreign }
}

impl Two {
    async fn asks(&self, credential: &str, method: &str, path: &str, body: Option<&Value>) -> Answered {
        let web = self.house.web();
        let request = match body {
            Some(body) => web.json(method, path, body),
            None => web.request(method, path),
        };
        Answered::to(request.header("authorization", credential)).await
    }

    /// Every method of every path that names a session, with a body where it takes one.
    async fn ways(&self) -> Vec<(String, String, Option<Value>)> {
        let described = self.house.web().request("GET", "/openapi.json").header("authorization", &self.anna);
        let described = Answered::to(described).await.json();
        let mut ways = Vec::new();
        for (path, methods) in described["paths"].as_object().expect("paths") {
            for (method, told) in methods.as_object().expect("methods").iter().filter(|_| path.contains("{sid}")) {
                let body = told.get("requestBody").map(|_| json!({"title": "taken"}));
                ways.push((method.to_uppercase(), path.clone(), body));
            }
        }
        ways
    }
}

#[tokio::test]
async fn a_foreign_session_answers_every_path_exactly_as_a_missing_one() {
    let two = two_tenants().await;
    let ways = two.ways().await;
    assert!(ways.len() >= 4, "{ways:?}");
    for (method, path, body) in &ways {
        let of = |id: &str| path.replace("{id}", "a").replace("{sid}", id);
        let missing = Uuid::now_v7().to_string();
        let foreign = two.asks(&two.anna, method, &of(&two.foreign), body.as_ref()).await;
        let nothing = two.asks(&two.anna, method, &of(&missing), body.as_ref()).await;
        assert_eq!(foreign.status, 404, "{method} {path}: {foreign:?}");
        let learnt = foreign.text.replace(&two.foreign, "ID");
        assert_eq!((foreign.status, learnt), (nothing.status, nothing.text.replace(&missing, "ID")), "{method} {path}");
    }
    let going_on = |id: &str| json!({"message": "What was said?", "sessionId": id});
    let missing = Uuid::now_v7().to_string();
    let foreign = two.asks(&two.anna, "POST", "/api/agents/a/chat", Some(&going_on(&two.foreign))).await;
    let nothing = two.asks(&two.anna, "POST", "/api/agents/a/chat", Some(&going_on(&missing))).await;
    assert_eq!(foreign.text.replace(&two.foreign, "ID"), nothing.text.replace(&missing, "ID"));
    assert!(foreign.status >= 400 && foreign.status == nothing.status, "{foreign:?}");
    let listed = two.asks(&two.anna, "GET", "/api/agents/a/sessions", None).await;
    assert!(listed.status == 200 && !listed.text.contains(&two.foreign), "{listed:?}");
    // Its owner has it, as it was.
    let kept = two.asks(&two.bert, "GET", &format!("/api/agents/a/sessions/{}", two.foreign), None).await;
    assert!(kept.status == 200 && kept.text.contains("secret") && !kept.text.contains("taken"), "{kept:?}");
}
