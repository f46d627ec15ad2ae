//! Sessions over HTTP: listed, read, renamed, deleted.

#![expect(non_snake_case, reason = "rows are named as the seeds name them")]

use anneal_tests::{Answered, Gate, House, Script, ScriptedModel, Talk, call, eventually, message, pb, result, user};
use pb::part::Part;
use serde_json::{Value, json};

async fn session<'a>(house: &'a House, agent: &str) -> Talk<'a> {
    house.conversation_with(pb::CreateConversationRequest { agent_id: agent.into(), ..Default::default() }).await
}

fn path(talk: &Talk<'_>) -> String {
    format!("/api/agents/a/sessions/{}", talk.id)
}

#[tokio::test]
async fn row_P3_sessions_are_listed_read_renamed_and_deleted() {
    let house = House::start().await;
    let (web, talk) = (house.web(), session(&house, "a").await);
    talk.turn("What is in payment.py?", "A race.").await;
    session(&house, "b").await;
    let listed = web.get("/api/agents/a/sessions").await.json();
    assert_eq!(listed["sessions"].as_array().map(Vec::len), Some(1), "other agents' are not there: {listed}");
    assert_eq!((&listed["sessions"][0]["id"], &listed["nextPageToken"]), (&json!(talk.id), &json!("")));
    let read = web.get(&path(&talk)).await.json();
    let said: Vec<&Value> = read["messages"].as_array().expect("messages").iter().map(|m| &m["content"]).collect();
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    assert_eq!(said, [&text("What is in payment.py?"), &text("A race.")]);
    let renamed = Answered::to(web.json("PATCH", &path(&talk), &json!({"title": "Payments", "pinned": true}))).await;
    assert_eq!((renamed.status, &renamed.json()["title"]), (200, &json!("Payments")));
    let put_away = json!({"status": "archived", "metadata": {"team": "billing"}, "somethingElse": 1});
    let put_away = Answered::to(web.json("PATCH", &path(&talk), &put_away)).await.json();
    let fields = (&put_away["title"], &put_away["status"], &put_away["pinned"], &put_away["metadata"]["team"]);
    assert_eq!(fields, (&json!("Payments"), &json!("archived"), &json!(true), &json!("billing")));
    let active = web.get("/api/agents/a/sessions?status=active").await.json();
    assert_eq!(active["sessions"], json!([]));
    let deleted = Answered::to(web.request("DELETE", &path(&talk))).await;
    assert_eq!((deleted.status, deleted.text.as_str()), (204, ""));
    for method in ["GET", "DELETE"] {
        Answered::to(web.request(method, &path(&talk))).await.assert_problem(404, "CONVERSATION_NOT_FOUND", "");
    }
    assert_eq!(web.get("/api/agents/a/sessions").await.json()["sessions"], json!([]));
}

#[tokio::test]
async fn row_P4_the_index_always_says_what_the_rows_say() {
    let house = House::start().await;
    let (web, talk) = (house.web(), session(&house, "a").await);
    for round in 0..3 {
        talk.turn(&format!("Analyse the concurrency of payment.py, round {round}"), "Done.").await;
        if round == 1 {
            house.run_jobs_until_idle().await;
        }
        let row = talk.conversation().await;
        let listed = &web.get("/api/agents/a/sessions").await.json()["sessions"][0];
        let milliseconds =
            |time: Option<prost_types::Timestamp>| time.map(|t| t.seconds * 1_000 + i64::from(t.nanos) / 1_000_000);
        let messages = talk.messages().await;
        let tokens: u64 = messages.iter().filter_map(|message| message.tokens).map(|count| count.tokens).sum();
        let last = messages.last().and_then(|message| message.created_time);
        assert_eq!(
            (&listed["title"], row.title.as_str()),
            (&json!("Analyse the concurrency of pay"), "Analyse the concurrency of pay")
        );
        assert_eq!((&listed["messageCount"], &listed["tokenEstimate"]), (&json!(messages.len()), &json!(tokens)));
        assert_eq!((&listed["sessionId"], &listed["agentId"]), (&json!(talk.id), &json!("a")));
        assert_eq!(listed["createdAt"], json!(milliseconds(row.created_time)));
        assert_eq!(listed["lastAt"], json!(milliseconds(last)));
        let read = web.get(&path(&talk)).await.json();
        for field in ["title", "messageCount", "createdAt", "lastAt", "tokenEstimate", "status", "sessionId"] {
            assert_eq!(read[field], listed[field], "{field}");
        }
    }
}

#[tokio::test]
async fn row_P5_a_compaction_says_what_is_kept_and_what_it_saved() {
    let house = House::start().await;
    let (web, talk) = (house.web(), session(&house, "a").await);
    talk.turns(30).await;
    house.run_jobs_until_idle().await;
    let (checkpoints, read) = (talk.checkpoints().await, web.get(&path(&talk)).await.json());
    let compactions = read["compactions"].as_array().expect("compactions");
    assert!(!checkpoints.is_empty());
    assert_eq!(compactions.len(), checkpoints.len());
    for (shown, stored) in compactions.iter().zip(&checkpoints) {
        assert_eq!(shown["firstKeptEntryId"], json!(stored.last_message_id + 1));
        assert_eq!(
            (&shown["tokensBefore"], &shown["tokensAfter"]),
            (&json!(stored.tokens_before), &json!(stored.tokens_after))
        );
        assert_eq!((&shown["summary"], &shown["valid"]), (&json!(stored.summary), &json!(stored.valid)));
        assert!(shown["createdAt"].as_i64().is_some_and(|at| at > 1_600_000_000_000), "{shown}");
    }
}

#[tokio::test]
async fn every_kind_of_content_comes_back_byte_for_byte() {
    let house = House::start().await;
    let (web, talk) = (house.web(), session(&house, "a").await);
    let input = "{\"b\": 1e2,\"a\":1.0,\"a\":2, broken";
    let reasoning =
        pb::ReasoningPart { text: "hm".into(), signature: "sig".into(), provider: "anthropic".into(), redacted: false };
    let picture = pb::MediaPart {
        uri: "https://x.example/a.png".into(),
        media_type: "image/png".into(),
        size_bytes: 7,
        tokens: 0,
    };
    let thought = message(pb::Role::Assistant, vec![Part::Reasoning(reasoning)]);
    let seen = message(
        pb::Role::User,
        vec![Part::Text(pb::TextPart { text: "NUL \0 \u{2028} \"q\"".into() }), Part::Media(picture)],
    );
    talk.append_all(vec![seen, thought, call("c1", input), result("c1", "42\n")]).await;
    let read = web.get(&path(&talk)).await.json();
    let content = |index: usize| read["messages"][index]["content"].clone();
    assert_eq!(content(0)[0], json!({"type": "text", "text": "NUL \0 \u{2028} \"q\""}));
    assert_eq!(
        content(0)[1],
        json!({"type": "media", "uri": "https://x.example/a.png", "mediaType": "image/png", "sizeBytes": 7})
    );
    assert_eq!(content(1)[0]["signature"], json!("sig"));
    assert_eq!(content(2)[0], json!({"type": "tool_use", "id": "c1", "name": "look", "input": input}));
    assert_eq!(
        content(3)[0],
        json!({"type": "tool_result", "toolUseId": "c1", "text": "42\n", "isError": false, "media": []})
    );
    let roles: Vec<&Value> = read["messages"].as_array().expect("messages").iter().map(|m| &m["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "assistant", "tool"]);
}

#[tokio::test]
async fn a_long_history_is_one_document_and_parts_of_it_can_be_asked_for() {
    let house = House::start().await;
    let (web, talk) = (house.web(), session(&house, "a").await);
    for hundred in 0..12 {
        talk.append_all((0..100).map(|n| user(&format!("message {}", hundred * 100 + n + 1))).collect()).await;
        if hundred == 5 {
            talk.separate().await;
        }
    }
    let ids = |read: &Value| -> Vec<i64> {
        read["messages"].as_array().expect("messages").iter().filter_map(|m| m["id"].as_i64()).collect()
    };
    let whole = web.get(&path(&talk)).await.json();
    assert_eq!(ids(&whole), (1..=1_200).collect::<Vec<_>>());
    assert_eq!(whole["messages"][1_199]["content"][0]["text"], json!("message 1200"));
    assert_eq!(whole["separators"].as_array().map(Vec::len), Some(1));
    assert_eq!(whole["separators"][0]["afterMessageId"], json!(600));
    for (query, from, to) in [("after=1190", 1_191, 1_200), ("after=3&limit=2", 4, 5), ("limit=700", 1, 700)] {
        let part = web.get(&format!("{}?{query}", path(&talk))).await.json();
        assert_eq!(ids(&part), (from..=to).collect::<Vec<_>>(), "{query}");
        assert_eq!(part["messageCount"], json!(1_200));
    }
    assert_eq!(ids(&web.get(&format!("{}?after=1200", path(&talk))).await.json()), [0_i64; 0]);
    for (query, field) in [("limit=0", "limit"), ("limit=x", "limit"), ("after=-1", "after"), ("after=1.5", "after")] {
        web.get(&format!("{}?{query}", path(&talk))).await.assert_problem(400, "INVALID_FIELD", field);
    }
}

#[tokio::test]
async fn lists_are_paged_without_gaps() {
    let house = House::start().await;
    for _ in 0..7 {
        session(&house, "a").await;
    }
    let (mut ids, mut token) = (Vec::new(), String::new());
    loop {
        let page = house.web().get(&format!("/api/agents/a/sessions?pageSize=3&pageToken={token}")).await.json();
        let sessions = page["sessions"].as_array().expect("sessions");
        ids.extend(sessions.iter().filter_map(|session| session["id"].as_str().map(str::to_owned)));
        page["nextPageToken"].as_str().expect("a token").clone_into(&mut token);
        if token.is_empty() {
            break;
        }
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 7);
    for (query, field) in [
        ("pageSize=-1", "pageSize"),
        ("pageSize=x", "pageSize"),
        ("pageToken=x", "pageToken"),
        ("status=gone", "status"),
    ] {
        house.web().get(&format!("/api/agents/a/sessions?{query}")).await.assert_problem(400, "INVALID_FIELD", field);
    }
}

#[tokio::test]
async fn an_etag_guards_against_changing_what_was_not_seen() {
    let house = House::start().await;
    let (web, talk) = (house.web(), session(&house, "a").await);
    let etag = web.get(&path(&talk)).await.header("etag").to_owned();
    let change =
        |title: &str, etag: &str| web.json("PATCH", &path(&talk), &json!({"title": title})).header("if-match", etag);
    let first = Answered::to(change("one", &etag)).await;
    assert_eq!(first.status, 200);
    assert_ne!(first.header("etag"), etag);
    Answered::to(change("two", &etag)).await.assert_problem(412, "ETAG_MISMATCH", "");
    assert_eq!(Answered::to(change("three", first.header("etag"))).await.json()["title"], json!("three"));
    assert_eq!(Answered::to(change("four", "*")).await.status, 200);
    for broken in ["1", "W/\"1\"", "\"1\", \"2\"", "\"\""] {
        Answered::to(change("five", broken)).await.assert_problem(400, "INVALID_FIELD", "If-Match");
    }
    assert_eq!(talk.conversation().await.title, "four");
}

#[tokio::test]
async fn a_session_is_its_agents_alone() {
    let house = House::start().await;
    let talk = session(&house, "b").await;
    talk.turn("secret", "kept").await;
    for method in ["GET", "DELETE", "PATCH"] {
        let mut answers = Vec::new();
        for id in [talk.id.as_str(), "00000000-0000-4000-8000-000000000000"] {
            let asked = house.web().json(method, &format!("/api/agents/a/sessions/{id}"), &json!({"title": "mine"}));
            let refused = Answered::to(asked).await;
            refused.assert_problem(404, "CONVERSATION_NOT_FOUND", "");
            answers.push(refused.text);
        }
        assert_eq!(answers[0], answers[1], "{method}");
    }
    assert_ne!(talk.conversation().await.title, "mine");
}

#[tokio::test]
async fn a_session_that_was_begun_over_http_goes_on_over_grpc() {
    let gate = Gate::default();
    gate.open_for_ever();
    let model =
        ScriptedModel::start(move |asked| Script::says(asked, [anneal_tests::Say::text("Hi.")]).after(&gate)).await;
    let house = House::chatting(&model).await;
    let told = house.web().chat("a", &json!({"message": "Hello."})).await;
    let talk = Talk { house: &house, id: told[0].data["sessionId"].as_str().expect("named").to_owned() };
    talk.chat("Over gRPC.").await.done();
    eventually("all four are there", async || {
        house.web().get(&path(&talk)).await.json()["messages"].as_array().map(Vec::len) == Some(4)
    })
    .await;
    talk.verify().await;
}
