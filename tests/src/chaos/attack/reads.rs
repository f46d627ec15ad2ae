//! Reads that are costly to answer.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use super::{
    attacker::{Strike, session},
    stock::LARGEST,
};
use crate::{fields::Filling, pb};

/// A range of the largest message.
fn range(on: &Strike, length: i64) -> pb::GetMessageRequest {
    let offset = on.number(0..LARGEST as usize) as i64;
    pb::GetMessageRequest {
        conversation_id: on.means.stock.largest.clone(),
        message_id: 1,
        range: Some(pb::ByteRange { offset, length }),
    }
}

pub(super) async fn byte_ranges(on: &Strike) {
    let guest = on.guest();
    on.forever(on.number(16..65), async |_| {
        on.call(&guest, "GetMessage", &range(on, on.choose(&[1, 1, 1, 4_096, 0]))).await;
    })
    .await;
}

/// A context of this conversation, shaped at random.
fn context(on: &Strike, id: &str) -> pb::BuildContextRequest {
    pb::BuildContextRequest {
        conversation_id: id.into(),
        format: on.number(0..4) as i32,
        budget_tokens: on.choose(&[None, Some(1), Some(1_000), Some(100_000)]),
        pressure: on.number(0..2) as i32,
        dry_run: on.number(0..2) == 0,
        ..Default::default()
    }
}

/// The RPCs that build contexts.
const BUILDERS: [&str; 2] = ["BuildContext", "StreamContext"];

pub(super) async fn tiny_contexts(on: &Strike) {
    let guest = on.guest();
    on.forever(4, async |place| {
        let id = on.choose(&on.means.stock.long());
        if place == 0 {
            let ask = pb::GetContextUsageRequest { conversation_id: id.into(), ..Default::default() };
            on.call(&guest, "GetContextUsage", &ask).await;
        } else {
            on.call(&guest, on.choose(&BUILDERS), &context(on, id)).await;
        }
    })
    .await;
}

pub(super) async fn large_contexts(on: &Strike) {
    let guest = on.guest();
    on.forever(16, async |_| {
        let id = on.choose(&on.means.stock.heavy());
        on.call(&guest, on.choose(&BUILDERS), &context(on, id)).await;
    })
    .await;
}

pub(super) async fn cancelled_reads(on: &Strike) {
    let guest = on.guest();
    on.forever(16, async |place| {
        let patience = Duration::from_millis(on.number(0..40) as u64);
        let read = async {
            match place % 4 {
                0 => drop(on.call(&guest, "GetMessage", &range(on, 1)).await),
                1 => drop(on.call(&guest, "BuildContext", &context(on, &on.means.stock.large)).await),
                2 => drop(on.call(&guest, "BuildContext", &context(on, &on.means.stock.tiny)).await),
                _ => {
                    let ask = pb::VerifyConversationRequest { conversation_id: on.means.stock.large.clone() };
                    on.call(&guest, "VerifyConversation", &ask).await;
                }
            }
        };
        let _ = tokio::time::timeout(patience, read).await;
    })
    .await;
}

pub(super) async fn large_pages(on: &Strike) {
    let (guest, web) = (on.guest(), on.web());
    on.forever(16, async |place| {
        if place < 4 {
            let id = on.choose(&[&on.means.stock.large, &on.means.stock.tiny]);
            on.send(on.request(&web, "GET", &session(id))).await;
            return;
        }
        let ask = pb::ListMessagesRequest {
            conversation_id: on.choose(&on.means.stock.heavy()).into(),
            page_size: on.choose(&[1, 2, 50, 500]),
            newest_first: on.number(0..2) == 0,
            ..Default::default()
        };
        on.call(&guest, "ListMessages", &ask).await;
    })
    .await;
}

pub(super) async fn verifications(on: &Strike) {
    let guest = on.guest();
    on.forever(4, async |place| {
        let id = if place % 2 == 0 { on.choose(&on.means.stock.long()) } else { on.choose(&on.means.stock.heavy()) };
        let ask = pb::VerifyConversationRequest { conversation_id: id.into() };
        on.call(&guest, "VerifyConversation", &ask).await;
    })
    .await;
}

pub(super) async fn forged_tokens(on: &Strike) {
    let guest = on.guest();
    let names = ["page_token", "position", "etag"];
    let forgeable: Vec<_> = on.means.fields.iter().filter(|field| names.contains(&field.name())).cloned().collect();
    on.forever(16, async |_| {
        let field = on.choose(&forgeable);
        let bytes: Vec<u8> = (0..on.number(0..200)).map(|_| on.number(0..256) as u8).collect();
        let token = match on.number(0..3) {
            0 => URL_SAFE_NO_PAD.encode(&bytes),
            1 => "A".repeat(on.number(0..1 << 20)),
            _ => on.word(),
        };
        let filling = Filling::Bytes(token.into_bytes());
        on.call_raw(&guest, &field.rpc, field.filled(&filling, &on.means.stock.calls, &on.word())).await;
    })
    .await;
}
