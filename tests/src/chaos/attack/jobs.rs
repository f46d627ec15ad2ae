//! Changes that make work for workers, or that wait for each other.

use pb::append_large_message_request::{Frame, Header};
use prost::Message as _;

use super::attacker::Strike;
use crate::{direct, pb, prose, text, user};

/// A text of so many bytes that is costly to count or to summarise.
pub(super) fn hostile_text(on: &Strike, bytes: usize) -> String {
    let piece = match on.number(0..7) {
        0 => "x".to_owned(),
        1 => " ".to_owned(),
        2 => "a\u{35f}\u{35f}\u{35f}".to_owned(),
        3 => "👩‍👩‍👧".to_owned(),
        4 => "\n\n- ".to_owned(),
        5 => "QUFBQUFBQUFB".to_owned(),
        _ => prose(on.number(0..1_000), 3),
    };
    piece.repeat(bytes / piece.len())
}

pub(super) async fn hostile_texts(on: &Strike) {
    let guest = on.guest();
    on.forever(2, async |_| {
        let Some(id) = on.conversation(&guest).await else { return };
        let text = hostile_text(on, on.number(10_000..1 << 20));
        on.append(&guest, &id, vec![user(&text), user("and?")]).await;
    })
    .await;
}

pub(super) async fn many_conversations(on: &Strike) {
    let guest = on.guest();
    on.forever(16, async |_| {
        if let Some(id) = on.conversation(&guest).await {
            on.append(&guest, &id, vec![user("hello")]).await;
        }
    })
    .await;
}

pub(super) async fn separators(on: &Strike) {
    let guest = on.guest();
    let Some(id) = on.conversation(&guest).await else { return };
    on.forever(8, async |place| {
        if place < 6 {
            on.append(&guest, &id, vec![user("a")]).await;
            let ask = pb::InsertSeparatorRequest { conversation_id: id.clone(), ..Default::default() };
            on.call(&guest, "InsertSeparator", &ask).await;
        } else {
            let ask = pb::DeleteSeparatorRequest {
                conversation_id: id.clone(),
                after_message_id: on.number(0..100) as i64,
                request_id: on.word(),
            };
            on.call(&guest, "DeleteSeparator", &ask).await;
            let ask = pb::ListMessagesRequest { conversation_id: id.clone(), page_size: 500, ..Default::default() };
            on.call(&guest, "ListMessages", &ask).await;
        }
    })
    .await;
}

pub(super) async fn checkpoints(on: &Strike) {
    let guest = on.guest();
    let Some(id) = on.conversation(&guest).await else { return };
    let large: Vec<pb::NewMessage> = (0..3).map(|_| user(&prose(0, 14_000))).collect();
    on.append(&guest, &id, large).await;
    let summary = prose(0, 11_000);
    on.forever(8, async |place| match place {
        0..4 => {
            let ask = pb::ImportCheckpointRequest {
                conversation_id: id.clone(),
                last_message_id: on.number(1..4) as i64,
                summary: summary.clone(),
                ..Default::default()
            };
            on.call(&guest, "ImportCheckpoint", &ask).await;
        }
        4..6 => {
            let ask = pb::CompactRequest {
                conversation_id: on.choose(&[&on.means.stock.tiny, &on.means.stock.large, &id]).clone(),
                request_id: on.word(),
                wait: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
                dry_run: on.number(0..4) == 0,
                ..Default::default()
            };
            on.call(&guest, "Compact", &ask).await;
        }
        _ => {
            let ask = pb::ListCheckpointsRequest { conversation_id: id.clone(), page_size: 500, ..Default::default() };
            on.call(&guest, "ListCheckpoints", &ask).await;
        }
    })
    .await;
}

pub(super) async fn sessions(on: &Strike) {
    let guest = on.guest();
    let scope = Some(direct(&on.word()));
    on.forever(16, async |place| {
        if place % 2 == 0 {
            let ask = pb::RotateSessionRequest { scope: scope.clone(), request_id: on.word(), ..Default::default() };
            on.call(&guest, "RotateSession", &ask).await;
        } else {
            let ask = pb::ResolveSessionRequest { scope: scope.clone(), ..Default::default() };
            on.call(&guest, "ResolveSession", &ask).await;
        }
    })
    .await;
}

pub(super) async fn deleted_while_read(on: &Strike) {
    let guest = on.guest();
    on.forever(2, async |_| {
        let Some(conversation_id) = on.conversation(&guest).await else { return };
        for _ in 0..10 {
            on.append(&guest, &conversation_id, vec![user(&"x".repeat(400_000))]).await;
        }
        let ask = pb::BuildContextRequest { conversation_id: conversation_id.clone(), ..Default::default() };
        let delete = pb::DeleteConversationRequest { conversation_id, ..Default::default() };
        let reads = futures::future::join_all((0..8).map(|_| on.call(&guest, "BuildContext", &ask)));
        tokio::join!(reads, on.call(&guest, "DeleteConversation", &delete));
    })
    .await;
}

pub(super) async fn one_row(on: &Strike) {
    let guest = on.guest();
    let Some(id) = on.conversation(&guest).await else { return };
    let request = on.word();
    on.forever(64, async |place| match place % 4 {
        0 => drop(on.append(&guest, &id, vec![user("a")]).await),
        1 => {
            let ask = pb::AppendMessagesRequest {
                conversation_id: id.clone(),
                messages: vec![user(&on.word())],
                request_id: request.clone(),
                ..Default::default()
            };
            on.call(&guest, "AppendMessages", &ask).await;
        }
        2 => {
            let ask = pb::InsertSeparatorRequest { conversation_id: id.clone(), ..Default::default() };
            on.call(&guest, "InsertSeparator", &ask).await;
        }
        _ => {
            let conversation = pb::Conversation { conversation_id: id.clone(), title: on.word(), ..Default::default() };
            let ask = pb::UpdateConversationRequest {
                conversation: Some(conversation),
                update_mask: Some(prost_types::FieldMask { paths: vec!["title".into()] }),
                ..Default::default()
            };
            on.call(&guest, "UpdateConversation", &ask).await;
        }
    })
    .await;
}

pub(super) async fn large_appends(on: &Strike) {
    let guest = on.guest();
    let Some(conversation_id) = on.conversation(&guest).await else { return };
    let header = Header { conversation_id, message: Some(text(pb::Role::User, "")), ..Default::default() };
    let frame = |frame| pb::AppendLargeMessageRequest { frame: Some(frame) }.encode_to_vec();
    let (header, chunk) = (frame(Frame::Header(header)), frame(Frame::Chunk(vec![b'x'; 4_000_000])));
    on.forever(4, async |place| {
        let chunks = if place == 0 { on.number(2..6) } else { 20 };
        let frames = std::iter::once(header.clone()).chain(std::iter::repeat_n(chunk.clone(), chunks)).collect();
        on.call_frames(&guest, "AppendLargeMessage", frames).await;
    })
    .await;
}

pub(super) async fn usage_reports(on: &Strike) {
    let guest = on.guest();
    let Some(conversation_id) = on.conversation(&guest).await else { return };
    on.forever(16, async |_| {
        let ask = pb::ReportUsageRequest {
            conversation_id: conversation_id.clone(),
            model: on.word(),
            input_tokens: on.choose(&[1, u64::MAX, 1 << 40]),
            context_tokens: on.choose(&[0, 1, 1 << 40]),
            ..Default::default()
        };
        on.call(&guest, "ReportUsage", &ask).await;
    })
    .await;
}
