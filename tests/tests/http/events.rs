//! What happens to a session, told over HTTP as it happens.

use anneal_core::job::JobKind;
use anneal_tests::{Events, House, Talk, Told, eventually, pb, prose};
use serde_json::json;

async fn session(house: &House) -> Talk<'_> {
    house.conversation_with(pb::CreateConversationRequest { agent_id: "a".into(), ..Default::default() }).await
}

fn path(talk: &Talk<'_>, query: &str) -> String {
    format!("/api/agents/a/sessions/{}/events{query}", talk.id)
}

async fn watched(talk: &Talk<'_>, query: &str, after: &str) -> Events {
    let asked = talk.house.web().request("GET", &path(talk, query));
    Events::of(if after.is_empty() { asked } else { asked.header("last-event-id", after) }).await
}

/// Reads up to and with the first event of this kind.
async fn until(events: &mut Events, kind: &str) -> Vec<Told> {
    let mut told = Vec::new();
    while told.last().is_none_or(|event: &Told| event.kind() != kind) {
        told.push(events.next().await.expect("the events go on"));
    }
    told
}

fn ids(told: &[Told]) -> Vec<i64> {
    let appended = told.iter().filter(|event| event.kind() == "message_appended");
    appended.filter_map(|event| event.data["message"]["id"].as_i64()).collect()
}

#[tokio::test]
async fn messages_counts_and_checkpoints_are_told_as_they_happen() {
    let house = House::start().await;
    let talk = session(&house).await;
    let mut events = watched(&talk, "", "").await;
    let started = events.take(1).await;
    assert_eq!(started[0].data, json!({"type": "started", "lastMessageId": 0}));
    talk.turns(30).await;
    house.run_jobs_until_idle().await;
    let told = until(&mut events, "checkpoint_created").await;
    assert!(told.iter().any(|event| event.kind() == "tokens_counted" && event.data["throughMessageId"].is_i64()));
    assert!(ids(&told).windows(2).all(|pair| pair[0] + 1 == pair[1]), "{told:?}");
    let appended = told.iter().find(|event| event.kind() == "message_appended").expect("messages are told");
    assert_eq!(appended.data["message"]["content"], json!([{"type": "text", "text": "go on"}]));
    assert_eq!(told.last().expect("told").data["lastMessageId"], json!(talk.checkpoints().await[0].last_message_id));
    assert!(told.iter().all(|event| !event.id.is_empty()), "every event says where it stands");
}

#[tokio::test]
async fn a_watch_goes_on_after_the_last_event_that_came() {
    let house = House::start().await;
    let talk = session(&house).await;
    talk.turns(5).await;
    let mut events = watched(&talk, "?after=0", "").await;
    let mut told = Vec::new();
    while ids(&told).len() < 4 {
        told.extend(events.take(1).await);
    }
    drop(events);
    talk.turn("and", "more").await;
    let mut events = watched(&talk, "", &told.last().expect("told").id).await;
    while ids(&told).last() != Some(&12) {
        told.extend(events.take(1).await);
    }
    assert_eq!(ids(&told), (1..=12).collect::<Vec<_>>());
    let mut rest = watched(&talk, "?after=10&withoutContent=true", "").await;
    let mut told = Vec::new();
    while ids(&told).last() != Some(&12) {
        told.extend(rest.take(1).await);
    }
    assert_eq!(ids(&told), [11, 12]);
    let appended = told.iter().find(|event| event.kind() == "message_appended").expect("messages are told");
    assert_eq!(appended.data["message"]["content"], json!([]));
}

#[tokio::test]
async fn summaries_and_dead_jobs_are_told_and_another_server_tells_what_comes_after() {
    let house = House::start().await;
    let beside = house.beside().await;
    let policy = pb::Policy { large_message_threshold: Some(200), ..Default::default() };
    let ask = pb::CreateConversationRequest { agent_id: "a".into(), policy: Some(policy), ..Default::default() };
    let talk = house.conversation_with(ask).await;
    let mut events = watched(&talk, "", "").await;
    talk.append(&prose(0, 40)).await;
    house.run_jobs_until_idle().await;
    let told = until(&mut events, "summary_ready").await;
    let ready = told.last().expect("told");
    let stored = talk.message(1).await;
    let (summary, tokens) = (stored.summary.expect("has one").tokens, stored.tokens.expect("has some").tokens);
    let expected = json!({"type": "summary_ready", "messageId": 1, "summaryTokens": summary, "tokens": tokens});
    assert_eq!(ready.data, expected);
    drop(events);

    talk.append("one more").await;
    talk.kill_job(JobKind::CountTokens).await;
    let there = Talk { house: &beside, id: talk.id.clone() };
    let told = until(&mut watched(&there, "", &ready.id).await, "job_dead").await;
    assert_eq!(ids(&told), [2], "what was told before is not told again");
    let dead = &told.last().expect("told").data;
    let error = "it cannot be done";
    assert_eq!(*dead, json!({"type": "job_dead", "kind": "count_tokens", "attempts": 1, "lastError": error}));
}

#[tokio::test]
async fn no_proxy_keeps_events_back() {
    let model = anneal_tests::ScriptedModel::saying("Yes.").await;
    let house = House::chatting(&model).await;
    let talk = session(&house).await;
    let chat = house.web().json("POST", "/api/agents/a/chat", &json!({"message": "x"}));
    for asked in [house.web().request("GET", &path(&talk, "")), chat] {
        let answered = asked.send().await.expect("the server answers");
        assert_eq!(
            (answered.status().as_u16(), &answered.headers()["x-accel-buffering"]),
            (200, &"no".parse().expect("a header"))
        );
    }
}

#[tokio::test]
async fn what_cannot_be_watched_is_refused_with_a_status() {
    let house = House::start().await;
    let (talk, web) = (session(&house).await, house.web());
    let missing = "/api/agents/a/sessions/00000000-0000-4000-8000-000000000000/events";
    web.get(missing).await.assert_problem(404, "CONVERSATION_NOT_FOUND", "");
    web.get(&path(&talk, "").replace("agents/a", "agents/b")).await.assert_problem(404, "CONVERSATION_NOT_FOUND", "");
    web.get(&path(&talk, "?after=-1")).await.assert_problem(400, "INVALID_FIELD", "after");
    let forged = web.request("GET", &path(&talk, "")).header("last-event-id", "forged");
    anneal_tests::Answered::to(forged).await.assert_problem(400, "INVALID_FIELD", "Last-Event-ID");
}

#[tokio::test]
async fn a_server_that_stops_ends_its_watches() {
    let house = House::start().await;
    let web = house.web();
    let talk = session(&house).await;
    let mut events = watched(&talk, "", "").await;
    events.take(1).await;
    drop(house);
    let rest = events.rest().await;
    assert_eq!(rest.last().map(|event| event.data["problem"]["reason"].clone()), Some(json!("SERVER_STOPPING")));
    eventually("the port is closed", async || web.request("GET", "/healthz").send().await.is_err()).await;
}
