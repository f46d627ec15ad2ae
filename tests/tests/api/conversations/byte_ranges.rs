//! Byte ranges of messages. The database cuts a range out of the text; it must equal the same slice
//! of the whole text.

use std::{collections::BTreeMap, sync::Arc};

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    message::{Media, Message, MessageId, Part, Role, plain_text},
};
use anneal_store::{Append, ContentRead, ReadBudget};
use anneal_testkit::{TestApp, TestConversation, assert_refused, pb, user};
use proptest::{
    collection::vec,
    prelude::{Just, Strategy, any, prop_oneof},
    sample::select,
    strategy::ValueTree as _,
    test_runner::TestRunner,
};
use tonic::Code;

/// Pieces of text: plain ones, and some that JSON escapes, that look like escapes or JSON, or that
/// hold multi-byte characters.
const PIECES: [&str; 24] = [
    "",
    "a",
    "word ",
    "é",
    "冷",
    "😀",
    "\u{301}",
    "\"",
    "\\",
    "\\u0000",
    "\\\\u0000",
    "\n",
    "\r\n",
    "\t",
    "\u{1}",
    "\u{8}",
    "\u{c}",
    "\u{1f}",
    "\u{7f}",
    "\u{2028}",
    "\u{fffd}",
    "\u{10ffff}",
    "}],[{",
    "null",
];

/// Texts made of [`PIECES`], and of NUL characters if `nul` is set.
fn text(nul: bool) -> impl Strategy<Value = String> {
    let pieces = if nul {
        [&PIECES[..], &["\0"]].concat()
    } else {
        PIECES.to_vec()
    };
    vec(select(pieces), 0..12).prop_map(|pieces| pieces.concat())
}

/// Parts of every kind. A message's text, in which a range lies, has the text of all parts but
/// media, and of calls only the input.
fn part(nul: bool) -> impl Strategy<Value = Part> {
    let media = || Media {
        uri: "https://x/text".into(),
        media_type: "image/png".into(),
        bytes: 0,
        tokens: 7,
    };
    prop_oneof![
        3 => text(nul).prop_map(|text| Part::Text { text }),
        1 => text(nul).prop_map(|input| Part::ToolUse { id: "text".into(), name: "input".into(), input }),
        1 => (text(nul), any::<bool>()).prop_map(move |(text, is_error)| {
            Part::ToolResult { id: "c".into(), text, is_error, media: vec![media()] }
        }),
        1 => Just(Part::Media(media())),
        1 => (text(nul), text(nul)).prop_map(|(text, signature)| {
            Part::Reasoning { text, signature, provider: "openai".into(), redacted: false }
        }),
    ]
}

async fn read_range(
    conversation: &TestConversation<'_>,
    message_id: i64,
    offset: i64,
    length: i64,
) -> pb::GetMessageResponse {
    let range = Some(pb::ByteRange { offset, length });
    let ask = pb::GetMessageRequest {
        conversation_id: conversation.id.clone(),
        message_id,
        range,
        ..Default::default()
    };
    conversation
        .app
        .messages()
        .get_message(ask)
        .await
        .expect("reads")
        .into_inner()
}

#[tokio::test]
async fn a_range_equals_the_slice_of_the_whole_text() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let mut runner = TestRunner::deterministic();
    for round in 0..60 {
        let parts = vec(part(round % 3 == 0), 1..5)
            .new_tree(&mut runner)
            .expect("there are parts")
            .current();
        let whole = plain_text(&parts);
        let message = Message {
            role: Role::Assistant,
            parts,
            metadata: BTreeMap::default(),
        };
        let append = Append::new(
            ConversationId(conversation.uuid()),
            None,
            None,
            &[message],
            None,
        );
        let stored = app
            .store
            .append(Caller::of(TenantId::DEFAULT), &append)
            .await
            .expect("is stored");
        let id = stored.messages[0].id.0;
        for _ in 0..20 {
            // Up to five bytes beyond the end of the text.
            let range = (0..whole.len() as i64 + 6, 0..whole.len() as i64 + 6);
            let (offset, length) = range
                .new_tree(&mut runner)
                .expect("there are ranges")
                .current();
            let start = whole.floor_char_boundary((offset as usize).min(whole.len()));
            // A length of 0 asks for the rest of the text.
            let requested = if length == 0 {
                whole.len()
            } else {
                length as usize
            };
            let end = whole.ceil_char_boundary(
                (offset as usize)
                    .min(whole.len())
                    .saturating_add(requested)
                    .min(whole.len()),
            );
            let read = read_range(&conversation, id, offset, length).await;
            assert_eq!(
                read.text,
                whole[start..end],
                "{offset}, {length} of {whole:?}"
            );
            let range = pb::ByteRange {
                offset: start as i64,
                length: (end - start) as i64,
            };
            assert_eq!(read.range, Some(range), "{offset}, {length} of {whole:?}");
            assert_eq!(
                read.message.expect("the answer holds the message").parts,
                [],
                "the answer holds only the range"
            );
        }
    }
}

#[tokio::test]
async fn a_range_beyond_the_text_is_cut_and_an_invalid_range_is_refused() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.append("a冷b").await;
    let far = read_range(&conversation, 1, i64::MAX, 1).await;
    assert_eq!(
        (far.text.as_str(), far.range),
        (
            "",
            Some(pb::ByteRange {
                offset: 5,
                length: 0
            })
        )
    );
    assert_eq!(read_range(&conversation, 1, 2, 1).await.text, "冷");
    assert_eq!(read_range(&conversation, 1, 1, 3).await.text, "冷");
    assert_eq!(read_range(&conversation, 1, 0, 0).await.text, "a冷b");
    assert_eq!(
        read_range(&conversation, 1, 0, 4 * 1024 * 1024).await.text,
        "a冷b"
    );
    for (offset, length, reason) in [
        (-1, 1, "INVALID_FIELD"),
        (0, -1, "INVALID_FIELD"),
        (0, 4 * 1024 * 1024 + 1, "LIMIT_EXCEEDED"),
    ] {
        let range = Some(pb::ByteRange { offset, length });
        let ask = pb::GetMessageRequest {
            conversation_id: conversation.id.clone(),
            message_id: 1,
            range,
            ..Default::default()
        };
        let field = if offset < 0 {
            "range.offset"
        } else {
            "range.length"
        };
        assert_refused(
            app.messages().get_message(ask).await,
            Code::InvalidArgument,
            reason,
            field,
        );
    }
}

#[tokio::test]
async fn a_range_above_the_content_budget_is_measured_and_not_read() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation
        .append_all(vec![user(&"a".repeat(100_000)), user("b")])
        .await;
    let caller = Caller::of(TenantId::DEFAULT);
    let id = ConversationId(conversation.uuid());
    let budget = |bytes| ReadBudget::new(bytes, Arc::new(()));
    let needed = match app
        .store
        .get_message(caller, id, MessageId(1), &budget(100_000))
        .await
        .expect("is measured")
    {
        ContentRead::TooLarge { bytes } => bytes,
        ContentRead::Read { .. } => panic!("the stored content is larger than its text"),
    };
    assert!((100_000..102_000).contains(&needed), "{needed}");
    let read = app
        .store
        .get_message(caller, id, MessageId(1), &budget(needed))
        .await
        .expect("reads");
    assert!(matches!(read, ContentRead::Read { bytes, .. } if bytes == needed));
    // One byte, at offset 7.
    let range = app
        .store
        .get_message_range(caller, id, MessageId(1), (7, 1), &budget(1_000))
        .await
        .expect("is measured");
    assert_eq!(range, ContentRead::TooLarge { bytes: needed });
    let range = app
        .store
        .get_message_range(caller, id, MessageId(1), (7, 1), &budget(needed))
        .await
        .expect("reads");
    assert!(
        matches!(range, ContentRead::Read { bytes, .. } if bytes < 1_000),
        "only the range was read"
    );
}
