//! Every request field that names something is sent with a value of another tenant, Bert. The
//! answer must be the same as for a value of the same form that does not exist, and no row of Bert
//! may change. RPCs and fields come from the descriptors: a new field that names something fails
//! the test until it has values here.

use std::collections::{BTreeMap, HashMap};

use anneal_testkit::{
    AuthorizedChannel, MODEL, ScriptedModel, TestApp, answer_fields, assistant, call_raw,
    call_to_the_end, every_rpc, pb,
    request_fields::{Field, FieldValue, every_field},
    user, valid_request,
};
use pb::{
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use prost_types::field_descriptor_proto::Type;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use uuid::Uuid;

use crate::isolation::{
    foreign_conversations::{Outcome, TwoTenants, create_two_tenants, observe},
    unfiltered::{holds_secret, rows_of},
};

/// RPCs whose requests name nothing.
const WITHOUT_NAMES: [&str; 4] = [
    "ClassifyError",
    "GetQueueStats",
    "GetModelStats",
    "GetInstallationStats",
];
/// The id of the message before Bert's first separator. The other tenants have fewer messages.
const SEPARATED_MESSAGE: &str = "16";
/// A message id that nobody has.
const NO_MESSAGE: &str = "77";
/// Fields of answers that differ between conversations, between erasures or between tenants.
const DIFFERING: [&str; 6] = [
    "conversation_id",
    "position",
    "next_page_token",
    "erasure_id",
    "subject_digest",
    "requested_by",
];
/// RPCs that Bert does not call: those that delete, withdraw, choose, edit or erase, GetErasure,
/// whose valid request names no erasure, ImportCheckpoint, because a checkpoint exists, and
/// CancelTurn, because no turn of his is under way.
const NOT_CALLED: [&str; 12] = [
    "CancelTurn",
    "ChooseAlternative",
    "DeleteConversation",
    "DeleteSeparator",
    "DiscardJob",
    "EditMessage",
    "EraseMessages",
    "EraseTenant",
    "GetErasure",
    "ImportCheckpoint",
    "Rewind",
    "WithdrawMessages",
];
/// RPCs with which Bert creates the names (agents, users, groups, tool calls) that others send.
const NAMING_RPCS: [&str; 3] = ["CreateConversation", "ResolveSession", "AppendMessages"];

/// Two values for a field: one of Bert's, and one that nobody has. They have the same length, so
/// that answers differ in nothing else.
struct Values {
    berts: String,
    unknown: String,
}

/// Bert's values, which others send.
struct BertsValues {
    conversation: String,
    etag: String,
    session_key: String,
    position: String,
    erasure: String,
    /// A page token of each list, by RPC.
    page_tokens: BTreeMap<String, String>,
}

/// Whether a field identifies something.
fn names_something(field: &Field) -> bool {
    let endings = [
        "_id",
        "_ids",
        "_key",
        "_keys",
        "_token",
        "_position",
        "_cursor",
        "_etag",
    ];
    let name = field.name();
    ["id", "ids", "position", "cursor", "etag", "channel"].contains(&name)
        || endings.iter().any(|ending| name.ends_with(ending))
}

/// A value that differs from another in one character.
fn altered(value: &str) -> String {
    let other = if &value[5..6] == "A" { "B" } else { "A" };
    [&value[..5], other, &value[6..]].concat()
}

impl BertsValues {
    /// Values for a field. None: the field is not known here.
    fn values(&self, field: &Field) -> Option<Values> {
        let values = |berts: &str, unknown: &str| {
            Some(Values {
                berts: berts.to_owned(),
                unknown: unknown.to_owned(),
            })
        };
        let named = |name: &str| values(&format!("bert-{name}"), &format!("none-{name}"));
        match field.name() {
            "conversation_id" | "forked_from_conversation_id" => {
                values(&self.conversation, &Uuid::now_v7().to_string())
            }
            "message_id"
            | "message_ids"
            | "after_message_id"
            | "before_message_id"
            | "first_message_id"
            | "last_message_id"
            | "expected_last_message_id"
            | "edit_message_id"
            | "question_message_id"
            | "forked_message_id" => values(SEPARATED_MESSAGE, NO_MESSAGE),
            "erasure_id" => values(&self.erasure, &Uuid::now_v7().to_string()),
            "request_id" | "turn_request_id" => named(&field.rpc),
            name @ ("agent_id" | "user_id" | "account_id" | "thread_id" | "group_id"
            | "sender_id" | "channel") => named(name),
            "id" | "tool_use_id" => named("call"),
            "etag" => values(&self.etag, &"9".repeat(self.etag.len())),
            "session_key" => values(
                &self.session_key,
                &self.session_key.replace("bert-", "none-"),
            ),
            "position" => values(&self.position, &altered(&self.position)),
            "page_token" => self
                .page_tokens
                .get(&field.rpc)
                .and_then(|token| values(token, &altered(token))),
            _ => None,
        }
    }

    /// Makes Bert's calls and collects his values.
    async fn create(tenants: &TwoTenants) -> Self {
        let mut berts = Self {
            conversation: tenants.foreign.clone(),
            etag: String::new(),
            session_key: String::new(),
            position: String::new(),
            erasure: String::new(),
            page_tokens: BTreeMap::new(),
        };
        for rpc in every_rpc()
            .into_iter()
            .filter(|rpc| !NOT_CALLED.contains(&rpc.name.as_str()))
        {
            let ask = valid_request(
                &rpc.name,
                &berts.conversation,
                &format!("bert-{}", rpc.name),
            );
            let called = call(tenants, &rpc.name, ask).await;
            called.unwrap_or_else(|refused| panic!("{}: {refused}", rpc.name));
        }
        for field in naming_fields()
            .iter()
            .filter(|field| NAMING_RPCS.contains(&field.rpc.as_str()))
        {
            let values = berts
                .values(field)
                .filter(|values| values.berts.starts_with("bert-"));
            let Some(values) = values else { continue };
            let ask = field.filled(&field_value(field, &values.berts), &berts.conversation, "");
            if field.name() == "sender_id" {
                berts.session_key = call_for_field(tenants, &field.rpc, ask, "session_key").await;
            } else {
                // Some are refused: the `defaults` of a session may not contain a request id.
                let _ = call(tenants, &field.rpc, ask).await;
            }
        }
        // A second erasure, so that the list of erasures has a second page.
        let again = valid_request("EraseUser", &berts.conversation, "bert-again");
        berts.erasure = call_for_field(tenants, "EraseUser", again, "erasure_id").await;
        for field in every_field()
            .into_iter()
            .filter(|field| field.path() == "page_size")
        {
            let ask = field.filled(&FieldValue::Varint(1), &berts.conversation, "");
            let token = call_for_field(tenants, &field.rpc, ask, "next_page_token").await;
            berts.page_tokens.insert(field.rpc, token);
        }
        let ask = |rpc: &str| valid_request(rpc, &berts.conversation, "");
        let (watched, got) = (ask("WatchConversation"), ask("GetConversation"));
        berts.position = call_for_field(tenants, "WatchConversation", watched, "position").await;
        berts.etag = call_for_field(tenants, "GetConversation", got, "etag").await;
        berts
    }
}

/// Calls an RPC as Bert. Returns the first message of the answer.
async fn call(tenants: &TwoTenants, rpc: &str, request: Vec<u8>) -> Result<Vec<u8>, Status> {
    let path = every_rpc()
        .into_iter()
        .find(|known| known.name == rpc)
        .expect("there is one")
        .path;
    if rpc == "Chat" {
        // The answer is stored at its end.
        return call_to_the_end(tenants.bert.clone(), &path, vec![request])
            .await
            .map(|()| Vec::new());
    }
    call_raw(tenants.bert.clone(), &path, request)
        .await
        .map(Option::unwrap_or_default)
}

/// Calls an RPC as Bert. Returns a field of the answer.
async fn call_for_field(tenants: &TwoTenants, rpc: &str, request: Vec<u8>, name: &str) -> String {
    let answer = call(tenants, rpc, request)
        .await
        .unwrap_or_else(|refused| panic!("{rpc}: {refused}"));
    let found = answer_fields(rpc, &answer)
        .into_iter()
        .find(|(path, _)| path == name);
    found.unwrap_or_else(|| panic!("{rpc} answers no {name}")).1
}

/// The field value for this text.
fn field_value(field: &Field, value: &str) -> FieldValue {
    match field.kind() {
        Type::String => FieldValue::Bytes(value.as_bytes().to_vec()),
        Type::Int64 => FieldValue::Varint(value.parse().expect("a number")),
        kind => panic!("{} {} is {kind:?}", field.rpc, field.path()),
    }
}

/// Every field that names something.
fn naming_fields() -> Vec<Field> {
    every_field().into_iter().filter(names_something).collect()
}

/// The owner of the conversation that a request names in a second field, beside the probed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The request has no such second field.
    Nobody,
    Bert,
    Caller,
}

/// Creates a conversation with a question and an answer.
async fn create_conversation(channel: &AuthorizedChannel) -> String {
    let ask = pb::CreateConversationRequest::default();
    let made = ConversationServiceClient::new(channel.clone())
        .create_conversation(ask)
        .await
        .expect("creates");
    let conversation_id = made.into_inner().conversation_id;
    let messages = vec![user("What is mine?"), assistant("This.")];
    let ask = pb::AppendMessagesRequest {
        conversation_id: conversation_id.clone(),
        messages,
        ..Default::default()
    };
    MessageServiceClient::new(channel.clone())
        .append_messages(ask)
        .await
        .expect("appends");
    conversation_id
}

/// An [`Outcome`] without the sent values and without the fields that differ between conversations,
/// so that outcomes of two tenants can be compared.
type Comparable = Result<Vec<(String, String)>, (Code, String, String)>;

fn comparable(rpc: &str, outcome: Outcome, sent: &[&str]) -> Comparable {
    // Values of earlier requests are in answers too, for example the user of a session.
    let sent = || sent.iter().chain(&["bert-", "none-"]);
    let hidden = |text: String| sent().fold(text, |text, value| text.replace(value, "…"));
    match outcome {
        Ok(answer) => {
            let mut fields = answer_fields(rpc, &answer.unwrap_or_default());
            fields.retain(|(path, _)| {
                !DIFFERING.contains(&path.rsplit('.').next().unwrap_or_default())
            });
            Ok(fields
                .into_iter()
                .map(|(path, value)| (path, hidden(value)))
                .collect())
        }
        Err((code, words, details)) => {
            let mut details = Status::with_details(code, "", details.into()).get_error_details();
            // The metadata of the reason is a map without an order.
            let info = details
                .error_info()
                .cloned()
                .expect("every refusal has a reason");
            let facts: BTreeMap<String, String> = info.metadata.into_iter().collect();
            details.set_error_info(info.reason, info.domain, HashMap::new());
            Err((
                code,
                hidden(words),
                hidden(format!("{details:?}, {facts:?}")),
            ))
        }
    }
}

/// A field of an RPC, and the values that are sent in it.
struct FieldProbe<'a> {
    field: &'a Field,
    /// Path of the RPC.
    path: &'a str,
    values: Values,
    /// Bert's conversation.
    foreign: &'a str,
}

impl FieldProbe<'_> {
    /// Sends this value as `caller`, in a request that names a conversation of this owner. Returns
    /// the comparable outcome.
    async fn send(&self, caller: &AuthorizedChannel, value: &str, owner: Owner) -> Comparable {
        let conversation = match owner {
            Owner::Nobody => Uuid::nil().to_string(),
            Owner::Bert => self.foreign.to_owned(),
            Owner::Caller => create_conversation(caller).await,
        };
        let asked = self
            .field
            .filled(&field_value(self.field, value), &conversation, "");
        let outcome = observe(caller, self.path, asked).await;
        assert!(
            !holds_secret(&outcome),
            "{} {} reveals: {outcome:?}",
            self.field.rpc,
            self.field.path()
        );
        comparable(
            &self.field.rpc,
            outcome,
            &[&conversation, &self.values.berts, &self.values.unknown],
        )
    }
}

/// Starts an app with Bert, Anna and Clara. Anna and Clara make the same calls.
async fn start_three_tenants(model: &ScriptedModel) -> (TwoTenants, AuthorizedChannel) {
    let tenants =
        create_two_tenants(TestApp::with_models_and_keys(model.settings(&[MODEL]), MODEL).await)
            .await;
    let clara = tenants
        .app
        .key("clara", &anneal_core::caller::Verb::ALL)
        .await;
    let clara = tenants
        .app
        .authorized_channel(&format!("Bearer {}", clara.text));
    (tenants, clara)
}

#[tokio::test]
async fn foreign_ids_are_answered_like_unknown_ids() {
    let model = ScriptedModel::saying("Quite so.").await;
    let (tenants, clara) = Box::pin(start_three_tenants(&model)).await;
    let berts = BertsValues::create(&tenants).await;
    let fields = naming_fields();
    let without_values = fields.iter().filter(|field| berts.values(field).is_none());
    let without_values: Vec<String> = without_values
        .map(|field| format!("{} {}", field.rpc, field.path()))
        .collect();
    assert!(
        without_values.is_empty(),
        "fields that name something and have no values here: {without_values:?}"
    );
    let bert = tenants.app.tenant("bert").await.0;
    let before = rows_of(&tenants.app, bert).await;
    let (mut asked, mut answered, mut wrong) = (0, 0, Vec::new());
    for rpc in every_rpc() {
        let of_rpc: Vec<&Field> = fields
            .iter()
            .filter(|field| field.rpc == rpc.name)
            .collect();
        assert_eq!(
            of_rpc.is_empty(),
            WITHOUT_NAMES.contains(&rpc.name.as_str()),
            "{}",
            rpc.name
        );
        for field in of_rpc {
            let values = berts.values(field).expect("checked before");
            let probe = FieldProbe {
                field,
                path: &rpc.path,
                values,
                foreign: &tenants.foreign,
            };
            let has_second_field = rpc.names_conversation && field.name() != "conversation_id";
            let owners: &[Owner] = if has_second_field {
                &[Owner::Bert, Owner::Caller]
            } else {
                &[Owner::Nobody]
            };
            for owner in owners {
                let annas = probe.send(&tenants.anna, &probe.values.berts, *owner).await;
                let claras = probe.send(&clara, &probe.values.unknown, *owner).await;
                asked += 1;
                answered += usize::from(annas.is_ok());
                // A request that names Bert's conversation is refused. ListJobs answers an empty
                // list.
                let protects_bert =
                    *owner != Owner::Bert || rpc.name == "ListJobs" || annas.is_err();
                if annas != claras || !protects_bert {
                    wrong.push(format!(
                        "{} {} with a conversation of {owner:?}: Bert's value is answered {annas:?}, an unknown one {claras:?}",
                        rpc.name,
                        field.path()
                    ));
                }
            }
        }
        assert!(
            before == rows_of(&tenants.app, bert).await,
            "{} has changed rows of Bert",
            rpc.name
        );
    }
    println!(
        "{} fields, {asked} pairs of requests, {answered} of them answered",
        fields.len()
    );
    assert!(wrong.is_empty(), "{} of {asked}: {wrong:#?}", wrong.len());
    assert!(
        asked >= 100 && answered >= 30,
        "{asked} pairs of requests, {answered} of them answered"
    );
}

/// Fields with which Bert finds his own data.
const LOOKUP_FIELDS: [(&str, &str); 13] = [
    ("GetConversation", "conversation_id"),
    ("ListMessages", "page_token"),
    ("ListConversations", "page_token"),
    ("ListCheckpoints", "page_token"),
    ("ListCacheEras", "page_token"),
    ("ListJobs", "page_token"),
    ("ListErasures", "page_token"),
    ("GetErasure", "erasure_id"),
    ("GetMessage", "message_id"),
    ("WatchConversation", "position"),
    ("CreateConversation", "request_id"),
    ("RotateSession", "request_id"),
    ("AppendMessages", "request_id"),
];

#[tokio::test]
async fn the_same_ids_work_for_their_owner() {
    let model = ScriptedModel::saying("Quite so.").await;
    let (tenants, _) = Box::pin(start_three_tenants(&model)).await;
    let berts = BertsValues::create(&tenants).await;
    for (rpc, path) in LOOKUP_FIELDS {
        let field = every_field()
            .into_iter()
            .find(|field| field.rpc == rpc && field.path() == path);
        let field = field.unwrap_or_else(|| panic!("{rpc} has no {path}"));
        let values = berts.values(&field).expect("a value");
        let mut answers = Vec::new();
        for value in [&values.berts, &values.berts, &values.unknown] {
            let asked = field.filled(&field_value(&field, value), &berts.conversation, "");
            answers.push(
                call(&tenants, rpc, asked)
                    .await
                    .map(|answer| answer_fields(rpc, &answer))
                    .ok(),
            );
        }
        assert!(
            answers[0].is_some() && answers[0] == answers[1],
            "{rpc} {path}: {answers:?}"
        );
        assert_ne!(
            answers[0], answers[2],
            "{rpc} {path} makes no difference for Bert"
        );
    }
}
