//! Messages that are refused: empty, too many, without a role, with parts that do not fit it, too large, not UTF-8.

use std::collections::HashMap;

use anneal_tests::{House, Talk, assert_refused, pb, user};
use pb::{
    Role,
    append_large_message_request::{Frame, Header},
    part::Part,
};
use prost::Message as _;
use tonic::{Code, Request, Response, Status, codegen::http::uri::PathAndQuery};
use tonic_prost::ProstCodec;

const INVALID: (Code, &str) = (Code::InvalidArgument, "INVALID_FIELD");
const LIMIT: (Code, &str) = (Code::InvalidArgument, "LIMIT_EXCEEDED");

fn message(role: Role, part: Part) -> pb::NewMessage {
    let parts = vec![pb::Part { part: Some(part) }];
    pb::NewMessage { role: role.into(), parts, metadata: HashMap::new() }
}

fn text(said: &str) -> Part {
    Part::Text(pb::TextPart { text: said.into() })
}

fn tool_use(id: &str, name: &str) -> Part {
    Part::ToolUse(pb::ToolUsePart { id: id.into(), name: name.into(), input: "{}".into() })
}

fn tool_result(id: &str) -> Part {
    Part::ToolResult(pb::ToolResultPart { tool_use_id: id.into(), ..Default::default() })
}

fn media(uri: &str, media_type: &str) -> Part {
    Part::Media(pb::MediaPart { uri: uri.into(), media_type: media_type.into(), ..Default::default() })
}

fn labelled(metadata: impl IntoIterator<Item = (String, String)>) -> pb::NewMessage {
    pb::NewMessage { metadata: metadata.into_iter().collect(), ..user("a") }
}

async fn refuses(talk: &Talk<'_>, new: Vec<pb::NewMessage>, (code, reason): (Code, &str), field: &str) {
    assert_refused(talk.append_all(new).send().await, code, reason, field);
}

#[tokio::test]
async fn an_append_holds_1_to_100_messages() {
    let house = House::start().await;
    let talk = house.conversation().await;
    refuses(&talk, vec![], INVALID, "messages").await;
    refuses(&talk, vec![user("a"); 101], LIMIT, "messages").await;
    assert_eq!(talk.append_all(vec![user("a"); 100]).await.messages.len(), 100);
    let long = talk.append("a").request_id(&"r".repeat(129)).send().await;
    assert_refused(long, LIMIT.0, LIMIT.1, "request_id");
    assert_refused(talk.append("a").request_id("r\0").send().await, INVALID.0, INVALID.1, "request_id");
    talk.append("a").request_id(&"r".repeat(128)).await;
    assert_eq!(talk.messages().await.len(), 101, "what was refused is not there");
}

#[tokio::test]
async fn a_message_has_a_known_role_and_parts_that_fit_it() {
    let house = House::start().await;
    let talk = house.conversation().await;
    let role = |role: i32| pb::NewMessage { role, ..user("a") };
    refuses(&talk, vec![role(0)], INVALID, "messages[0].role").await;
    refuses(&talk, vec![user("a"), role(99)], INVALID, "messages[1].role").await;
    refuses(&talk, vec![role(-1)], INVALID, "messages[0].role").await;
    refuses(&talk, vec![pb::NewMessage { parts: vec![], ..user("a") }], INVALID, "messages[0].parts").await;
    let none = pb::NewMessage { parts: vec![pb::Part { part: None }], ..user("a") };
    refuses(&talk, vec![none], INVALID, "messages[0].parts[0]").await;
    let many = pb::NewMessage { parts: vec![pb::Part { part: Some(text("a")) }; 257], ..user("a") };
    refuses(&talk, vec![many], LIMIT, "messages[0].parts").await;
    let reasoning = || Part::Reasoning(pb::ReasoningPart { text: "hm".into(), ..Default::default() });
    let mismatches = [
        (Role::User, tool_use("c", "look")),
        (Role::User, tool_result("c")),
        (Role::User, reasoning()),
        (Role::Assistant, tool_result("c")),
        (Role::Tool, text("a")),
        (Role::Tool, tool_use("c", "look")),
        (Role::Tool, media("s3://a", "image/png")),
        (Role::Tool, reasoning()),
        (Role::System, tool_use("c", "look")),
        (Role::System, tool_result("c")),
        (Role::System, media("s3://a", "image/png")),
        (Role::System, reasoning()),
    ];
    for (role, part) in mismatches {
        refuses(&talk, vec![message(role, part)], INVALID, "messages[0].parts[0]").await;
    }
    assert_eq!(talk.conversation().await.message_count, 0);
}

#[tokio::test]
async fn ids_within_parts_are_neither_empty_nor_long_nor_hold_nul() {
    let house = House::start().await;
    let talk = house.conversation().await;
    let long = "i".repeat(129);
    for (bad, kind) in [("", INVALID), ("a\0", INVALID), (long.as_str(), LIMIT)] {
        let field = |name| format!("messages[0].parts[0].{name}");
        refuses(&talk, vec![message(Role::Assistant, tool_use(bad, "look"))], kind, &field("tool_use.id")).await;
        refuses(&talk, vec![message(Role::Assistant, tool_use("c", bad))], kind, &field("tool_use.name")).await;
        refuses(&talk, vec![message(Role::Tool, tool_result(bad))], kind, &field("tool_result.tool_use_id")).await;
        refuses(&talk, vec![message(Role::User, media("s3://a", bad))], kind, &field("media.media_type")).await;
    }
    let uri = "messages[0].parts[0].media.uri";
    refuses(&talk, vec![message(Role::User, media("", "image/png"))], INVALID, uri).await;
    refuses(&talk, vec![message(Role::User, media("a\0", "image/png"))], INVALID, uri).await;
    refuses(&talk, vec![message(Role::User, media(&"u".repeat(2_049), "image/png"))], LIMIT, uri).await;
    let one = pb::MediaPart { uri: "s3://a".into(), media_type: "image/png".into(), ..Default::default() };
    let many = pb::ToolResultPart { tool_use_id: "c".into(), media: vec![one; 33], ..Default::default() };
    let field = "messages[0].parts[0].tool_result.media";
    refuses(&talk, vec![message(Role::Tool, Part::ToolResult(many))], LIMIT, field).await;
}

#[tokio::test]
async fn labels_of_a_message_are_bounded_and_hold_no_nul() {
    let house = House::start().await;
    let talk = house.conversation().await;
    let field = "messages[0].metadata";
    let keys = |count: usize| labelled((0..count).map(|n| (n.to_string(), String::new())));
    refuses(&talk, vec![keys(33)], LIMIT, field).await;
    refuses(&talk, vec![labelled([("k".into(), "v".repeat(4_096))])], LIMIT, field).await;
    refuses(&talk, vec![labelled([("k\0".into(), "v".into())])], INVALID, field).await;
    refuses(&talk, vec![labelled([("k".into(), "\0".into())])], INVALID, field).await;
    talk.append_all(vec![keys(32), labelled([("k".into(), "v".repeat(4_095))])]).await;
    let second = format!("current_input[1].{}", "metadata");
    let ask = pb::BuildContextRequest { current_input: vec![user("a"), keys(33)], ..Default::default() };
    assert_refused(talk.build(ask).await, LIMIT.0, LIMIT.1, &second);
    let ask = pb::BuildContextRequest { current_input: vec![user("a"); 101], ..Default::default() };
    assert_refused(talk.build(ask).await, LIMIT.0, LIMIT.1, "current_input");
}

#[tokio::test]
async fn a_request_above_4_mib_is_refused_with_the_way_out() {
    let house = House::start().await;
    let talk = house.conversation().await;
    let refused = talk.append(&"a".repeat(4 * 1024 * 1024)).send().await;
    let status = refused.clone().expect_err("is refused");
    assert!(status.message().contains("AppendLargeMessage"), "{status}");
    assert_refused(refused, LIMIT.0, LIMIT.1, "request");
    talk.append(&"a".repeat(4 * 1024 * 1024 - 100)).await;
}

/// Sends these frames; an answer that comes before the last frame was read counts.
async fn stream(talk: &Talk<'_>, frames: Vec<Option<Frame>>) -> Result<Response<pb::AppendMessagesResponse>, Status> {
    let frames = frames.into_iter().map(|frame| pb::AppendLargeMessageRequest { frame });
    talk.house.messages().append_large_message(tokio_stream::iter(frames)).await
}

#[expect(clippy::unnecessary_wraps, reason = "a frame of the stream, which may also be missing")]
fn header(talk: &Talk<'_>, message: Option<pb::NewMessage>) -> Option<Frame> {
    Some(Frame::Header(Header { conversation_id: talk.id.clone(), message, ..Default::default() }))
}

#[expect(clippy::unnecessary_wraps, reason = "a frame of the stream, which may also be missing")]
fn chunk(bytes: &[u8]) -> Option<Frame> {
    Some(Frame::Chunk(bytes.to_vec()))
}

#[tokio::test]
async fn a_stream_is_one_header_and_then_its_text() {
    let house = House::start().await;
    let talk = house.conversation().await;
    let good = || header(&talk, Some(user("")));
    let cases = [
        (vec![], "header"),
        (vec![chunk(b"a")], "header"),
        (vec![chunk(b"a"), good()], "header"),
        (vec![good(), good()], "header"),
        (vec![good(), chunk(b"a"), good()], "header"),
        (vec![None], "frame"),
        (vec![good(), None], "frame"),
        (vec![header(&talk, None)], "header.message"),
        (vec![header(&talk, Some(user("not empty"))), chunk(b"a")], "header.message.parts"),
        (vec![header(&talk, Some(message(Role::User, media("s3://a", "image/png"))))], "header.message.parts"),
        (vec![header(&talk, Some(pb::NewMessage { role: 0, ..user("") }))], "header.message.role"),
        (vec![good(), chunk(&[0xff]), chunk(b"a")], "chunk"),
        (vec![good(), chunk(&[0xe5, 0x86])], "chunk"),
    ];
    for (frames, field) in cases {
        let told = format!("{frames:?}");
        let status = stream(&talk, frames).await.expect_err(&told);
        assert_refused::<()>(Err(status), INVALID.0, INVALID.1, field);
    }
    assert_eq!(talk.conversation().await.message_count, 0);
}

#[tokio::test]
async fn a_character_may_be_split_across_chunks() {
    let house = House::start().await;
    let talk = house.conversation().await;
    let said = "é冷🧊\0e\u{301}";
    let mut frames = vec![header(&talk, Some(user("")))];
    frames.extend(said.as_bytes().iter().map(|byte| chunk(&[*byte])));
    frames.push(chunk(b""));
    stream(&talk, frames).await.expect("appends");
    assert_eq!(talk.messages().await[0].parts, user(said).parts);
    stream(&talk, vec![header(&talk, Some(user("")))]).await.expect("an empty text is a text");
}

#[tokio::test]
async fn a_chunk_of_4_mib_is_taken_and_a_stream_above_64_mib_is_not() {
    let house = House::start().await;
    let talk = house.conversation().await;
    let four = vec![b'a'; 4 * 1024 * 1024];
    stream(&talk, vec![header(&talk, Some(user(""))), chunk(&four)]).await.expect("a piece of 4 MiB is allowed");
    let mut frames = vec![header(&talk, Some(user("")))];
    frames.extend((0..16).map(|_| chunk(&four)));
    frames.push(chunk(b"a"));
    assert_refused(stream(&talk, frames).await, LIMIT.0, LIMIT.1, "chunk");
    let five = vec![b'a'; 5 * 1024 * 1024];
    let piece = stream(&talk, vec![header(&talk, Some(user(""))), chunk(&five)]).await;
    assert_refused(piece, LIMIT.0, LIMIT.1, "chunk");
    assert_eq!(talk.conversation().await.message_count, 1);
}

/// The first field of any request, as bytes that need not be UTF-8.
#[derive(Clone, PartialEq, prost::Message)]
struct RawId {
    #[prost(bytes = "vec", tag = "1")]
    id: Vec<u8>,
}

/// A message whose text need not be UTF-8: `AppendMessagesRequest` up to `TextPart`.
fn raw_append(id: &str, said: &[u8]) -> Vec<u8> {
    let field = |tag: u8, inner: &[u8]| [&[tag << 3 | 2, inner.len() as u8], inner].concat();
    let part = field(2, &field(1, &field(1, said)));
    let message = [&[0x08, 0x01], part.as_slice()].concat();
    [field(1, id.as_bytes()), field(3, &message)].concat()
}

async fn raw(house: &House, path: &'static str, ask: RawId) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(house.channel());
    client.ready().await.expect("the channel is ready");
    let codec = ProstCodec::<RawId, RawId>::default();
    client.unary(Request::new(ask), PathAndQuery::from_static(path), codec).await.map(|_| ())
}

#[tokio::test]
async fn text_that_is_not_utf_8_is_refused_as_malformed() {
    let house = House::start().await;
    let talk = house.conversation().await;
    for path in [
        "/anneal.v1.ConversationService/GetConversation",
        "/anneal.v1.MessageService/ListMessages",
        "/anneal.v1.ContextService/BuildContext",
        "/anneal.v1.OperatorService/VerifyConversation",
    ] {
        let refused = raw(&house, path, RawId { id: vec![0xff, 0xfe] }).await;
        assert_refused(refused, Code::InvalidArgument, "MALFORMED_REQUEST", "");
    }
    for said in [&[0xff][..], &[0xed, 0xa0, 0x80], &[0xc0, 0x80], b"fine"] {
        let bytes = raw_append(&talk.id, said);
        if let Ok(whole) = pb::AppendMessagesRequest::decode(bytes.as_slice()) {
            assert_eq!(whole.messages, vec![user("fine")], "the hand-made request is well made");
            continue;
        }
        let ask = RawAppend::decode(bytes.as_slice()).expect("bytes are bytes");
        let mut client = tonic::client::Grpc::new(house.channel());
        client.ready().await.expect("the channel is ready");
        let path = PathAndQuery::from_static("/anneal.v1.MessageService/AppendMessages");
        let refused = client.unary(Request::new(ask), path, ProstCodec::<RawAppend, RawId>::default()).await;
        assert_refused(refused, Code::InvalidArgument, "MALFORMED_REQUEST", "");
    }
    assert_eq!(talk.conversation().await.message_count, 0);
}

/// An append whose message is opaque bytes.
#[derive(Clone, PartialEq, prost::Message)]
struct RawAppend {
    #[prost(bytes = "vec", tag = "1")]
    id: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    message: Vec<u8>,
}
