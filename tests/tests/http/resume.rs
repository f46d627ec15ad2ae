//! Coming back to a turn over HTTP: whatever was cut off where, nothing is lost and nothing is doubled.

use anneal_tests::{
    Answered, Gate, House, Say, Script, ScriptedModel, Talk, Told, call, eventually, result, text_of, user,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// What a reader has of an answer, all its pieces joined: text, thoughts, calls, and how often it was begun and ended.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
struct Had {
    text: String,
    reasoning: String,
    calls: Vec<String>,
    started: usize,
    done: usize,
}

impl Had {
    fn of<'t>(told: impl IntoIterator<Item = &'t Told>) -> Self {
        let mut had = Self::default();
        for event in told {
            let text = || event.data["text"].as_str().unwrap_or_default();
            match event.kind() {
                "started" => had.started += 1,
                "text" => had.text.push_str(text()),
                "reasoning" => had.reasoning.push_str(text()),
                "tool_call" => had.calls.push(event.data["input"].to_string()),
                "attempt" => (had.text, had.reasoning, had.calls) = Default::default(),
                "done" => had.done += 1,
                other => panic!("an event {other}: {event:?}"),
            }
        }
        had
    }
}

/// An answer of many kinds and scripts, in small pieces.
fn says() -> Vec<Say> {
    let words = ["Grüße, ", "世界", "! ", "👩‍👩‍👧 ", "and\n\n", "more.", "data: not an event\n\n"];
    let mut says = vec![Say::thought("Let me "), Say::thought("think… ")];
    says.extend(Say::texts(&words));
    says.extend([Say::tool("1", "look", r#"{"q":"世"}"#), Say::tool("2", "look", "{}")]);
    says
}

/// A model that says three words, each after the gate is opened for it.
async fn one_two_three() -> (Gate, ScriptedModel) {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| Script::says(asked, Say::texts(&["one ", "two ", "three"])).gated(&gate)
    })
    .await;
    (gate, model)
}

const MESSAGE: &str = "Tell me.";

fn body() -> Value {
    json!({"message": MESSAGE})
}

#[tokio::test]
async fn whoever_was_cut_off_anywhere_gets_exactly_the_rest_here_and_elsewhere() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| Script::says(asked, says()).gated(&gate)
    })
    .await;
    let house = House::chatting_patiently(&model).await;
    let beside = house.beside().await;
    let mut events = house.web().open_chat("a", &body()).await;
    let mut told = events.take(1).await;
    // One piece at a time, so that each is an event of its own.
    while told.last().is_none_or(|event| event.kind() != "done") {
        gate.open(1);
        if let Ok(event) = tokio::time::timeout(std::time::Duration::from_secs(1), events.next()).await {
            told.push(event.expect("`done` comes last"));
        }
    }
    let whole = Had::of(&told);
    assert!(told.len() > 9 && whole.started == 1 && whole.done == 1, "{told:?}");
    for cut in 0..told.len() - 1 {
        for (web, place) in [(house.web(), "here"), (beside.web(), "elsewhere")] {
            let given = body();
            let given = (cut % 2 == 0).then_some(&given);
            let rest = web.resume("a", &told[cut].id, given).await.rest().await;
            assert!(rest.iter().all(|event| event.kind() != "attempt"), "it is the same answer: {rest:?}");
            let had = Had::of(told[..=cut].iter().chain(&rest));
            // Thoughts that the provider did not sign are not kept, and cannot be told again.
            let kept = Had { reasoning: had.reasoning.clone(), ..whole.clone() };
            assert_eq!(had, kept, "{place}, cut off after {cut}");
            assert!(whole.reasoning.starts_with(&had.reasoning), "{place}, cut off after {cut}: {had:?}");
        }
    }
    let last = told.last().expect("done").id.clone();
    let path = "/api/agents/a/chat";
    let nothing = Answered::to(house.web().request("POST", path).header("last-event-id", last)).await;
    assert_eq!((nothing.status, nothing.text.as_str()), (204, ""));
    assert_eq!(model.asked().len(), 1, "the model was called once");
}

#[tokio::test]
async fn whoever_comes_back_while_the_turn_runs_is_told_the_rest_as_it_comes() {
    let (gate, model) = one_two_three().await;
    let house = House::chatting_patiently(&model).await;
    let mut events = house.web().open_chat("a", &body()).await;
    let mut told = events.take(1).await;
    gate.open(2);
    while text_of(&told) != "one " {
        told.extend(events.take(1).await);
        if text_of(&told).is_empty() {
            gate.open(1);
        }
    }
    drop(events);
    let mut back = house.web().resume("a", &told.last().expect("some").id, None).await;
    let mut readers = vec![house.web().resume("a", &told[0].id, Some(&body())).await];
    gate.open_for_ever();
    let first = back.take(1).await;
    assert_eq!(first[0].kind(), "text", "{first:?}");
    told.extend(first);
    told.extend(back.rest().await);
    let had = Had::of(&told);
    assert_eq!((had.text.as_str(), had.started, had.done), ("one two three", 1, 1));
    let other = readers.remove(0).rest().await;
    assert_eq!(text_of(&other), "one two three", "readers do not take from each other");
    assert_eq!(model.asked().len(), 1);
}

#[tokio::test]
async fn whoever_comes_back_to_another_process_waits_there_for_the_end_of_the_turn() {
    let (gate, model) = one_two_three().await;
    let house = House::chatting_patiently(&model).await;
    let beside = house.beside().await;
    let mut events = house.web().open_chat("a", &body()).await;
    let mut told = events.take(1).await;
    gate.open(3);
    while text_of(&told).is_empty() {
        told.extend(events.take(1).await);
    }
    drop(events);
    let back = beside.web().resume("a", &told.last().expect("some").id, None).await;
    gate.open_for_ever();
    told.extend(back.rest().await);
    let had = Had::of(&told);
    assert_eq!((had.text.as_str(), had.started, had.done, model.asked().len()), ("one two three", 1, 1, 1));
}

#[tokio::test]
async fn thoughts_that_are_not_kept_stand_for_whoever_waits_at_another_process() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| {
            Script::says(asked, [Say::thought("Let me "), Say::thought("think."), Say::text("one "), Say::text("two")])
                .gated(&gate)
        }
    })
    .await;
    let house = House::chatting_patiently(&model).await;
    let beside = house.beside().await;
    let mut events = house.web().open_chat("a", &body()).await;
    let mut told = events.take(1).await;
    gate.open(4);
    while text_of(&told).is_empty() {
        told.extend(events.take(1).await);
    }
    drop(events);
    let back = beside.web().resume("a", &told.last().expect("some").id, None).await;
    // The turn still runs when it is asked for there: the reader is let in, and other calls answered, before it ends.
    beside.web().get("/api/agents/a/sessions").await;
    gate.open_for_ever();
    let rest = back.rest().await;
    assert!(rest.iter().all(|event| event.kind() != "attempt"), "it is the same answer: {rest:?}");
    told.extend(rest);
    let had = Had::of(&told);
    assert_eq!((had.text.as_str(), had.done, model.asked().len()), ("one two", 1, 1));
    assert!(had.reasoning.starts_with("Let me "), "{had:?}");
}

#[tokio::test]
async fn an_answer_made_anew_says_that_what_was_told_is_void() {
    let model = ScriptedModel::start(|asked| match asked.nth {
        0 => Script::says(asked, Say::texts(&["The first ", "answer"])).cut_after(3),
        _ => Script::says(asked, Say::texts(&["Quite ", "another one."])),
    })
    .await;
    let house = House::chatting(&model).await;
    let mut told = house.web().chat("a", &body()).await;
    let error = told.pop().expect("it failed");
    assert_eq!((error.kind(), text_of(&told).as_str()), ("error", "The first answer"), "{error:?}");
    let rest = house.web().resume("a", &error.id, None).await.rest().await;
    assert_eq!((rest[0].kind(), &rest[0].data["reason"]), ("attempt", &json!("answered_anew")));
    told.extend(rest);
    let had = Had::of(&told);
    assert_eq!((had.text.as_str(), had.started, had.done), ("Quite another one.", 1, 1));
}

#[tokio::test]
async fn forged_ids_are_refused_or_harm_nobody() {
    let model = ScriptedModel::saying("Yes.").await;
    let house = House::chatting(&model).await;
    let told = house.web().chat("a", &body()).await;
    let path = "/api/agents/a/chat";
    let long = "A".repeat(4_000);
    for forged in ["", "1", "null", "W10", long.as_str(), &told[0].id[2..], "..%00"] {
        let refused = Answered::to(house.web().json("POST", path, &body()).header("last-event-id", forged)).await;
        refused.assert_problem(400, "INVALID_FIELD", "Last-Event-ID");
    }
    let other = json!({"message": MESSAGE, "sessionId": "00000000-0000-4000-8000-000000000000"});
    let refused = Answered::to(house.web().json("POST", path, &other).header("last-event-id", &told[0].id)).await;
    refused.assert_problem(400, "INVALID_FIELD", "sessionId");
    let elsewhere = house.web().request("POST", "/api/agents/b/chat").header("last-event-id", &told[0].id);
    Answered::to(elsewhere).await.assert_problem(404, "CONVERSATION_NOT_FOUND", "");
    assert_eq!(model.asked().len(), 1);
}

/// The id with another request and another message in it.
fn forged(id: &str, request: &Value, message: i64) -> String {
    let text = URL_SAFE_NO_PAD.decode(id).expect("an id is base64");
    let mut fields: Value = serde_json::from_slice(&text).expect("of JSON");
    (fields[1], fields[2]) = (request.clone(), json!(message));
    URL_SAFE_NO_PAD.encode(fields.to_string())
}

#[tokio::test]
async fn a_well_formed_forgery_says_nothing_a_second_time() {
    let model = ScriptedModel::saying("Yes.").await;
    let house = House::chatting(&model).await;
    let told = house.web().chat("a", &json!({"message": MESSAGE, "requestId": "one"})).await;
    let session = told[0].data["sessionId"].as_str().expect("named").to_owned();
    house.web().chat("a", &json!({"message": MESSAGE, "requestId": "two", "sessionId": session})).await;
    let talk = Talk { house: &house, id: session };
    talk.append_all(vec![user("look"), call("c1", "{}"), result("c1", "42")]).request_id("plain").await;
    talk.append("alone").request_id("alone").await;
    let (id, before) = (&told[0].id, talk.messages().await.len());
    for (request, message) in
        [("one", 3), ("two", 1), ("new", 1), ("new", 7), ("plain", 5), ("alone", 8), ("one", 2), ("one", 99), ("", 1)]
    {
        let forged = forged(id, &json!(request), message);
        for body in [None, Some(body())] {
            let asked = match &body {
                Some(body) => house.web().json("POST", "/api/agents/a/chat", body),
                None => house.web().request("POST", "/api/agents/a/chat"),
            };
            let refused = Answered::to(asked.header("last-event-id", &forged)).await;
            if request == "plain" || request == "alone" && body.is_some() {
                assert!([400, 409].contains(&refused.status), "{request} {message}: {refused:?}");
            } else {
                assert_eq!(refused.json()["field"], "Last-Event-ID", "{request} {message} {body:?}: {refused:?}");
                refused.assert_problem(400, "INVALID_FIELD", "Last-Event-ID");
            }
        }
    }
    assert_eq!((talk.messages().await.len(), model.asked().len()), (before, 2), "nothing was said, nobody was called");
}

#[tokio::test]
async fn whoever_comes_back_with_other_words_is_refused() {
    let model = ScriptedModel::saying("Yes.").await;
    let house = House::chatting(&model).await;
    let told = house.web().chat("a", &json!({"message": MESSAGE, "context": "file"})).await;
    let asked =
        |body: Value| house.web().json("POST", "/api/agents/a/chat", &body).header("last-event-id", &told[0].id);
    for other in [
        json!({"message": "Something else.", "context": "file"}),
        json!({"message": MESSAGE}),
        json!({"message": MESSAGE, "context": "file", "images": ["https://x.example/a.png"]}),
    ] {
        Answered::to(asked(other)).await.assert_problem(409, "REQUEST_ID_REUSED", "");
    }
    Answered::to(asked(json!({"context": "file"}))).await.assert_problem(400, "INVALID_FIELD", "message");
    for same in [json!({"message": MESSAGE, "context": "file"}), json!({"message": "", "images": []}), json!({})] {
        let rest = anneal_tests::Events::of(asked(same)).await.rest().await;
        assert_eq!(text_of(&rest), "Yes.");
    }
    assert_eq!(model.asked().len(), 1);
}

#[tokio::test]
async fn an_answer_made_anew_with_other_thoughts_is_told_as_it_comes() {
    for again in [["Hm, no: ", "so "], ["Hm.", "so "]] {
        let gate = Gate::default();
        let model = ScriptedModel::start({
            let gate = gate.clone();
            move |asked| match asked.nth {
                0 => Script::says(asked, [Say::thought("Let me "), Say::thought("think.")]).cut_after(3),
                _ => Script::says(
                    asked,
                    [Say::thought(again[0]), Say::thought("Or not. "), Say::text(again[1]), Say::text("it is")],
                )
                .gated(&gate),
            }
        })
        .await;
        let house = House::chatting_patiently(&model).await;
        let mut told = house.web().chat("a", &body()).await;
        let error = told.pop().expect("it failed");
        assert_eq!((error.kind(), Had::of(&told).reasoning.is_empty()), ("error", false), "{error:?}");
        let mut back = house.web().resume("a", &error.id, None).await;
        // All but the last piece.
        gate.open(4);
        let mut rest = back.take(1).await;
        assert_eq!((rest[0].kind(), &rest[0].data["reason"]), ("attempt", &json!("answered_anew")));
        while text_of(&rest).is_empty() {
            rest.extend(back.take(1).await);
        }
        assert!(rest.iter().all(|event| event.kind() != "done"), "it is still being made: {rest:?}");
        gate.open_for_ever();
        rest.extend(back.rest().await);
        told.extend(rest);
        let had = Had::of(&told);
        assert_eq!((had.text.as_str(), had.reasoning, had.done), ("so it is", format!("{}Or not. ", again[0]), 1));
    }
}

#[tokio::test]
async fn a_server_that_stops_ends_its_readers_in_good_order() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| Script::says(asked, Say::texts(&["still ", "here"])).after(&gate)
    })
    .await;
    let house = House::chatting_patiently(&model).await;
    let web = house.web();
    let mut events = web.open_chat("a", &body()).await;
    let mut told = events.take(1).await;
    model.arrived(1).await;
    drop(house);
    let path = "/api/agents/a/sessions";
    eventually("the door is closed", async || web.get(path).await.status == 503).await;
    web.get(path).await.assert_problem(503, "SERVER_STOPPING", "");
    gate.open_for_ever();
    told.extend(events.rest().await);
    assert_eq!((text_of(&told).as_str(), told.last().expect("some").kind()), ("still here", "done"));
    let gone = || async { web.request("GET", "/healthz").send().await.is_err() };
    eventually("the port is closed", async || gone().await).await;
}
