//! What must hold after every single operation, whoever is busy with the conversation meanwhile.

use anneal_core::{job::JobKind, policy::PolicyOverrides, trigger};
use anneal_tests::{Built, Rendered, pb};
use pb::Format;
use sqlx::Row as _;

use crate::world::{Broken, CALLER, World};

/// A budget that most contexts here do not fit: the newest message alone may take as much.
const BUDGET: u64 = 900;

/// How the conversation's rows stand.
struct Stand {
    newest: i64,
    counted: i64,
    /// Kinds of jobs that wait, run or are dead.
    jobs: Vec<i16>,
    /// The newest separator.
    separator: Option<i64>,
}

async fn stand(world: &mut World<'_>) -> Stand {
    let row = sqlx::query(
        "select last_message_id, counted_message_id,
            array(select kind from ai_job where conversation_id = c.conversation_id
                union all select kind from ai_job_dead where conversation_id = c.conversation_id) as jobs,
            (select max(after_message_id) from ai_separator where conversation_id = c.conversation_id) as separator
        from ai_conversation as c where conversation_id = $1",
    );
    let row = row.bind(world.id.0).fetch_one(&mut *world.db).await.expect("the conversation is there");
    Stand { newest: row.get(0), counted: row.get(1), jobs: row.get(2), separator: row.get(3) }
}

/// Everything.
pub(crate) async fn hold(world: &mut World<'_>) -> Result<(), Broken> {
    messages(world).await?;
    verification(world).await?;
    let stand = stand(world).await;
    work(world, &stand).await?;
    context(world, &stand).await
}

/// What was said is there, dense and in order, byte for byte; what is counted is counted as what it says.
async fn messages(world: &mut World<'_>) -> Result<(), Broken> {
    let talk = world.house.talk_of(&world.id.to_string());
    let stored = talk.messages().await;
    for message in &stored {
        let new = pb::NewMessage { role: message.role, parts: message.parts.clone(), ..Default::default() };
        let (id, kept) = (message.message_id, world.said.get(message.message_id as usize - 1));
        if kept != Some(&new) {
            return Err(format!("message {id} is {new:?}, and {kept:?} was said"));
        }
        let (counted, tokens) = (message.tokens.unwrap_or_default(), world.tokens_of(&new).cast_unsigned());
        if !counted.estimated && counted.tokens != tokens {
            return Err(format!("message {id} is counted as {counted:?}, and has {tokens} tokens"));
        }
    }
    let ids: Vec<i64> = stored.iter().map(|message| message.message_id).collect();
    if ids.iter().copied().eq(1..=world.newest().0) {
        return Ok(());
    }
    Err(format!("{ids:?} are stored, {} messages were said", world.said.len()))
}

/// Promises 3, 6, 7, 12, and all figures.
async fn verification(world: &World<'_>) -> Result<(), Broken> {
    let verified = world.house.store.verify(CALLER, world.id).await.map_err(|error| format!("unverified: {error}"))?;
    let found: Vec<String> = verified
        .violations
        .iter()
        .map(|broken| format!("promise {}: {}", broken.promise, broken.description))
        .collect();
    if found.is_empty() { Ok(()) } else { Err(found.join("; ")) }
}

/// What is to be done has a job, or is noted as quiet and is so.
async fn work(world: &World<'_>, stand: &Stand) -> Result<(), Broken> {
    let has = |kind: JobKind| stand.jobs.contains(&kind.code());
    if stand.counted < stand.newest && !has(JobKind::CountTokens) {
        return Err(format!("messages after {} are not counted, and no job is there that would", stand.counted));
    }
    if has(JobKind::CountTokens) {
        // It looks at the triggers when it ends.
        return Ok(());
    }
    let usage = world.house.store.usage(CALLER, world.id, &PolicyOverrides::default()).await;
    let state = usage.map_err(|error| format!("no figures: {error}"))?.state;
    match trigger::jobs(&state).into_iter().find(|kind| !has(*kind)) {
        None => Ok(()),
        Some(kind) => Err(format!("{} is due, and no job is there: {state:?}", kind.name())),
    }
}

/// The manifest tells of every message once; the context starts where separators and checkpoints say.
async fn context(world: &World<'_>, stand: &Stand) -> Result<(), Broken> {
    let known = world.separators.last().map(|after| after.0);
    if stand.separator != known {
        return Err(format!("the newest separator stands after {:?}, put after {known:?}", stand.separator));
    }
    let built = world.context(pb::BuildContextRequest::default()).await?;
    covers_all(&built, stand)?;
    if built.boundary_message_id < known.unwrap_or(0) {
        return Err(format!("the context starts after {}, before the separator", built.boundary_message_id));
    }
    provider_takes(world, stand, &built).await
}

fn covers_all(built: &pb::BuildContextResponse, stand: &Stand) -> Result<(), Broken> {
    let mut next = 1;
    for entry in &built.manifest {
        if entry.first_message_id != next || entry.last_message_id < entry.first_message_id {
            return Err(format!("the manifest has a gap or an overlap at {next}: {:?}", built.manifest));
        }
        next = entry.last_message_id + 1;
    }
    if next == stand.newest + 1 {
        return Ok(());
    }
    Err(format!("the manifest ends before {next}, the newest message is {}", stand.newest))
}

/// What is sent is what a provider takes: every call with its result and no result without a call, in a small budget too,
/// which keeps the newest words of the user.
async fn provider_takes(world: &World<'_>, stand: &Stand, neutral: &pb::BuildContextResponse) -> Result<(), Broken> {
    if neutral.messages.is_empty() {
        return Ok(());
    }
    let formats = [Format::OpenaiChat, Format::AnthropicMessages, Format::GeminiContents];
    let format = formats[stand.newest as usize % formats.len()];
    for budget_tokens in [None, Some(BUDGET)] {
        let ask = pb::BuildContextRequest { format: format.into(), budget_tokens, ..Default::default() };
        let built = Built(world.context(pb::BuildContextRequest { dry_run: true, ..ask }).await?);
        covers_all(&built.0, stand)?;
        if budget_tokens.is_some_and(|most| built.0.total_tokens > most) {
            return Err(format!("{} tokens of {BUDGET} in {format:?}", built.0.total_tokens));
        }
        let by_user = world.said.iter().rposition(|message| message.role() == pb::Role::User);
        let newest = by_user.map_or(0, |place| place as i64 + 1);
        if newest > built.0.boundary_message_id && built.fate(newest).0 == pb::Representation::Dropped {
            return Err(format!("the user's newest message {newest} is left out within {budget_tokens:?}"));
        }
        let rendered = Rendered::read(&built, format).map_err(|error| format!("{format:?}: {error}"))?;
        let refusals = rendered.refusals();
        if !refusals.is_empty() {
            return Err(format!("{format:?} within {budget_tokens:?} would be refused: {refusals:?}"));
        }
    }
    Ok(())
}

/// A checkpoint that was made from what there is parts no call from its result.
pub(crate) async fn parts_no_pair(world: &mut World<'_>) -> Result<(), Broken> {
    let last = world.newest_checkpoint().await;
    for (call, result) in world.pairs() {
        if last.is_some_and(|last| (call..result).contains(&last)) {
            return Err(format!("a checkpoint up to {last:?} parts the call {call} from its result {result}"));
        }
    }
    Ok(())
}

/// When everybody has done what there was to do: all is counted, and no job is left.
pub(crate) async fn are_settled(world: &mut World<'_>) -> Result<(), Broken> {
    hold(world).await?;
    let stand = stand(world).await;
    if stand.counted != stand.newest || !stand.jobs.is_empty() {
        return Err(format!("{} of {} are counted, jobs {:?} are left", stand.counted, stand.newest, stand.jobs));
    }
    let last = world.newest_checkpoint().await;
    if world.pairs().iter().any(|(_, result)| last.is_some_and(|last| *result <= last)) {
        world.note("calls with their results in checkpoints");
    }
    let checkpoints = sqlx::query_scalar("select count(*) from ai_conversation_checkpoint where conversation_id = $1");
    let made: i64 = checkpoints.bind(world.id.0).fetch_one(&mut *world.db).await.expect("asks");
    *world.tally.entry("checkpoints").or_default() += made.unsigned_abs();
    let summaries = sqlx::query_scalar("select count(summary_cache) from ai_message where conversation_id = $1");
    let made: i64 = summaries.bind(world.id.0).fetch_one(&mut *world.db).await.expect("asks");
    *world.tally.entry("summaries of messages").or_default() += made.unsigned_abs();
    Ok(())
}

/// Nothing is left of a deleted conversation, whoever has woken up since.
pub(crate) async fn nothing_is_left(db: &mut sqlx::PgConnection) -> Result<(), Broken> {
    let left = "select (select count(*) from ai_conversation) + (select count(*) from ai_message)
        + (select count(*) from ai_job) + (select count(*) from ai_job_dead) + (select count(*) from ai_summary_part)
        + (select count(*) from ai_conversation_checkpoint) + (select count(*) from ai_request)
        + (select count(*) from ai_session) + (select count(*) from ai_separator) + (select count(*) from ai_context_prefix)";
    let left: i64 = sqlx::query_scalar(left).fetch_one(db).await.expect("counts");
    if left == 0 { Ok(()) } else { Err(format!("{left} rows are left of a deleted conversation")) }
}
