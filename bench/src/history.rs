//! Conversations as a long life leaves them, made by SQL: a million appends through gRPC would take too long.

use std::fmt::Write as _;

use anneal_core::{digest, message::MessageId};
use anneal_proto::v1::{self as pb, operator_service_client::OperatorServiceClient};
use tonic::transport::Channel;

use crate::{database::Database, house::House, talks::append_in_turn};

/// Messages between two checkpoints.
const STEP: usize = 1_000;
/// Longest history of which every row is checked; VerifyConversation has a minute at most.
const VERIFIED: usize = 100_000;

/// What a history is to be like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Messages in all: turns of two, 400 bytes each.
    pub(crate) messages: usize,
    /// Messages after the newest checkpoint. As many as there are: no checkpoint is made.
    pub(crate) tail: usize,
}

/// The row that each message of a history is a copy of: one that was appended.
struct Model {
    conversation: String,
    content_digest: Vec<u8>,
}

/// Makes a conversation of this shape that never compacts itself; returns its id. The service has taken it as sound.
pub(crate) async fn fill(house: &House, channel: &Channel, shape: Shape) -> anyhow::Result<String> {
    let database = house.database()?;
    let model = append_model(house, channel, &database).await?;
    let policy = pb::Policy { max_message_count: Some(0), ..Default::default() };
    let conversation = house.conversation(channel, Some(policy)).await?;
    database.run(&messages(&model, &conversation, shape.messages)).await?;
    if let Some(checkpoints) = checkpoints(&model, &conversation, shape) {
        database.run(&checkpoints).await?;
    }
    database.run("vacuum (analyze)").await?;
    check(channel, &conversation, shape).await?;
    Ok(conversation)
}

/// Appends one message.
async fn append_model(house: &House, channel: &Channel, database: &Database) -> anyhow::Result<Model> {
    let conversation = house.conversation(channel, None).await?;
    append_in_turn(channel, &conversation, 1).await?;
    let digest =
        format!("select encode(content_digest, 'hex') from ai_message where conversation_id = '{conversation}'");
    let content_digest = bytes(&database.run(&digest).await?)?;
    Ok(Model { conversation, content_digest })
}

/// The bytes that hexadecimal digits stand for.
fn bytes(digits: &str) -> anyhow::Result<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?));
    pairs.collect()
}

/// Hexadecimal digits of bytes.
fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

/// The model's row again and again, in the conversation, each with a request id of its own; and the conversation's figures.
fn messages(model: &Model, conversation: &str, messages: usize) -> String {
    let model = &model.conversation;
    format!(
        "insert into ai_message (tenant_id, conversation_id, message_id, role, turn, token_estimate, token_count, text_bytes,
            content_bytes, content, content_digest, request_id, request_digest, request_messages)
         select tenant_id, '{conversation}', n, 2 - n % 2, (n + 1) / 2, token_estimate,
            coalesce(token_count, token_estimate), text_bytes, content_bytes, content, content_digest, gen_random_uuid()::text,
            request_digest, request_messages
         from ai_message cross join generate_series(1, {messages}) as n
         where conversation_id = '{model}' and message_id = 1
         order by n;
         update ai_conversation
         set last_message_id = {messages}, counted_message_id = {messages}, last_role = 2 - {messages} % 2,
            turn = ({messages} + 1) / 2,
            token_total = (select sum(token_count) from ai_message where conversation_id = '{conversation}')
         where conversation_id = '{conversation}';"
    )
}

/// A chain of checkpoints, the newest of which leaves the tail; None where the tail is all there is.
fn checkpoints(model: &Model, conversation: &str, shape: Shape) -> Option<String> {
    let newest = shape.messages.checked_sub(shape.tail).filter(|newest| *newest > 0)?;
    let first = (newest - 1) % STEP + 1;
    let (mut rows, mut previous) = (Vec::new(), None);
    for (generation, last) in (first..=newest).step_by(STEP).enumerate() {
        let source_first = previous.unwrap_or(0) + 1;
        let sources = (source_first..=last).map(|id| (MessageId(id as i64), model.content_digest.as_slice()));
        let digest = digits(&digest::of_sources(sources));
        let previous_message = previous.map_or("null".to_owned(), |previous: usize| previous.to_string());
        rows.push(format!(
            "('00000000-0000-7000-8000-000000000001'::uuid, '{conversation}'::uuid, 1, {last}, {previous_message}, \
             repeat('What was said. ', 70), 280, 2, 'extractive', 1, {source_first}, '\\x{digest}'::bytea, 90000, 5000, \
             {}, 2, '', 1)",
            generation + 1
        ));
        previous = Some(last);
    }
    Some(format!(
        "insert into ai_conversation_checkpoint (tenant_id, conversation_id, first_message_id, last_message_id,
            previous_message_id, summary, token_usage, kind, model, prompt_version, source_first_message_id, source_digest,
            tokens_before, tokens_after, generation, trigger_kind, focus, duration_ms)
         values {};",
        rows.join(",\n")
    ))
}

/// Whether the service finds what was filled in, and nothing wrong with it.
async fn check(channel: &Channel, conversation: &str, shape: Shape) -> anyhow::Result<()> {
    let ask = pb::GetContextUsageRequest { conversation_id: conversation.to_owned(), ..Default::default() };
    let usage = House::contexts(channel).get_context_usage(ask).await?.into_inner();
    let (tail, wanted) = (usage.tail_messages as usize, shape.tail);
    anyhow::ensure!(tail == wanted, "the service finds a tail of {tail} messages, not {wanted}");
    if shape.messages <= VERIFIED {
        let mut ask = tonic::Request::new(pb::VerifyConversationRequest { conversation_id: conversation.to_owned() });
        ask.set_timeout(std::time::Duration::from_mins(1));
        let verified = OperatorServiceClient::new(channel.clone()).verify_conversation(ask).await?.into_inner();
        anyhow::ensure!(verified.violations.is_empty(), "the history is not sound: {:?}", verified.violations);
    }
    Ok(())
}
