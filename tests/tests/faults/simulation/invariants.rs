//! The invariants.
//!
//! - [`check`] runs after every operation. It checks rows and jobs and is fast.
//! - [`check_closely`] runs after one operation of each list and takes several times as long.
//! - [`check_all`] runs after the last operation of a list. It takes longest.

use anneal_core::{caller::ConversationId, job::JobKind, policy::PolicyOverrides, trigger};
use anneal_testkit::{Built, Rendered, TestApp, pb};
use pb::Format;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::simulation::{
    contexts::has_stored_message,
    conversation::{CALLER, SimulatedConversation, Violation},
    stored_rows::{self, StoredRows},
};

/// A token budget that most whole contexts exceed. It is enough for the newest message alone.
const BUDGET: u64 = 900;

/// Number of context variants: each provider format, whole and within the budget.
pub(crate) const BUILD_VARIANTS: u8 = 2 * FORMATS.len() as u8;
/// The providers' formats.
pub(crate) const FORMATS: [Format; 3] = [
    Format::OpenaiChat,
    Format::AnthropicMessages,
    Format::GeminiContents,
];

/// Checks rows and due jobs. If there is a new checkpoint, or if messages were changed, the
/// conversation is verified as well.
pub(crate) async fn check(
    simulated: &mut SimulatedConversation<'_>,
) -> Result<StoredRows, Violation> {
    let rows = stored_rows::read_and_check(simulated).await?;
    check_due_jobs(simulated, &rows).await?;
    let must_verify = std::mem::take(&mut simulated.must_verify);
    if must_verify || rows.checkpoints != simulated.checkpoints {
        simulated.checkpoints.clone_from(&rows.checkpoints);
        verify(simulated.app, simulated.id).await?;
    }
    Ok(rows)
}

/// Runs [`check`], compares the messages, verifies the conversation, and checks one context, whose
/// variant depends on the newest message. The checks write nothing.
pub(crate) async fn check_closely(
    simulated: &mut SimulatedConversation<'_>,
) -> Result<(), Violation> {
    let rows = check(simulated).await?;
    check_messages(simulated).await?;
    verify(simulated.app, simulated.id).await?;
    check_context(simulated, &rows, rows.newest as u8 % BUILD_VARIANTS).await
}

/// As [`check_closely`], but with three contexts: neutral, in one provider format, and in this
/// format within the budget. Also looks for what is left of erased messages, and compares what the
/// tenant has stored with the rows.
pub(crate) async fn check_all(
    simulated: &mut SimulatedConversation<'_>,
) -> Result<StoredRows, Violation> {
    let rows = check(simulated).await?;
    check_messages(simulated).await?;
    verify(simulated.app, simulated.id).await?;
    check_neutral_context(simulated, &rows).await?;
    let variant = rows.newest as u8 % FORMATS.len() as u8;
    check_context(simulated, &rows, variant).await?;
    check_context(simulated, &rows, variant + FORMATS.len() as u8).await?;
    search_erased_words(simulated).await?;
    check_usage(simulated.db).await?;
    Ok(rows)
}

/// Checks that callers read the messages that stand, in order and unchanged, that the token counts
/// of counted messages are exact, and that nothing that does not stand is in lists or in the title.
async fn check_messages(simulated: &SimulatedConversation<'_>) -> Result<(), Violation> {
    let conversation = simulated.app.conversation_by_id(&simulated.id.to_string());
    let stored = conversation.messages().await;
    simulated.check_marks("the list of messages", &stored)?;
    simulated.check_marks("the list of checkpoints", &conversation.checkpoints().await)?;
    simulated.check_marks("the conversation", &conversation.conversation().await)?;
    let mut standing = simulated.standing();
    for message in &stored {
        let new = pb::NewMessage::from(message.clone());
        let id = message.message_id;
        let expected = standing.next();
        let Some((_, version)) =
            expected.filter(|(expected_id, version)| *expected_id == id && version.message == new)
        else {
            let expected = expected.map(|(id, version)| (id, &version.message));
            return Err(format!("message {id} is {new:?}, expected {expected:?}"));
        };
        let counted = message.tokens.unwrap_or_default();
        if !counted.estimated && counted.tokens != version.tokens.cast_unsigned() {
            return Err(format!(
                "message {id} is counted as {counted:?}, and has {} tokens",
                version.tokens
            ));
        }
        let number = simulated.message(id).versions.len() as i32;
        if message.version != number {
            return Err(format!(
                "message {id} is read as version {}, expected {number}",
                message.version
            ));
        }
    }
    standing.next().map_or(Ok(()), |(id, _)| {
        Err(format!("message {id} stands, but is not listed"))
    })
}

/// Where a text like one of these ($2) is left of the conversation $1.
const FIND_TEXTS: &str = "
    select distinct place from (
        select 'ai_message' as place, concat_ws(' ', content, metadata, summary_cache) as text
        from ai_message where conversation_id = $1
        union all
        select 'ai_message_version', concat_ws(' ', content, metadata) from ai_message_version where conversation_id = $1
        union all
        select 'ai_conversation_checkpoint', concat_ws(' ', summary, focus)
        from ai_conversation_checkpoint where conversation_id = $1
        union all
        select 'ai_void_checkpoint', concat_ws(' ', summary, focus) from ai_void_checkpoint where conversation_id = $1
        union all
        select 'ai_prepared_checkpoint', concat_ws(' ', summary, focus)
        from ai_prepared_checkpoint where conversation_id = $1
        union all
        select 'ai_summary_part', summary from ai_summary_part where conversation_id = $1
        union all
        select 'ai_conversation', title from ai_conversation where conversation_id = $1
    ) as stored
    where text like any ($2)";

/// Checks that no table has a word of an erased message.
async fn search_erased_words(simulated: &mut SimulatedConversation<'_>) -> Result<(), Violation> {
    let erased = simulated.erased_marks();
    let patterns: Vec<String> = erased.map(|mark| format!("%{mark}%")).collect();
    let places: Vec<String> = sqlx::query_scalar(FIND_TEXTS)
        .bind(simulated.id.0)
        .bind(&patterns)
        .fetch_all(&mut *simulated.db)
        .await
        .expect("runs the query");
    if places.is_empty() {
        Ok(())
    } else {
        Err(format!("{places:?} have something of an erased message"))
    }
}

/// The usage of all tenants: messages and bytes, by the figures and by the rows.
const USAGE: &str = "
    select (select coalesce(sum(messages), 0) from tenant_usage_part)::bigint,
        (select coalesce(sum(content_bytes), 0) from tenant_usage_part)::bigint,
        (select count(*) from ai_message where token_count is not null),
        (select coalesce(sum(content_bytes), 0) from ai_message where token_count is not null)::bigint
            + (select coalesce(sum(content_bytes), 0) from ai_message_version)::bigint";

/// Checks that what the tenant has stored is the sum of the counted messages and of all content
/// that does not stand.
async fn check_usage(db: &mut PgConnection) -> Result<(), Violation> {
    let (messages, bytes, counted, content_bytes): (i64, i64, i64, i64) = sqlx::query_as(USAGE)
        .fetch_one(db)
        .await
        .expect("runs the query");
    if (messages, bytes) == (counted, content_bytes) {
        return Ok(());
    }
    Err(format!(
        "the tenant is said to store {messages} messages with {bytes} bytes, and stores {counted} with {content_bytes}"
    ))
}

/// Checks that `Store::verify` finds no broken promise and no wrong total. The numbers of the
/// promises are those of `Violation.promise` in the proto.
pub(crate) async fn verify(app: &TestApp, id: ConversationId) -> Result<(), Violation> {
    let verified = app
        .store
        .verify(CALLER, id)
        .await
        .map_err(|error| format!("not verified: {error}"))?;
    let found: Vec<String> = verified
        .violations
        .iter()
        .map(|violation| format!("promise {}: {}", violation.promise, violation.description))
        .collect();
    if found.is_empty() {
        Ok(())
    } else {
        Err(found.join("; "))
    }
}

/// Checks that all due work has a job.
async fn check_due_jobs(
    simulated: &SimulatedConversation<'_>,
    rows: &StoredRows,
) -> Result<(), Violation> {
    let has = |kind: JobKind| rows.jobs.contains(&kind.code());
    if rows.counted < rows.newest && !has(JobKind::CountTokens) {
        return Err(format!(
            "messages after {} are not counted, and there is no counting job",
            rows.counted
        ));
    }
    if has(JobKind::CountTokens) {
        // The counting job evaluates the triggers when it ends.
        return Ok(());
    }
    let usage = simulated
        .app
        .store
        .read_context_usage(CALLER, simulated.id, &PolicyOverrides::default())
        .await;
    let state = usage.map_err(|error| format!("no usage: {error}"))?.state;
    match trigger::due_jobs(&state)
        .into_iter()
        .find(|kind| !has(*kind))
    {
        None => Ok(()),
        Some(kind) => Err(format!(
            "{} is due, and there is no job: {state:?}",
            kind.name()
        )),
    }
}

/// The request for this variant, below [`BUILD_VARIANTS`].
fn build_request(variant: u8) -> pb::BuildContextRequest {
    let format = FORMATS[usize::from(variant) % FORMATS.len()];
    let budget_tokens = (usize::from(variant) >= FORMATS.len()).then_some(BUDGET);
    pb::BuildContextRequest {
        format: format.into(),
        budget_tokens,
        ..Default::default()
    }
}

/// Builds the neutral context, which has no provider's format. Checks that its manifest lists every
/// message once, and that it starts after the boundary.
async fn check_neutral_context(
    simulated: &SimulatedConversation<'_>,
    rows: &StoredRows,
) -> Result<(), Violation> {
    let built = simulated
        .build_context(pb::BuildContextRequest {
            dry_run: true,
            ..Default::default()
        })
        .await?;
    check_manifest(simulated, &built)?;
    check_boundary(rows.boundary, &built)
}

/// Checks the context of this variant: its manifest, its boundary, and that the provider accepts
/// it. A context without messages that stand is checked in the neutral format, because no provider
/// accepts an empty one.
async fn check_context(
    simulated: &SimulatedConversation<'_>,
    rows: &StoredRows,
    variant: u8,
) -> Result<(), Violation> {
    if !simulated.has_standing_after(rows.boundary) {
        return check_neutral_context(simulated, rows).await;
    }
    let built = check_provider_request(
        simulated,
        pb::BuildContextRequest {
            dry_run: true,
            ..build_request(variant)
        },
    )
    .await?;
    check_boundary(rows.boundary, &built)
}

fn check_boundary(boundary: i64, built: &pb::BuildContextResponse) -> Result<(), Violation> {
    if built.boundary_message_id == boundary {
        return Ok(());
    }
    Err(format!(
        "the context starts after message {}, not after {boundary}",
        built.boundary_message_id
    ))
}

/// Builds a context as a caller does, not as a dry run, so that the service records its prefix.
/// Checks the context. One without a message must be refused.
pub(crate) async fn build_and_check_context(
    simulated: &SimulatedConversation<'_>,
    variant: u8,
) -> Result<(), Violation> {
    let preview = simulated
        .build_context(pb::BuildContextRequest {
            dry_run: true,
            ..Default::default()
        })
        .await?;
    let is_empty = !has_stored_message(&preview);
    if !is_empty && !simulated.has_standing_after(preview.boundary_message_id) {
        return Err(format!(
            "a context has a message that does not stand: {preview:?}"
        ));
    }
    let built = simulated
        .try_build_context(pb::BuildContextRequest::default())
        .await?;
    match built {
        None if is_empty => Ok(()),
        None => Err(format!("a context is refused as empty: {preview:?}")),
        Some(built) if is_empty => Err(format!("an empty context is not refused: {built:?}")),
        Some(built) => {
            check_manifest(simulated, &built)?;
            let checked = check_provider_request(simulated, build_request(variant)).await;
            checked.map(|_| ())
        }
    }
}

/// Checks that a context's manifest lists every message once, and that the context has nothing that
/// does not stand.
fn check_manifest(
    simulated: &SimulatedConversation<'_>,
    built: &pb::BuildContextResponse,
) -> Result<(), Violation> {
    simulated.check_marks("a context", built)?;
    let mut next = 1;
    for entry in &built.manifest {
        if entry.first_message_id != next || entry.last_message_id < entry.first_message_id {
            return Err(format!(
                "the manifest has a gap or an overlap at {next}: {:?}",
                built.manifest
            ));
        }
        next = entry.last_message_id + 1;
    }
    if next == simulated.last_message_id().0 + 1 {
        return Ok(());
    }
    Err(format!(
        "the manifest ends before {next}, the newest message is {}",
        simulated.last_message_id()
    ))
}

/// Builds a context and checks that its provider accepts it: every call has its result, and every
/// result its call. The context must fit its budget, if it has one, and must have the user's newest
/// message, unless the context starts after it.
async fn check_provider_request(
    simulated: &SimulatedConversation<'_>,
    ask: pb::BuildContextRequest,
) -> Result<pb::BuildContextResponse, Violation> {
    let (format, budget_tokens) = (ask.format(), ask.budget_tokens);
    let built = Built(simulated.build_context(ask).await?);
    check_manifest(simulated, &built.0)?;
    if budget_tokens.is_some_and(|budget| built.0.total_tokens > budget) {
        return Err(format!(
            "the context in {format:?} has {} tokens, the budget is {BUDGET}",
            built.0.total_tokens
        ));
    }
    let by_user = simulated
        .standing()
        .filter(|(_, version)| version.message.role() == pb::Role::User);
    let newest_by_user = by_user.last().map_or(0, |(id, _)| id);
    if newest_by_user > built.0.boundary_message_id
        && built.representation(newest_by_user).0 == pb::Representation::Dropped
    {
        return Err(format!(
            "the user's newest message {newest_by_user} is left out of a context within {budget_tokens:?} tokens"
        ));
    }
    let rendered =
        Rendered::read(&built, format).map_err(|error| format!("{format:?}: {error}"))?;
    let refusals = rendered.refusals();
    if refusals.is_empty() {
        return Ok(built.0);
    }
    Err(format!(
        "a context in {format:?} within {budget_tokens:?} tokens would be refused: {refusals:?}"
    ))
}

/// Checks that the newest checkpoint does not separate a tool call from its result. This holds only
/// for a checkpoint that was made from the present messages, and for pairs that no separator and no
/// earlier checkpoint separated when it was made: a restored result may follow one.
pub(crate) async fn check_tool_pairs(
    simulated: &mut SimulatedConversation<'_>,
) -> Result<(), Violation> {
    let last = simulated.read_last_checkpoint().await;
    let separators = simulated.separators.iter().map(|after| after.0);
    let earlier: Vec<i64> = separators
        .chain(simulated.checkpoints.iter().copied())
        .collect();
    for (call, result) in simulated.tool_pairs() {
        let separates = |end: &i64| (call..result).contains(end);
        if last.is_some_and(|last| separates(&last)) && !earlier.iter().any(separates) {
            return Err(format!(
                "a checkpoint up to {last:?} separates the call {call} from its result {result}"
            ));
        }
    }
    Ok(())
}

/// Checks all invariants, that every message is counted and no job is left, and that contexts are
/// those of a conversation that was only told what is left. Call it after all jobs have run.
pub(crate) async fn check_after_all_jobs(
    simulated: &mut SimulatedConversation<'_>,
) -> Result<(), Violation> {
    let rows = check_all(simulated).await?;
    if rows.counted != rows.newest || !rows.jobs.is_empty() {
        return Err(format!(
            "messages up to {} of {} are counted, jobs of the kinds {:?} are left",
            rows.counted, rows.newest, rows.jobs
        ));
    }
    let last = rows.checkpoints.last();
    if simulated
        .tool_pairs()
        .iter()
        .any(|(_, result)| last.is_some_and(|last| result <= last))
    {
        simulated.record_event("calls with their results in checkpoints");
    }
    *simulated.tally.entry("checkpoints").or_default() += rows.checkpoints.len() as u64;
    *simulated.tally.entry("summaries of messages").or_default() += rows.summaries.unsigned_abs();
    simulated.compare_with_retold(&rows).await
}

/// The tables with rows of conversations.
const TABLES: [&str; 16] = [
    "ai_message",
    "ai_message_version",
    "ai_message_change",
    "ai_void_checkpoint",
    "ai_alternative",
    "ai_prepared_checkpoint",
    "ai_response",
    "ai_fork",
    "ai_job",
    "ai_job_dead",
    "ai_summary_part",
    "ai_conversation_checkpoint",
    "ai_request",
    "ai_session",
    "ai_separator",
    "ai_context_prefix",
    "ai_conversation",
];

/// Checks that no row of a deleted conversation is left, although workers have resumed after the
/// deletion. The tables must be empty, because the database has no other conversation then.
pub(crate) async fn check_no_rows_left(db: &mut PgConnection) -> Result<(), Violation> {
    let counts = TABLES.map(|table| format!("(select count(*) from {table})"));
    let count_rows = AssertSqlSafe(format!("select {}", counts.join(" + ")));
    let rows: i64 = sqlx::query_scalar(count_rows)
        .fetch_one(db)
        .await
        .expect("counts");
    if rows == 0 {
        Ok(())
    } else {
        Err(format!("{rows} rows are left of a deleted conversation"))
    }
}

/// Deletes all rows of [`TABLES`] after a list that has violated an invariant, and the figures of
/// what the tenant has stored.
pub(crate) async fn delete_all_rows(db: &mut PgConnection) {
    for table in TABLES.into_iter().chain(["tenant_usage_part"]) {
        let all = AssertSqlSafe(format!("delete from {table}"));
        sqlx::query(all).execute(&mut *db).await.expect("deletes");
    }
}
