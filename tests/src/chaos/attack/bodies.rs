//! Requests that are costly to read, or to refuse.

use std::fmt::Write as _;

use prost::bytes::Bytes;
use serde_json::json;

use super::{
    attacker::{Strike, session},
    jobs::hostile_text,
    stock::AGENT,
};
use crate::{fields::Filling, pb};

/// Most bytes of a request, with room for what stands beside.
const MOST: usize = (4 << 20) - 4_096;
/// Most bytes of a system prompt.
const PROMPT: usize = 256 * 1_024;

/// A name that takes time where each of its words is written anew.
fn long_name(bytes: usize) -> String {
    "a_".repeat(bytes / 2)
}

pub(super) async fn huge_names(on: &Strike) {
    let (web, guest) = (on.web(), on.guest());
    let name = long_name(on.number(1 << 20..MOST));
    let labels = Bytes::from(json!({"metadata": {&name: "x"}}).to_string());
    let unknown = Bytes::from(json!({"message": 1, &name: 1}).to_string());
    let conversation = pb::Conversation {
        conversation_id: on.means.stock.tiny.clone(),
        metadata: [(name.clone(), String::new())].into(),
        ..Default::default()
    };
    let update = pb::UpdateConversationRequest {
        conversation: Some(conversation),
        update_mask: Some(prost_types::FieldMask { paths: vec!["metadata".into()] }),
        ..Default::default()
    };
    let mask = pb::UpdateConversationRequest {
        update_mask: Some(prost_types::FieldMask { paths: vec![name] }),
        ..update.clone()
    };
    on.forever(4, async |place| {
        let labelled = session(&on.means.stock.tiny);
        let json = |method, path, body: &Bytes| {
            on.request(&web, method, path).header("content-type", "application/json").body(body.clone())
        };
        match place {
            0 => drop(on.send(json("PATCH", &labelled, &labels)).await),
            1 => drop(on.send(json("POST", &format!("/api/agents/{AGENT}/chat"), &unknown)).await),
            2 => drop(on.call(&guest, "UpdateConversation", &update).await),
            _ => drop(on.call(&guest, "UpdateConversation", &mask).await),
        }
    })
    .await;
}

/// So many fields of an object that nobody knows.
fn unknown_fields(count: usize) -> String {
    (0..count).fold(String::new(), |mut fields, n| {
        let _ = write!(fields, "\"f{n}\":1,");
        fields
    })
}

pub(super) async fn huge_json(on: &Strike) {
    let web = on.web();
    let shapes = [
        "[".repeat(MOST),
        "{\"a\":".repeat(MOST / 5),
        format!("[{}0]", "0,".repeat(MOST / 2 - 8)),
        format!("{{{}\"z\":0}}", unknown_fields(250_000)),
        format!("{{\"message\":\"{}\"}}", "\\u00e9".repeat(MOST / 6 - 8)),
        format!("{{\"metadata\":{{{}\"z\":\"\"}}}}", "\"a\":\"\",".repeat(MOST / 7 - 16)),
        "9".repeat(MOST),
        "\u{0}".repeat(MOST),
    ];
    let shape = Bytes::from(on.choose(&shapes));
    on.forever(4, async |_| {
        let (path, old) = (format!("/api/agents/{AGENT}/chat"), session(&on.means.stock.tiny));
        let (method, path) = on.choose(&[("POST", path.clone()), ("PATCH", old), ("DELETE", path)]);
        let request = on.request(&web, method, &path).header("content-type", "application/json");
        on.send(request.body(shape.clone())).await;
    })
    .await;
}

pub(super) async fn empty_elements(on: &Strike) {
    let guest = on.guest();
    let repeated: Vec<_> = on.means.fields.iter().filter(|field| field.is_repeated()).cloned().collect();
    let field = on.choose(&repeated);
    let empty = vec![Filling::Bytes(Vec::new()); MOST / 2 - 512];
    let request = field.filled_with(&empty, &on.means.stock.tiny, &on.word());
    on.forever(4, async |_| drop(on.call_raw(&guest, &field.rpc, request.clone()).await)).await;
}

pub(super) async fn nonsense(on: &Strike) {
    let guest = on.guest();
    let id = on.conversation(&guest).await.unwrap_or_default();
    on.forever(8, async |_| {
        let field = on.choose(&on.means.fields);
        let filling = match on.number(0..5) {
            0 => Filling::Bytes(vec![b'a'; on.number(0..1 << 20)]),
            1 => Filling::Bytes(vec![0xff; on.number(0..1 << 20)]),
            2 => Filling::Bytes("\u{35f}".repeat(on.number(0..100_000)).into_bytes()),
            3 => Filling::Varint(u64::MAX - on.number(0..3) as u64),
            _ => Filling::Cut,
        };
        on.call_raw(&guest, &field.rpc, field.filled(&filling, &id, &on.word())).await;
    })
    .await;
}

pub(super) async fn large_prompts(on: &Strike) {
    let guest = on.guest();
    let system_prompt = hostile_text(on, PROMPT);
    let Some(conversation_id) = on.conversation(&guest).await else { return };
    let create = pb::CreateConversationRequest {
        agent_id: AGENT.into(),
        system_prompt: system_prompt.clone(),
        ..Default::default()
    };
    let conversation = pb::Conversation {
        conversation_id: conversation_id.clone(),
        system_prompt: system_prompt.clone(),
        ..Default::default()
    };
    let update = pb::UpdateConversationRequest {
        conversation: Some(conversation),
        update_mask: Some(prost_types::FieldMask { paths: vec!["system_prompt".into()] }),
        ..Default::default()
    };
    let build = pb::BuildContextRequest { conversation_id, system_prompt: Some(system_prompt), ..Default::default() };
    on.forever(8, async |place| match place % 3 {
        0 => drop(on.call(&guest, "CreateConversation", &create).await),
        1 => drop(on.call(&guest, "UpdateConversation", &update).await),
        _ => drop(on.call(&guest, "BuildContext", &build).await),
    })
    .await;
}

pub(super) async fn classifications(on: &Strike) {
    let guest = on.guest();
    let bodies = [
        "{\"error\":".repeat(130_000).into_bytes(),
        "data: {\"error\":{\"message\":\"maximum context length is 1 tokens\"}}\n\n".repeat(15_000).into_bytes(),
        "maximum context length is ".repeat(40_000).into_bytes(),
        vec![0xff; 1 << 20],
        "<html>".repeat(170_000).into_bytes(),
    ];
    on.forever(4, async |_| {
        let ask = pb::ClassifyErrorRequest {
            status: on.choose(&[400, 413, 429, 500]),
            body: on.choose(&bodies),
            streamed: on.number(0..2) == 0,
            ..Default::default()
        };
        on.call(&guest, "ClassifyError", &ask).await;
    })
    .await;
}
