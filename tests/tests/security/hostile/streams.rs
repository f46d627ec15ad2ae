//! Cases of streams of `AppendLargeMessage`.

use anneal_testkit::{pb, user};
use pb::{
    Role,
    append_large_message_request::{Frame, Header},
};

use crate::hostile::{
    case::{Case, GrpcRequest, INVALID, LIMIT, MALFORMED, answered, refused},
    messages::{media, message},
};

fn frames(frames: Vec<Option<Frame>>) -> GrpcRequest {
    let frames: Vec<_> = frames
        .into_iter()
        .map(|frame| pb::AppendLargeMessageRequest { frame })
        .collect();
    GrpcRequest::stream(&frames)
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "a frame of the stream, which may also be missing"
)]
fn chunk(bytes: &[u8]) -> Option<Frame> {
    Some(Frame::Chunk(bytes.to_vec()))
}

/// Cases of streams. A valid stream has one header, then the text in chunks.
pub(crate) fn streams(id: &str) -> Vec<Case> {
    let header = |message| {
        Some(Frame::Header(Header {
            conversation_id: id.into(),
            message,
            ..Default::default()
        }))
    };
    let valid = || header(Some(user("")));
    let four_mib = vec![b'a'; 4 * 1024 * 1024];
    let with_text = |message| vec![header(Some(message)), chunk(b"a")];
    let mut above_limit = vec![valid()];
    above_limit.extend((0..16).map(|_| chunk(&four_mib)));
    above_limit.push(chunk(b"a"));
    let single_bytes: Vec<_> = "é冷🧊\0e\u{301}"
        .bytes()
        .map(|byte| chunk(&[byte]))
        .collect();
    vec![
        refused("no frame", frames(vec![]), INVALID, "header"),
        refused("text alone", frames(vec![chunk(b"a")]), INVALID, "header"),
        refused(
            "text first",
            frames(vec![chunk(b"a"), valid()]),
            INVALID,
            "header",
        ),
        refused(
            "two headers",
            frames(vec![valid(), valid()]),
            INVALID,
            "header",
        ),
        refused(
            "a header in the middle",
            frames(vec![valid(), chunk(b"a"), valid()]),
            INVALID,
            "header",
        ),
        refused("an empty frame", frames(vec![None]), INVALID, "frame"),
        refused(
            "an empty frame in the middle",
            frames(vec![valid(), None]),
            INVALID,
            "frame",
        ),
        refused(
            "no message",
            frames(vec![header(None)]),
            INVALID,
            "header.message",
        ),
        refused(
            "a message with a text in the header",
            frames(with_text(user("not empty"))),
            INVALID,
            "header.message.parts",
        ),
        refused(
            "a message with a picture in the header",
            frames(with_text(message(Role::User, media("s3://a", "image/png")))),
            INVALID,
            "header.message.parts",
        ),
        refused(
            "role 0",
            frames(with_text(pb::NewMessage {
                role: 0,
                ..user("")
            })),
            INVALID,
            "header.message.role",
        ),
        refused(
            "bytes that are not UTF-8",
            frames(vec![valid(), chunk(&[0xff]), chunk(b"a")]),
            INVALID,
            "chunk",
        ),
        refused(
            "half a character",
            frames(vec![valid(), chunk(&[0xe5, 0x86])]),
            INVALID,
            "chunk",
        ),
        refused(
            "half a surrogate pair",
            frames(vec![valid(), chunk(&[0xed, 0xa0, 0x80])]),
            INVALID,
            "chunk",
        ),
        refused("a text above 64 MiB", frames(above_limit), LIMIT, "chunk"),
        refused(
            "a chunk of 5 MiB",
            frames(vec![valid(), chunk(&vec![b'a'; 5 * 1024 * 1024])]),
            LIMIT,
            "chunk",
        ),
        refused(
            "a malformed frame",
            GrpcRequest {
                rpc: "AppendLargeMessage".into(),
                frames: vec![vec![0xff]],
            },
            MALFORMED,
            "",
        ),
        answered("no text", frames(vec![valid()])),
        answered("a chunk of 4 MiB", frames(vec![valid(), chunk(&four_mib)])),
        answered(
            "a byte at a time",
            frames([vec![valid()], single_bytes, vec![chunk(b"")]].concat()),
        ),
    ]
}
