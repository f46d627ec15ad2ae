//! Attacks with changes that cause jobs, or that wait for each other's locks. `kind.rs` says what
//! each attack does.

use pb::append_large_message_request::{Frame, Header};
use prost::Message as _;

use super::running_attack::RunningAttack;
use crate::{direct_scope, pb, prose, text, user};

/// A text of at most this many bytes, and nearly as many, that is costly to count or to summarize.
pub(super) fn hostile_text(attack: &RunningAttack, bytes: usize) -> String {
    let piece = match attack.number(0..7) {
        0 => "x".to_owned(),
        1 => " ".to_owned(),
        2 => "a\u{35f}\u{35f}\u{35f}".to_owned(),
        3 => "👩‍👩‍👧".to_owned(),
        4 => "\n\n- ".to_owned(),
        5 => "QUFBQUFBQUFB".to_owned(),
        _ => prose(attack.number(0..1_000), 3),
    };
    piece.repeat(bytes / piece.len())
}

pub(super) async fn hostile_texts(attack: &RunningAttack) {
    let channel = attack.channel();
    attack
        .loop_concurrently(2, async |_| {
            let Some(id) = attack.create_conversation(&channel).await else {
                return;
            };
            let text = hostile_text(attack, attack.number(10_000..1 << 20));
            attack
                .append(&channel, &id, vec![user(&text), user("and?")])
                .await;
        })
        .await;
}

pub(super) async fn many_conversations(attack: &RunningAttack) {
    let channel = attack.channel();
    attack
        .loop_concurrently(16, async |_| {
            if let Some(id) = attack.create_conversation(&channel).await {
                attack.append(&channel, &id, vec![user("hello")]).await;
            }
        })
        .await;
}

pub(super) async fn separators(attack: &RunningAttack) {
    let channel = attack.channel();
    let Some(id) = attack.create_conversation(&channel).await else {
        return;
    };
    attack
        .loop_concurrently(8, async |place| {
            if place < 6 {
                attack.append(&channel, &id, vec![user("a")]).await;
                let ask = pb::InsertSeparatorRequest {
                    conversation_id: id.clone(),
                    ..Default::default()
                };
                attack.call(&channel, "InsertSeparator", &ask).await;
            } else {
                let ask = pb::DeleteSeparatorRequest {
                    conversation_id: id.clone(),
                    after_message_id: attack.number(0..100) as i64,
                    request_id: attack.word(),
                };
                attack.call(&channel, "DeleteSeparator", &ask).await;
                let ask = pb::ListMessagesRequest {
                    conversation_id: id.clone(),
                    page_size: 500,
                    ..Default::default()
                };
                attack.call(&channel, "ListMessages", &ask).await;
            }
        })
        .await;
}

pub(super) async fn checkpoints(attack: &RunningAttack) {
    let channel = attack.channel();
    let Some(id) = attack.create_conversation(&channel).await else {
        return;
    };
    // Messages and summary are given in sentences of nearly 100 bytes. Each message is longer than
    // the summary, which must be shorter than the messages that it replaces.
    let large: Vec<pb::NewMessage> = (0..3).map(|_| user(&prose(0, 14_000))).collect();
    attack.append(&channel, &id, large).await;
    let summary = prose(0, 11_000);
    attack
        .loop_concurrently(8, async |place| match place {
            0..4 => {
                let ask = pb::ImportCheckpointRequest {
                    conversation_id: id.clone(),
                    last_message_id: attack.number(1..4) as i64,
                    summary: summary.clone(),
                    ..Default::default()
                };
                attack.call(&channel, "ImportCheckpoint", &ask).await;
            }
            4..6 => {
                let ask = pb::CompactRequest {
                    conversation_id: attack
                        .choose(&[
                            &attack.context.stored.tiny,
                            &attack.context.stored.large,
                            &id,
                        ])
                        .clone(),
                    request_id: attack.word(),
                    wait: Some(prost_types::Duration {
                        seconds: 60,
                        nanos: 0,
                    }),
                    dry_run: attack.number(0..4) == 0,
                    ..Default::default()
                };
                attack.call(&channel, "Compact", &ask).await;
            }
            _ => {
                let ask = pb::ListCheckpointsRequest {
                    conversation_id: id.clone(),
                    page_size: 500,
                    ..Default::default()
                };
                attack.call(&channel, "ListCheckpoints", &ask).await;
            }
        })
        .await;
}

pub(super) async fn sessions(attack: &RunningAttack) {
    let channel = attack.channel();
    let scope = Some(direct_scope(&attack.word()));
    attack
        .loop_concurrently(16, async |place| {
            if place % 2 == 0 {
                let ask = pb::RotateSessionRequest {
                    scope: scope.clone(),
                    request_id: attack.word(),
                    ..Default::default()
                };
                attack.call(&channel, "RotateSession", &ask).await;
            } else {
                let ask = pb::ResolveSessionRequest {
                    scope: scope.clone(),
                    ..Default::default()
                };
                attack.call(&channel, "ResolveSession", &ask).await;
            }
        })
        .await;
}

pub(super) async fn deleted_while_read(attack: &RunningAttack) {
    let channel = attack.channel();
    attack
        .loop_concurrently(2, async |_| {
            let Some(conversation_id) = attack.create_conversation(&channel).await else {
                return;
            };
            for _ in 0..10 {
                attack
                    .append(&channel, &conversation_id, vec![user(&"x".repeat(400_000))])
                    .await;
            }
            let ask = pb::BuildContextRequest {
                conversation_id: conversation_id.clone(),
                ..Default::default()
            };
            let delete = pb::DeleteConversationRequest {
                conversation_id,
                ..Default::default()
            };
            let reads = futures::future::join_all(
                (0..8).map(|_| attack.call(&channel, "BuildContext", &ask)),
            );
            tokio::join!(reads, attack.call(&channel, "DeleteConversation", &delete));
        })
        .await;
}

pub(super) async fn one_row(attack: &RunningAttack) {
    let channel = attack.channel();
    let Some(id) = attack.create_conversation(&channel).await else {
        return;
    };
    let request_id = attack.word();
    attack
        .loop_concurrently(64, async |place| match place % 4 {
            0 => drop(attack.append(&channel, &id, vec![user("a")]).await),
            1 => {
                let ask = pb::AppendMessagesRequest {
                    conversation_id: id.clone(),
                    messages: vec![user(&attack.word())],
                    request_id: request_id.clone(),
                    ..Default::default()
                };
                attack.call(&channel, "AppendMessages", &ask).await;
            }
            2 => {
                let ask = pb::InsertSeparatorRequest {
                    conversation_id: id.clone(),
                    ..Default::default()
                };
                attack.call(&channel, "InsertSeparator", &ask).await;
            }
            _ => {
                let conversation = pb::Conversation {
                    conversation_id: id.clone(),
                    title: attack.word(),
                    ..Default::default()
                };
                let ask = pb::UpdateConversationRequest {
                    conversation: Some(conversation),
                    update_mask: Some(prost_types::FieldMask {
                        paths: vec!["title".into()],
                    }),
                    ..Default::default()
                };
                attack.call(&channel, "UpdateConversation", &ask).await;
            }
        })
        .await;
}

pub(super) async fn large_appends(attack: &RunningAttack) {
    let channel = attack.channel();
    let Some(conversation_id) = attack.create_conversation(&channel).await else {
        return;
    };
    let header = Header {
        conversation_id,
        message: Some(text(pb::Role::User, "")),
        ..Default::default()
    };
    let frame = |frame| pb::AppendLargeMessageRequest { frame: Some(frame) }.encode_to_vec();
    let (header, chunk) = (
        frame(Frame::Header(header)),
        frame(Frame::Chunk(vec![b'x'; 4_000_000])),
    );
    attack
        .loop_concurrently(4, async |place| {
            let chunks = if place == 0 { attack.number(2..6) } else { 20 };
            let frames = std::iter::once(header.clone())
                .chain(std::iter::repeat_n(chunk.clone(), chunks))
                .collect();
            attack
                .call_frames(&channel, "AppendLargeMessage", frames)
                .await;
        })
        .await;
}

pub(super) async fn usage_reports(attack: &RunningAttack) {
    let channel = attack.channel();
    let Some(conversation_id) = attack.create_conversation(&channel).await else {
        return;
    };
    attack
        .loop_concurrently(16, async |_| {
            let ask = pb::ReportUsageRequest {
                conversation_id: conversation_id.clone(),
                model: attack.word(),
                input_tokens: attack.choose(&[1, u64::MAX, 1 << 40]),
                context_tokens: attack.choose(&[0, 1, 1 << 40]),
                ..Default::default()
            };
            attack.call(&channel, "ReportUsage", &ask).await;
        })
        .await;
}
