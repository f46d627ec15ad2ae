//! Attacks with requests that are costly to parse or to refuse. `kind.rs` says what each attack
//! does.

use std::fmt::Write as _;

use prost::bytes::Bytes;
use serde_json::json;

use super::{
    jobs::hostile_text,
    running_attack::{RunningAttack, session_path},
    stored_conversations::AGENT,
};
use crate::{pb, request_fields::FieldValue};

/// Size of a large field or JSON body in bytes. With its other fields, a request is just below
/// 4 MiB, the largest that the server accepts.
const FIELD_BYTES: usize = (4 << 20) - 4_096;
/// Size of the largest system prompt that the server accepts, in bytes.
const PROMPT_BYTES: usize = 256 * 1_024;

/// A field name of many words. An error message that converts each word takes long to write.
fn long_name(bytes: usize) -> String {
    "a_".repeat(bytes / 2)
}

pub(super) async fn huge_names(attack: &RunningAttack) {
    let (web, channel) = (attack.http_client(), attack.channel());
    let name = long_name(attack.number(1 << 20..FIELD_BYTES));
    let metadata = Bytes::from(json!({"metadata": {&name: "x"}}).to_string());
    let unknown_field = Bytes::from(json!({"message": 1, &name: 1}).to_string());
    let conversation = pb::Conversation {
        conversation_id: attack.context.stored.tiny.clone(),
        metadata: [(name.clone(), String::new())].into(),
        ..Default::default()
    };
    let update = pb::UpdateConversationRequest {
        conversation: Some(conversation),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["metadata".into()],
        }),
        ..Default::default()
    };
    let bad_mask = pb::UpdateConversationRequest {
        update_mask: Some(prost_types::FieldMask { paths: vec![name] }),
        ..update.clone()
    };
    attack
        .loop_concurrently(4, async |place| {
            let session = session_path(&attack.context.stored.tiny);
            let json_request = |method, path, body: &Bytes| {
                attack
                    .request(&web, method, path)
                    .header("content-type", "application/json")
                    .body(body.clone())
            };
            match place {
                0 => drop(
                    attack
                        .send(json_request("PATCH", &session, &metadata))
                        .await,
                ),
                1 => drop(
                    attack
                        .send(json_request(
                            "POST",
                            &format!("/api/agents/{AGENT}/chat"),
                            &unknown_field,
                        ))
                        .await,
                ),
                2 => drop(attack.call(&channel, "UpdateConversation", &update).await),
                _ => drop(attack.call(&channel, "UpdateConversation", &bad_mask).await),
            }
        })
        .await;
}

/// The text of `count` unknown fields of a JSON object.
fn unknown_fields(count: usize) -> String {
    (0..count).fold(String::new(), |mut fields, n| {
        let _ = write!(fields, "\"f{n}\":1,");
        fields
    })
}

pub(super) async fn huge_json(attack: &RunningAttack) {
    let web = attack.http_client();
    // The divisor of FIELD_BYTES is the length of the repeated piece in bytes. The subtracted
    // number leaves room for the text around the pieces.
    let shapes = [
        "[".repeat(FIELD_BYTES),
        "{\"a\":".repeat(FIELD_BYTES / 5),
        format!("[{}0]", "0,".repeat(FIELD_BYTES / 2 - 8)),
        format!("{{{}\"z\":0}}", unknown_fields(250_000)),
        format!(
            "{{\"message\":\"{}\"}}",
            "\\u00e9".repeat(FIELD_BYTES / 6 - 8)
        ),
        format!(
            "{{\"metadata\":{{{}\"z\":\"\"}}}}",
            "\"a\":\"\",".repeat(FIELD_BYTES / 7 - 16)
        ),
        "9".repeat(FIELD_BYTES),
        "\u{0}".repeat(FIELD_BYTES),
    ];
    let shape = Bytes::from(attack.choose(&shapes));
    attack
        .loop_concurrently(4, async |_| {
            let (path, session) = (
                format!("/api/agents/{AGENT}/chat"),
                session_path(&attack.context.stored.tiny),
            );
            let (method, path) =
                attack.choose(&[("POST", path.clone()), ("PATCH", session), ("DELETE", path)]);
            let request = attack
                .request(&web, method, &path)
                .header("content-type", "application/json");
            attack.send(request.body(shape.clone())).await;
        })
        .await;
}

pub(super) async fn empty_elements(attack: &RunningAttack) {
    let channel = attack.channel();
    let repeated: Vec<_> = attack
        .context
        .fields
        .iter()
        .filter(|field| field.is_repeated())
        .cloned()
        .collect();
    let field = attack.choose(&repeated);
    // An empty element takes two bytes: its field's tag and the length 0.
    let empty = vec![FieldValue::Bytes(Vec::new()); FIELD_BYTES / 2 - 512];
    let request = field.filled_with(&empty, &attack.context.stored.tiny, &attack.word());
    attack
        .loop_concurrently(4, async |_| {
            drop(attack.call_raw(&channel, &field.rpc, request.clone()).await);
        })
        .await;
}

pub(super) async fn nonsense(attack: &RunningAttack) {
    let channel = attack.channel();
    let id = attack
        .create_conversation(&channel)
        .await
        .unwrap_or_default();
    attack
        .loop_concurrently(8, async |_| {
            let field = attack.choose(&attack.context.fields);
            let filling = match attack.number(0..5) {
                0 => FieldValue::Bytes(vec![b'a'; attack.number(0..1 << 20)]),
                1 => FieldValue::Bytes(vec![0xff; attack.number(0..1 << 20)]),
                2 => FieldValue::Bytes("\u{35f}".repeat(attack.number(0..100_000)).into_bytes()),
                3 => FieldValue::Varint(u64::MAX - attack.number(0..3) as u64),
                _ => FieldValue::Cut,
            };
            attack
                .call_raw(
                    &channel,
                    &field.rpc,
                    field.filled(&filling, &id, &attack.word()),
                )
                .await;
        })
        .await;
}

pub(super) async fn large_prompts(attack: &RunningAttack) {
    let channel = attack.channel();
    let system_prompt = hostile_text(attack, PROMPT_BYTES);
    let Some(conversation_id) = attack.create_conversation(&channel).await else {
        return;
    };
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
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["system_prompt".into()],
        }),
        ..Default::default()
    };
    let build = pb::BuildContextRequest {
        conversation_id,
        system_prompt: Some(system_prompt),
        ..Default::default()
    };
    attack
        .loop_concurrently(8, async |place| match place % 3 {
            0 => drop(attack.call(&channel, "CreateConversation", &create).await),
            1 => drop(attack.call(&channel, "UpdateConversation", &update).await),
            _ => drop(attack.call(&channel, "BuildContext", &build).await),
        })
        .await;
}

pub(super) async fn classifications(attack: &RunningAttack) {
    let channel = attack.channel();
    let bodies = [
        "{\"error\":".repeat(130_000).into_bytes(),
        "data: {\"error\":{\"message\":\"maximum context length is 1 tokens\"}}\n\n"
            .repeat(15_000)
            .into_bytes(),
        "maximum context length is ".repeat(40_000).into_bytes(),
        vec![0xff; 1 << 20],
        "<html>".repeat(170_000).into_bytes(),
    ];
    attack
        .loop_concurrently(4, async |_| {
            let ask = pb::ClassifyErrorRequest {
                status: attack.choose(&[400, 413, 429, 500]),
                body: attack.choose(&bodies),
                streamed: attack.number(0..2) == 0,
                ..Default::default()
            };
            attack.call(&channel, "ClassifyError", &ask).await;
        })
        .await;
}
