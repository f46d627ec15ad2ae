//! The server of a chat is killed amid its answer, after any piece of it. The page is loaded again
//! from another server.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use anneal_llm::provider::Api;
use anneal_testkit::{
    AnnealBinary, Folder, HttpClient, MODEL, Say, Script, ScriptedModel, TestApp,
};
use futures::future::join_all;
use serde_json::Value;

use super::{
    ChunkStream, kinds, message_id, messages, outline, resume_path, run, submit, text, user,
};

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

/// The parts of the answer, each of which is one piece.
fn says() -> Vec<Say> {
    let mut says = vec![Say::thought("Let me see."), Say::Signature("signed".into())];
    says.extend(Say::texts(&["one ", "two ", "three"]));
    says
}

/// A model that hangs in its answer to a question after as many pieces as the question says. Asked
/// again, it says the whole answer.
async fn start_model() -> ScriptedModel {
    let asked = Mutex::<HashSet<String>>::default();
    ScriptedModel::start(move |request| {
        let question = request.texts().pop().unwrap_or_default();
        let whole = Script::says(request, says());
        let pieces = question.strip_prefix("Hang after ");
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        match pieces {
            Some(pieces) if asked.insert(question.clone()) => {
                whole.hanging_after(pieces.parse().expect("is a number"))
            }
            Some(_) => whole,
            None => Script::says(request, [Say::text("And so on.")]),
        }
    })
    .await
}

/// Asserts that the chunks are one complete message: each part begins, goes on and ends under its
/// own id, within the one step.
#[track_caller]
fn assert_well_formed(chunks: &[Value]) {
    let kinds: Vec<&str> = chunks
        .iter()
        .map(|chunk| chunk["type"].as_str().expect("has a type"))
        .collect();
    let ["start", "start-step", parts @ .., "finish-step", "finish"] = &kinds[..] else {
        panic!("no complete message: {kinds:?}");
    };
    let mut ids = HashSet::new();
    let mut open: Option<(&str, &Value)> = None;
    for (kind, chunk) in parts.iter().zip(&chunks[2..]) {
        let (part, action) = kind.rsplit_once('-').expect("belongs to a part");
        let id = &chunk["id"];
        assert!(id.is_string(), "{chunk}");
        match action {
            "start" => {
                assert_eq!(open.replace((part, id)), None, "{kinds:?}");
                assert!(ids.insert(id.to_string()), "{chunk} in {chunks:?}");
            }
            "delta" => assert_eq!(open, Some((part, id)), "{chunk}"),
            "end" => assert_eq!(open.take(), Some((part, id)), "{chunk}"),
            _ => panic!("not expected here: {chunk}"),
        }
    }
    assert_eq!(open, None, "{kinds:?}");
}

/// Begins a chat, and reads what comes of its answer before it hangs.
async fn begin(web: &HttpClient, pieces: usize) -> Vec<Value> {
    let question = user("u1", &format!("Hang after {pieces}"));
    let mut stream = ChunkStream::post(web, &submit(&chat(pieces), &[question])).await;
    let mut chunks = stream.read_until("start-step").await;
    let said = shown_text(pieces);
    while text(&chunks) != said {
        chunks.push(stream.next().await.expect("the answer goes on"));
    }
    chunks
}

fn chat(pieces: usize) -> String {
    format!("chat-{pieces}")
}

/// The text of the answer up to this piece.
fn shown_text(pieces: usize) -> String {
    let texts = says().into_iter().take(pieces).filter_map(|say| match say {
        Say::Text(text) => Some(text),
        _ => None,
    });
    texts.collect()
}

/// Loads the chat again, and goes on with it.
async fn load_and_go_on(web: &HttpClient, pieces: usize, begun: &[Value]) {
    let chat = chat(pieces);
    let resumed = ChunkStream::open(web.request("GET", &resume_path(&chat))).await;
    let chunks = resumed.rest().await;
    assert_well_formed(&chunks);
    assert_eq!(message_id(&chunks), message_id(begun), "the same message");
    assert_eq!(text(&chunks), "one two three", "after {pieces} pieces");
    let nothing = web.get(&resume_path(&chat)).await;
    assert_eq!((nothing.status, nothing.text.as_str()), (204, ""));
    let next = run(web, &submit(&chat, &[user("u2", "And then?")])).await;
    assert_well_formed(&next);
    assert_eq!(
        kinds(&next),
        [
            "start",
            "start-step",
            "text-start",
            "text-delta",
            "text-end",
            "finish-step",
            "finish"
        ]
    );
    let stored = messages(web, &next).await;
    let questions: Vec<(&str, &str)> = outline(&stored)
        .into_iter()
        .filter(|(role, _)| *role == "user")
        .collect();
    let question = format!("Hang after {pieces}");
    assert_eq!(
        questions,
        [("user", &*question), ("user", "And then?")],
        "each question is stored once"
    );
    let roles = stored.iter().map(|message| &message["role"]);
    assert!(
        roles.eq(["user", "assistant", "user", "assistant"]),
        "{stored:?}"
    );
    let texts = stored[1]["content"].to_string();
    assert_eq!(texts.matches("one two three").count(), 1, "{texts}");
}

#[tokio::test]
async fn a_chat_whose_server_is_killed_after_any_piece_is_loaded_whole_elsewhere_and_goes_on() {
    let model = start_model().await;
    let second = TestApp::with_models(model.settings_of(Api::Gemini, &[MODEL]), MODEL).await;
    let folder = Folder::new();
    let settings = model.server_settings_without_timeouts(Api::Gemini);
    folder.file("anneal.toml", &settings);
    let (first, _) = AnnealBinary::new(BINARY, &folder, &second.url)
        .server()
        .await;
    let web = first.http_client().await;
    // The last piece ends the answer. The end of the body never comes.
    let cuts = 0..=says().len() + 1;
    let begun = join_all(cuts.clone().map(|pieces| begin(&web, pieces))).await;
    model.wait_for_calls(begun.len()).await;
    first.kill().await;
    // The lease of a server that has died is not renewed.
    sqlx::query("delete from ai_model_lease")
        .execute(&mut second.db().await)
        .await
        .expect("deletes");
    let web = second.http_client();
    let chats = cuts.zip(&begun);
    join_all(chats.map(|(pieces, begun)| load_and_go_on(&web, pieces, begun))).await;
    // Each question was asked twice, and then the next one.
    assert_eq!(model.requests().len(), 3 * begun.len());
}
