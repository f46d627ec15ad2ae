//! Attacks with reads that are costly to answer. `kind.rs` says what each attack does.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use super::{
    running_attack::{RunningAttack, session_path},
    stored_conversations::LARGEST,
};
use crate::{pb, request_fields::FieldValue};

/// A request of a random range of the largest message. The length 0 means: up to the end of the
/// message, at most 4 MiB.
fn range_request(attack: &RunningAttack, length: i64) -> pb::GetMessageRequest {
    let offset = attack.number(0..LARGEST as usize) as i64;
    pb::GetMessageRequest {
        conversation_id: attack.context.stored.largest.clone(),
        message_id: 1,
        range: Some(pb::ByteRange { offset, length }),
        ..Default::default()
    }
}

pub(super) async fn byte_ranges(attack: &RunningAttack) {
    let channel = attack.channel();
    attack
        .loop_concurrently(attack.number(16..65), async |_| {
            attack
                .call(
                    &channel,
                    "GetMessage",
                    &range_request(attack, attack.choose(&[1, 1, 1, 4_096, 0])),
                )
                .await;
        })
        .await;
}

/// A request of this conversation's context with random options.
fn context_request(attack: &RunningAttack, id: &str) -> pb::BuildContextRequest {
    pb::BuildContextRequest {
        conversation_id: id.into(),
        format: attack.number(0..4) as i32,
        budget_tokens: attack.choose(&[None, Some(1), Some(1_000), Some(100_000)]),
        pressure: attack.number(0..2) as i32,
        dry_run: attack.number(0..2) == 0,
        ..Default::default()
    }
}

/// The RPCs that build contexts.
const BUILDERS: [&str; 2] = ["BuildContext", "StreamContext"];

pub(super) async fn tiny_contexts(attack: &RunningAttack) {
    let channel = attack.channel();
    attack
        .loop_concurrently(4, async |place| {
            let id = attack.choose(&attack.context.stored.with_many_messages());
            if place == 0 {
                let ask = pb::GetContextUsageRequest {
                    conversation_id: id.into(),
                    ..Default::default()
                };
                attack.call(&channel, "GetContextUsage", &ask).await;
            } else {
                attack
                    .call(
                        &channel,
                        attack.choose(&BUILDERS),
                        &context_request(attack, id),
                    )
                    .await;
            }
        })
        .await;
}

pub(super) async fn large_contexts(attack: &RunningAttack) {
    let channel = attack.channel();
    attack
        .loop_concurrently(16, async |_| {
            let id = attack.choose(&attack.context.stored.with_large_messages());
            attack
                .call(
                    &channel,
                    attack.choose(&BUILDERS),
                    &context_request(attack, id),
                )
                .await;
        })
        .await;
}

pub(super) async fn cancelled_reads(attack: &RunningAttack) {
    let channel = attack.channel();
    attack
        .loop_concurrently(16, async |place| {
            let cancel_after = Duration::from_millis(attack.number(0..40) as u64);
            let read = async {
                match place % 4 {
                    0 => drop(
                        attack
                            .call(&channel, "GetMessage", &range_request(attack, 1))
                            .await,
                    ),
                    1 => drop(
                        attack
                            .call(
                                &channel,
                                "BuildContext",
                                &context_request(attack, &attack.context.stored.large),
                            )
                            .await,
                    ),
                    2 => drop(
                        attack
                            .call(
                                &channel,
                                "BuildContext",
                                &context_request(attack, &attack.context.stored.tiny),
                            )
                            .await,
                    ),
                    _ => {
                        let ask = pb::VerifyConversationRequest {
                            conversation_id: attack.context.stored.large.clone(),
                        };
                        attack.call(&channel, "VerifyConversation", &ask).await;
                    }
                }
            };
            let _ = tokio::time::timeout(cancel_after, read).await;
        })
        .await;
}

pub(super) async fn large_pages(attack: &RunningAttack) {
    let (channel, web) = (attack.channel(), attack.http_client());
    attack
        .loop_concurrently(16, async |place| {
            if place < 4 {
                let id =
                    attack.choose(&[&attack.context.stored.large, &attack.context.stored.tiny]);
                attack
                    .send(attack.request(&web, "GET", &session_path(id)))
                    .await;
                return;
            }
            let ask = pb::ListMessagesRequest {
                conversation_id: attack
                    .choose(&attack.context.stored.with_large_messages())
                    .into(),
                page_size: attack.choose(&[1, 2, 50, 500]),
                newest_first: attack.number(0..2) == 0,
                ..Default::default()
            };
            attack.call(&channel, "ListMessages", &ask).await;
        })
        .await;
}

pub(super) async fn verifications(attack: &RunningAttack) {
    let channel = attack.channel();
    attack
        .loop_concurrently(4, async |place| {
            let id = if place % 2 == 0 {
                attack.choose(&attack.context.stored.with_many_messages())
            } else {
                attack.choose(&attack.context.stored.with_large_messages())
            };
            let ask = pb::VerifyConversationRequest {
                conversation_id: id.into(),
            };
            attack.call(&channel, "VerifyConversation", &ask).await;
        })
        .await;
}

pub(super) async fn forged_tokens(attack: &RunningAttack) {
    let channel = attack.channel();
    let names = ["page_token", "position", "etag"];
    let forgeable: Vec<_> = attack
        .context
        .fields
        .iter()
        .filter(|field| names.contains(&field.name()))
        .cloned()
        .collect();
    attack
        .loop_concurrently(16, async |_| {
            let field = attack.choose(&forgeable);
            let bytes: Vec<u8> = (0..attack.number(0..200))
                .map(|_| attack.number(0..256) as u8)
                .collect();
            let token = match attack.number(0..3) {
                0 => URL_SAFE_NO_PAD.encode(&bytes),
                1 => "A".repeat(attack.number(0..1 << 20)),
                _ => attack.word(),
            };
            let filling = FieldValue::Bytes(token.into_bytes());
            attack
                .call_raw(
                    &channel,
                    &field.rpc,
                    field.filled(&filling, &attack.context.stored.calls, &attack.word()),
                )
                .await;
        })
        .await;
}
