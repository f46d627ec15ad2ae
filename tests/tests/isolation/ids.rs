//! Every RPC × every field of its request that names something × another tenant's: whoever shows a value that is Bert's learns
//! what one learns who shows a value of its shape that nobody has, and nothing of Bert's is touched. RPCs and fields are read
//! from the descriptors; one that names something and has no values here fails the test, so that none is forgotten.

use std::collections::{BTreeMap, HashMap};

use anneal_tests::{
    Guest, House, MODEL, ScriptedModel, assistant, call_raw, call_to_the_end, every_rpc,
    fields::{Field, Filling, every_field},
    pb, sound_request, spelled_out, user,
};
use pb::{conversation_service_client::ConversationServiceClient, message_service_client::MessageServiceClient};
use prost_types::field_descriptor_proto::Type;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use uuid::Uuid;

use crate::{
    matrix::{Learnt, Two, learn, two_tenants_of},
    unfiltered::{holds_secret, rows_of},
};

/// RPCs whose requests name nothing.
const NAME_NOTHING: [&str; 3] = ["ClassifyError", "GetQueueStats", "GetModelStats"];
/// A message of Bert's, before his first separator; nobody else has so many.
const LAST: &str = "16";
/// A message that nobody has.
const NO_MESSAGE: &str = "77";
/// Fields of answers that are another in every conversation.
const OWN: [&str; 3] = ["conversation_id", "position", "next_page_token"];
/// What Bert does not call: what takes away what others are to find, and a checkpoint where there is one already.
const NOT_CALLED: [&str; 4] = ["DeleteConversation", "DeleteSeparator", "DiscardJob", "ImportCheckpoint"];
/// RPCs by which Bert gives his agents, users, rooms and calls of tools the names that strangers show.
const HIS_OWN_NAMES: [&str; 3] = ["CreateConversation", "ResolveSession", "AppendMessages"];

/// What may stand in a field. Both are equally long, so that answers differ in nothing else.
struct Values {
    berts: String,
    nobodys: String,
}

/// What is Bert's, to be shown by others.
struct Berts {
    conversation: String,
    etag: String,
    session_key: String,
    position: String,
    /// Of each of his lists, by its RPC.
    page_tokens: BTreeMap<String, String>,
}

/// Whether a field says which thing is meant.
fn names_something(field: &Field) -> bool {
    let endings = ["_id", "_ids", "_key", "_keys", "_token", "_position", "_cursor", "_etag"];
    let name = field.name();
    ["id", "ids", "position", "cursor", "etag", "channel"].contains(&name)
        || endings.iter().any(|ending| name.ends_with(ending))
}

/// A value that differs from another in one character.
fn altered(value: &str) -> String {
    let other = if &value[5..6] == "A" { "B" } else { "A" };
    [&value[..5], other, &value[6..]].concat()
}

impl Berts {
    /// What to show in a field; None: it is a new one.
    fn values(&self, field: &Field) -> Option<Values> {
        let values = |berts: &str, nobodys: &str| Some(Values { berts: berts.to_owned(), nobodys: nobodys.to_owned() });
        let named = |name: &str| values(&format!("bert-{name}"), &format!("none-{name}"));
        match field.name() {
            "conversation_id" => values(&self.conversation, &Uuid::now_v7().to_string()),
            "message_id" | "after_message_id" | "last_message_id" | "expected_last_message_id" => {
                values(LAST, NO_MESSAGE)
            }
            "request_id" => named(&field.rpc),
            name @ ("agent_id" | "user_id" | "account_id" | "thread_id" | "group_id" | "sender_id" | "channel") => {
                named(name)
            }
            "id" | "tool_use_id" => named("call"),
            "etag" => values(&self.etag, &"9".repeat(self.etag.len())),
            "session_key" => values(&self.session_key, &self.session_key.replace("bert-", "none-")),
            "position" => values(&self.position, &altered(&self.position)),
            "page_token" => self.page_tokens.get(&field.rpc).and_then(|token| values(token, &altered(token))),
            _ => None,
        }
    }

    /// All of it, made by Bert.
    async fn of(two: &Two) -> Self {
        let mut berts = Self {
            conversation: two.foreign.clone(),
            etag: String::new(),
            session_key: String::new(),
            position: String::new(),
            page_tokens: BTreeMap::new(),
        };
        for rpc in every_rpc().into_iter().filter(|rpc| !NOT_CALLED.contains(&rpc.name.as_str())) {
            let ask = sound_request(&rpc.name, &berts.conversation, &format!("bert-{}", rpc.name));
            let called = call(two, &rpc.name, ask).await;
            called.unwrap_or_else(|refused| panic!("{}: {refused}", rpc.name));
        }
        for field in naming_fields().iter().filter(|field| HIS_OWN_NAMES.contains(&field.rpc.as_str())) {
            let values = berts.values(field).filter(|values| values.berts.starts_with("bert-"));
            let Some(values) = values else { continue };
            let ask = field.filled(&filling(field, &values.berts), &berts.conversation, "");
            if field.name() == "sender_id" {
                berts.session_key = told(two, &field.rpc, ask, "session_key").await;
            } else {
                // Not every name is taken in every place: a session's beginning has no request id.
                let _ = call(two, &field.rpc, ask).await;
            }
        }
        for field in every_field().into_iter().filter(|field| field.path() == "page_size") {
            let ask = field.filled(&Filling::Varint(1), &berts.conversation, "");
            let token = told(two, &field.rpc, ask, "next_page_token").await;
            berts.page_tokens.insert(field.rpc, token);
        }
        let ask = |rpc: &str| sound_request(rpc, &berts.conversation, "");
        let (watched, got) = (ask("WatchConversation"), ask("GetConversation"));
        berts.position = told(two, "WatchConversation", watched, "position").await;
        berts.etag = told(two, "GetConversation", got, "etag").await;
        berts
    }
}

/// Bert calls; what he is answered first.
async fn call(two: &Two, rpc: &str, request: Vec<u8>) -> Result<Vec<u8>, Status> {
    let path = every_rpc().into_iter().find(|known| known.name == rpc).expect("there is one").path;
    if rpc == "Chat" {
        // Its answer is stored at its end.
        return call_to_the_end(two.bert.clone(), &path, vec![request]).await.map(|()| Vec::new());
    }
    call_raw(two.bert.clone(), &path, request).await.map(Option::unwrap_or_default)
}

/// What a field of the answer to Bert holds.
async fn told(two: &Two, rpc: &str, request: Vec<u8>, name: &str) -> String {
    let answer = call(two, rpc, request).await.unwrap_or_else(|refused| panic!("{rpc}: {refused}"));
    let told = spelled_out(rpc, &answer).into_iter().find(|(path, _)| path == name);
    told.unwrap_or_else(|| panic!("{rpc} tells no {name}")).1
}

/// What a field holds that holds this.
fn filling(field: &Field, value: &str) -> Filling {
    match field.kind() {
        Type::String => Filling::Bytes(value.as_bytes().to_vec()),
        Type::Int64 => Filling::Varint(value.parse().expect("a number")),
        kind => panic!("{} {} is {kind:?}", field.rpc, field.path()),
    }
}

/// Every field that names something.
fn naming_fields() -> Vec<Field> {
    every_field().into_iter().filter(names_something).collect()
}

/// Which conversation a request names besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// None, or the one that is tried.
    Nothing,
    /// Bert's.
    Berts,
    /// One of the caller's own.
    Own,
}

/// A conversation with a question and its answer.
async fn own_conversation(guest: &Guest) -> String {
    let ask = pb::CreateConversationRequest::default();
    let made = ConversationServiceClient::new(guest.clone()).create_conversation(ask).await.expect("creates");
    let conversation_id = made.into_inner().conversation_id;
    let messages = vec![user("What is mine?"), assistant("This.")];
    let ask = pb::AppendMessagesRequest { conversation_id: conversation_id.clone(), messages, ..Default::default() };
    MessageServiceClient::new(guest.clone()).append_messages(ask).await.expect("appends");
    conversation_id
}

/// An answer, or code, words and details of a refusal, without what was shown and what is the caller's own.
type Told = Result<Vec<(String, String)>, (Code, String, String)>;

fn compared(rpc: &str, learnt: Learnt, shown: &[&str]) -> Told {
    // What was shown before has its place in answers too: the user of a session, for example.
    let shown = || shown.iter().chain(&["bert-", "none-"]);
    let hidden = |text: String| shown().fold(text, |text, shown| text.replace(shown, "…"));
    match learnt {
        Ok(answer) => {
            let mut told = spelled_out(rpc, &answer.unwrap_or_default());
            told.retain(|(path, _)| !OWN.contains(&path.rsplit('.').next().unwrap_or_default()));
            Ok(told.into_iter().map(|(path, held)| (path, hidden(held))).collect())
        }
        Err((code, words, details)) => {
            let mut details = Status::with_details(code, "", details.into()).get_error_details();
            // Facts have no order.
            let info = details.error_info().cloned().expect("every refusal has its reason");
            let facts: BTreeMap<String, String> = info.metadata.into_iter().collect();
            details.set_error_info(info.reason, info.domain, HashMap::new());
            Err((code, hidden(words), hidden(format!("{details:?}, {facts:?}"))))
        }
    }
}

/// One field of one RPC.
struct Cell<'a> {
    field: &'a Field,
    /// The RPC's.
    path: &'a str,
    values: Values,
    foreign: &'a str,
}

impl Cell<'_> {
    /// What a caller learns who shows this value.
    async fn learns(&self, caller: &Guest, value: &str, beside: Beside) -> Told {
        let conversation = match beside {
            Beside::Nothing => Uuid::nil().to_string(),
            Beside::Berts => self.foreign.to_owned(),
            Beside::Own => own_conversation(caller).await,
        };
        let asked = self.field.filled(&filling(self.field, value), &conversation, "");
        let learnt = learn(caller, self.path, asked).await;
        assert!(!holds_secret(&learnt), "{} {} tells: {learnt:?}", self.field.rpc, self.field.path());
        compared(&self.field.rpc, learnt, &[&conversation, &self.values.berts, &self.values.nobodys])
    }
}

/// Bert, and two who have never met: whatever one calls, the other calls too.
async fn strangers(model: &ScriptedModel) -> (Two, Guest) {
    let two = two_tenants_of(House::calling_guarded(model.settings(&[MODEL]), MODEL).await).await;
    let clara = two.house.key("clara", &anneal_core::caller::Verb::ALL).await;
    let clara = two.house.showing(&format!("Bearer {}", clara.text));
    (two, clara)
}

#[tokio::test]
async fn whatever_of_anothers_a_request_names_the_answer_is_that_to_what_nobody_has() {
    let model = ScriptedModel::saying("Quite so.").await;
    let (two, clara) = Box::pin(strangers(&model)).await;
    let berts = Berts::of(&two).await;
    let fields = naming_fields();
    let new = fields.iter().filter(|field| berts.values(field).is_none());
    let new: Vec<String> = new.map(|field| format!("{} {}", field.rpc, field.path())).collect();
    assert!(new.is_empty(), "names something, and there is nothing to show for it here: {new:?}");
    let bert = two.house.tenant("bert").await.0;
    let before = rows_of(&two.house, bert).await;
    let (mut asked, mut answered, mut wrong) = (0, 0, Vec::new());
    for rpc in every_rpc() {
        let of_rpc: Vec<&Field> = fields.iter().filter(|field| field.rpc == rpc.name).collect();
        assert_eq!(of_rpc.is_empty(), NAME_NOTHING.contains(&rpc.name.as_str()), "{}", rpc.name);
        for field in of_rpc {
            let values = berts.values(field).expect("checked before");
            let cell = Cell { field, path: &rpc.path, values, foreign: &two.foreign };
            let is_beside = rpc.names_conversation && field.name() != "conversation_id";
            let besides: &[Beside] = if is_beside { &[Beside::Berts, Beside::Own] } else { &[Beside::Nothing] };
            for beside in besides {
                let annas = cell.learns(&two.anna, &cell.values.berts, *beside).await;
                let claras = cell.learns(&clara, &cell.values.nobodys, *beside).await;
                asked += 1;
                answered += usize::from(annas.is_ok());
                let is_refused = *beside != Beside::Berts || rpc.name == "ListJobs" || annas.is_err();
                if annas != claras || !is_refused {
                    wrong.push(format!("{} {} beside {beside:?}: {annas:?}, {claras:?}", rpc.name, field.path()));
                }
            }
        }
        assert!(before == rows_of(&two.house, bert).await, "{} has changed what is Bert's", rpc.name);
    }
    println!("{} fields, {asked} times two requests, {answered} of them answered", fields.len());
    assert!(wrong.is_empty(), "{} of {asked}: {wrong:#?}", wrong.len());
    assert!(asked >= 100 && answered >= 30, "{asked} asked, {answered} answered");
}

/// Fields by which Bert finds what is his.
const FINDS: [(&str, &str); 10] = [
    ("GetConversation", "conversation_id"),
    ("ListMessages", "page_token"),
    ("ListConversations", "page_token"),
    ("ListCheckpoints", "page_token"),
    ("ListJobs", "page_token"),
    ("GetMessage", "message_id"),
    ("WatchConversation", "position"),
    ("CreateConversation", "request_id"),
    ("RotateSession", "request_id"),
    ("AppendMessages", "request_id"),
];

#[tokio::test]
async fn what_strangers_show_is_worth_something_to_its_owner() {
    let model = ScriptedModel::saying("Quite so.").await;
    let (two, _) = Box::pin(strangers(&model)).await;
    let berts = Berts::of(&two).await;
    for (rpc, path) in FINDS {
        let field = every_field().into_iter().find(|field| field.rpc == rpc && field.path() == path);
        let field = field.unwrap_or_else(|| panic!("{rpc} has no {path}"));
        let values = berts.values(&field).expect("a value to show");
        let mut told = Vec::new();
        for value in [&values.berts, &values.berts, &values.nobodys] {
            let asked = field.filled(&filling(&field, value), &berts.conversation, "");
            told.push(call(&two, rpc, asked).await.map(|answer| spelled_out(rpc, &answer)).ok());
        }
        assert!(told[0].is_some() && told[0] == told[1], "{rpc} {path}: {told:?}");
        assert_ne!(told[0], told[2], "{rpc} {path} makes no difference to him");
    }
}
