//! Creates conversations with long histories by SQL, because a million appends through gRPC would
//! take too long.

use anneal_core::{digest, message::MessageId};
use anneal_proto::v1::{self as pb, operator_service_client::OperatorServiceClient};

use crate::{
    connection::Channel,
    conversations::{append_one_by_one, never_compacted},
    database::Database,
    stack::BenchStack,
};

/// Messages between two checkpoints.
const STEP: usize = 1_000;
/// Messages of the longest history of which every row is verified: VerifyConversation is limited to
/// one minute.
const MAX_VERIFIED_MESSAGES: usize = 100_000;

/// The properties of a history that is to be created.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Messages in total, in turns of two, 400 bytes each.
    pub(crate) messages: usize,
    /// Messages after the newest checkpoint. If this equals `messages`, no checkpoint is created.
    pub(crate) tail: usize,
}

/// A message that a real append has stored. Its row is the template of every message of a history.
struct TemplateMessage {
    conversation: String,
    content_digest: Vec<u8>,
}

/// Creates a conversation of this shape that is never compacted automatically, checks it with the
/// service, and returns its id.
pub(crate) async fn create(
    stack: &BenchStack,
    channel: &Channel,
    shape: Shape,
) -> anyhow::Result<String> {
    let database = stack.database()?;
    let template = append_template(stack, channel, &database).await?;
    let conversation = stack
        .create_conversation(channel, Some(never_compacted()))
        .await?;
    database
        .run(&messages_sql(&template, &conversation, shape.messages))
        .await?;
    if let Some(sql) = checkpoints_sql(&template, &conversation, shape) {
        database.run(&sql).await?;
    }
    database.run("vacuum (analyze)").await?;
    check(channel, &conversation, shape).await?;
    Ok(conversation)
}

/// Appends the template message to a conversation of its own.
async fn append_template(
    stack: &BenchStack,
    channel: &Channel,
    database: &Database,
) -> anyhow::Result<TemplateMessage> {
    let conversation = stack.create_conversation(channel, None).await?;
    append_one_by_one(channel, &conversation, 1).await?;
    let sql = format!(
        "select encode(content_digest, 'hex') from ai_message where conversation_id = '{conversation}'"
    );
    let content_digest = hex::decode(database.run(&sql).await?)?;
    Ok(TemplateMessage {
        conversation,
        content_digest,
    })
}

/// SQL that inserts copies of the template's row into the conversation, each with its own request
/// id, and updates the conversation's counters. Odd ids have the role `user` (1), even ones
/// `assistant` (2).
fn messages_sql(template: &TemplateMessage, conversation: &str, messages: usize) -> String {
    let template = &template.conversation;
    format!(
        "insert into ai_message (tenant_id, conversation_id, message_id, role, turn, token_estimate, token_count, text_bytes,
            content_bytes, content, content_digest, request_id, request_digest, request_messages)
         select tenant_id, '{conversation}', n, 2 - n % 2, (n + 1) / 2, token_estimate,
            coalesce(token_count, token_estimate), text_bytes, content_bytes, content, content_digest, gen_random_uuid()::text,
            request_digest, request_messages
         from ai_message cross join generate_series(1, {messages}) as n
         where conversation_id = '{template}' and message_id = 1
         order by n;
         update ai_conversation
         set last_message_id = {messages}, counted_message_id = {messages}, last_role = 2 - {messages} % 2,
            turn = ({messages} + 1) / 2,
            token_total = (select sum(token_count) from ai_message where conversation_id = '{conversation}')
         where conversation_id = '{conversation}';"
    )
}

/// SQL that inserts a chain of checkpoints, the newest of which leaves a tail of the requested
/// length. `None` if the whole history is the tail. The first value of each row is the id of the
/// tenant `default`.
fn checkpoints_sql(template: &TemplateMessage, conversation: &str, shape: Shape) -> Option<String> {
    let newest = shape
        .messages
        .checked_sub(shape.tail)
        .filter(|newest| *newest > 0)?;
    // A whole number of steps before the newest, and within the first step.
    let oldest = (newest - 1) % STEP + 1;
    let (mut rows, mut previous) = (Vec::new(), None);
    for (generation, last) in (oldest..=newest).step_by(STEP).enumerate() {
        let source_first = previous.unwrap_or(0) + 1;
        let sources = (source_first..=last)
            .map(|id| (MessageId(id as i64), template.content_digest.as_slice()));
        let digest = hex::encode(digest::of_sources(sources));
        let previous_message =
            previous.map_or("null".to_owned(), |previous: usize| previous.to_string());
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

/// Checks that the service finds a tail of the requested length and, up to
/// [`MAX_VERIFIED_MESSAGES`], that VerifyConversation reports no violation.
async fn check(channel: &Channel, conversation: &str, shape: Shape) -> anyhow::Result<()> {
    let ask = pb::GetContextUsageRequest {
        conversation_id: conversation.to_owned(),
        ..Default::default()
    };
    let usage = BenchStack::context_client(channel)
        .get_context_usage(ask)
        .await?
        .into_inner();
    let (tail, wanted) = (usage.tail_messages as usize, shape.tail);
    anyhow::ensure!(
        tail == wanted,
        "the service finds a tail of {tail} messages, not {wanted}"
    );
    if shape.messages <= MAX_VERIFIED_MESSAGES {
        let mut ask = tonic::Request::new(pb::VerifyConversationRequest {
            conversation_id: conversation.to_owned(),
        });
        ask.set_timeout(std::time::Duration::from_mins(1));
        let verified = OperatorServiceClient::new(channel.clone())
            .verify_conversation(ask)
            .await?
            .into_inner();
        anyhow::ensure!(
            verified.violations.is_empty(),
            "the service finds violations in the history: {:?}",
            verified.violations
        );
    }
    Ok(())
}
