//! An item is deleted in the middle of a long history, with a checkpoint over it: it is nowhere any
//! more that a client or a model looks.

use anneal_testkit::{
    Canary, HttpClient, HttpResponse, ModelRequest, ModelWorkerSettings, Say, Script,
    ScriptedModel, TestApp, TestConversation, call, pb, prose, result, user,
};
use pb::{Role, part::Part};
use serde_json::{Value, json};

use super::{delete, post, responses};

/// The word of the item that is deleted.
const CANARY: Canary = Canary("wrenCanary24");
/// Part of the requests for a summary, and of no others.
const SUMMARY: &str = "must_keep";
/// The place of the message with the item, among [`TURNS`] turns of two messages.
const PLACE: usize = 20;
const TURNS: usize = 34;

/// A model that repeats the word in summaries, if it gets it.
async fn start_model() -> ScriptedModel {
    ScriptedModel::start(|asked: &ModelRequest| {
        if !asked.raw.contains(SUMMARY) {
            return Script::says(asked, [Say::text("It goes on.")]);
        }
        let word = if asked.raw.contains(CANARY.0) {
            CANARY.0
        } else {
            "Nothing"
        };
        let summary = format!("{word}: several things were asked about, and all were answered.");
        Script::summarizes_as(asked, &summary)
    })
    .await
}

/// How the item stands in its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is the message.
    Alone,
    /// A call of the message stands beside it.
    BesideCall,
    /// It is the output of a call, which stays.
    Output,
}

/// The two messages of the turn with the item.
fn turn_with_item(place: Place) -> Vec<pb::NewMessage> {
    let secret = CANARY.in_text(&prose(7, 3));
    match place {
        Place::Alone => vec![
            user(&secret),
            anneal_testkit::assistant(&prose(PLACE * 9, 3)),
        ],
        Place::BesideCall => {
            let text = Part::Text(pb::TextPart { text: secret });
            let beside = call("call_1", "{}");
            let call = beside.parts.into_iter().filter_map(|part| part.part);
            let parts = std::iter::once(text).chain(call).collect();
            vec![
                anneal_testkit::message(Role::Assistant, parts),
                result("call_1", &prose(PLACE * 9, 3)),
            ]
        }
        Place::Output => vec![call("call_1", "{}"), result("call_1", &secret)],
    }
}

/// A conversation of 68 messages, of which all but the newest are summarized by the worker.
async fn create_conversation<'a>(
    app: &'a TestApp,
    worker: &anneal_worker::Worker,
    place: Place,
) -> TestConversation<'a> {
    let policy = pb::Policy {
        max_message_count: Some(40),
        keep_recent_turns: Some(3),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    for turn in 0..TURNS {
        if turn * 2 == PLACE {
            conversation.append_all(turn_with_item(place)).await;
        } else {
            let (asked, answered) = (prose(turn * 9, 2), prose(turn * 9 + 4, 3));
            conversation.turn(&asked, &answered).await;
        }
    }
    worker.run_until_idle().await;
    conversation
}

/// All items of a conversation, oldest first.
async fn list_items(web: &HttpClient, path: &str) -> Vec<Value> {
    let mut items = Vec::new();
    let mut after = String::new();
    loop {
        let page = web
            .get(&format!("{path}/items?order=asc&limit=100{after}"))
            .await
            .json();
        items.extend(page["data"].as_array().expect("a list").iter().cloned());
        if page["has_more"] == false {
            return items;
        }
        after = format!("&after={}", page["last_id"].as_str().expect("an id"));
    }
}

/// Creates a response in the conversation. Returns the request that its model got.
async fn ask(web: &HttpClient, model: &ScriptedModel, path: &str) -> ModelRequest {
    let id = path.rsplit('/').next().expect("ends with the id");
    let body = json!({"input": "Go on.", "conversation": id});
    let response = post(web, responses::RESPONSES, &body).await;
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(response.json()["status"], "completed");
    model.requests().pop().expect("the model was asked")
}

/// The checkpoint that holds for the message with the item, if there is one.
async fn covering_checkpoint(conversation: &TestConversation<'_>) -> Option<pb::Checkpoint> {
    let message = PLACE as i64 + 2;
    let mut checkpoints = conversation.checkpoints().await.into_iter();
    checkpoints.find(|checkpoint| checkpoint.last_message_id >= message)
}

#[tokio::test]
async fn an_item_under_a_checkpoint_is_deleted_from_lists_summaries_and_what_models_get() {
    let model = start_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    let worker = app.worker_with_model(&ModelWorkerSettings::for_model(&model));
    let web = app.http_client();
    for place in [Place::Alone, Place::BesideCall, Place::Output] {
        let conversation = create_conversation(&app, &worker, place).await;
        let path = format!(
            "{}/conv_{}",
            super::CONVERSATIONS,
            conversation.uuid().as_simple()
        );
        let checkpoint = covering_checkpoint(&conversation).await;
        let checkpoint = checkpoint.unwrap_or_else(|| panic!("{place:?}: a checkpoint is made"));
        assert!(checkpoint.summary.contains(CANARY.0), "{checkpoint:?}");
        let asked = ask(&web, &model, &path).await;
        assert!(asked.raw.contains(CANARY.0), "the summary is sent");
        let before = list_items(&web, &path).await;
        let is_item =
            |item: &&Value| item["type"] != "compaction" && item.to_string().contains(CANARY.0);
        let item = before.iter().find(is_item).expect("is listed");
        let id = item["id"].as_str().expect("has an id");
        let requests = model.requests().len();

        let item_path = format!("{path}/items/{id}");
        let deleted = delete(&web, &item_path).await;
        assert_eq!(deleted.status, 200, "{place:?}: {deleted:?}");

        let gone = HttpResponse::send(web.request("GET", &item_path)).await;
        assert_eq!(gone.status, 404, "{gone:?}");
        let left = list_items(&web, &path).await;
        assert!(!json!(left).to_string().contains(CANARY.0), "{place:?}");
        let expected = before.iter().filter(|item| item["type"] != "compaction");
        let expected = expected.filter(|item| item["id"] != id);
        let kept = left.iter().filter(|item| item["type"] != "compaction");
        assert!(kept.eq(expected), "{place:?}: all other items stay");
        assert!(covering_checkpoint(&conversation).await.is_none());
        let context = conversation.context().await;
        assert!(!context.text().contains(CANARY.0), "{place:?}");
        // Before a new checkpoint is made, and with it.
        ask(&web, &model, &path).await;
        worker.run_until_idle().await;
        let anew = covering_checkpoint(&conversation).await;
        let anew = anew.unwrap_or_else(|| panic!("{place:?}: another checkpoint is made"));
        assert!(!anew.summary.contains(CANARY.0), "{anew:?}");
        ask(&web, &model, &path).await;
        let sent = model.requests().split_off(requests);
        assert!(
            sent.iter().any(|request| request.raw.contains(SUMMARY)),
            "the worker has asked for a summary"
        );
        for request in sent {
            assert!(!request.raw.contains(CANARY.0), "{place:?}: {request:?}");
        }
        conversation.verify().await;
    }
}
