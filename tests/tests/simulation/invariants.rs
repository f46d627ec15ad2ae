//! What must hold after every operation, whoever is busy with the conversation meanwhile: rows and jobs, which is quickly
//! asked; and everything, which takes several times as long, where a list is looked at closely and at its end.

use anneal_core::{job::JobKind, policy::PolicyOverrides, trigger};
use anneal_tests::{Built, Rendered, pb};
use pb::Format;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::{
    rows::{self, Stand},
    world::{Broken, CALLER, World},
};

/// A budget that most contexts here do not fit: the newest message alone may take as much.
const BUDGET: u64 = 900;

/// The ways in which contexts are built: in each format of a provider, whole and within the budget.
pub(crate) const BUILDS: u8 = 2 * FORMATS.len() as u8;
const FORMATS: [Format; 3] = [Format::OpenaiChat, Format::AnthropicMessages, Format::GeminiContents];

/// What is quickly asked. A checkpoint that was not there before is verified with all that it was made of.
pub(crate) async fn hold(world: &mut World<'_>) -> Result<Stand, Broken> {
    let stand = rows::hold(world).await?;
    work(world, &stand).await?;
    if stand.checkpoints != world.checkpoints {
        world.checkpoints.clone_from(&stand.checkpoints);
        verification(world).await?;
    }
    Ok(stand)
}

/// Everything, of contexts one: in whichever way it is the turn of. Nothing that is asked here leaves a trace.
pub(crate) async fn hold_closely(world: &mut World<'_>) -> Result<(), Broken> {
    let stand = hold(world).await?;
    messages(world).await?;
    verification(world).await?;
    context(world, &stand, stand.newest as u8 % BUILDS).await
}

/// Everything, and contexts as they are, in one of the formats, and in that within the budget.
pub(crate) async fn all_hold(world: &mut World<'_>) -> Result<Stand, Broken> {
    let stand = hold(world).await?;
    messages(world).await?;
    verification(world).await?;
    neutral_context(world, &stand).await?;
    let way = stand.newest as u8 % FORMATS.len() as u8;
    context(world, &stand, way).await?;
    context(world, &stand, way + FORMATS.len() as u8).await?;
    Ok(stand)
}

/// Callers get what was said, dense and in order, byte for byte; what is counted is counted as what it says.
async fn messages(world: &mut World<'_>) -> Result<(), Broken> {
    let talk = world.house.talk_of(&world.id.to_string());
    let stored = talk.messages().await;
    for message in &stored {
        let new = pb::NewMessage { role: message.role, parts: message.parts.clone(), ..Default::default() };
        let (id, kept) = (message.message_id, world.said.get(message.message_id as usize - 1));
        if kept != Some(&new) {
            return Err(format!("message {id} is {new:?}, and {kept:?} was said"));
        }
        let tokens = world.kept()[id as usize - 1].tokens.cast_unsigned();
        let counted = message.tokens.unwrap_or_default();
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

/// What is asked for in one of [`BUILDS`] ways.
fn ask(way: u8) -> pb::BuildContextRequest {
    let format = FORMATS[usize::from(way) % FORMATS.len()];
    let budget_tokens = (usize::from(way) >= FORMATS.len()).then_some(BUDGET);
    pb::BuildContextRequest { format: format.into(), budget_tokens, ..Default::default() }
}

/// The manifest tells of every message once; the context starts where separators and checkpoints say.
async fn neutral_context(world: &World<'_>, stand: &Stand) -> Result<(), Broken> {
    let built = world.context(pb::BuildContextRequest { dry_run: true, ..Default::default() }).await?;
    covers_all(world, &built)?;
    starts_after(stand.boundary, &built)
}

/// The same, built in one of [`BUILDS`] ways, is what its provider takes, where there is anything to send.
async fn context(world: &World<'_>, stand: &Stand, way: u8) -> Result<(), Broken> {
    if stand.newest == stand.boundary {
        return neutral_context(world, stand).await;
    }
    let built = provider_takes(world, pb::BuildContextRequest { dry_run: true, ..ask(way) }).await?;
    starts_after(stand.boundary, &built)
}

fn starts_after(boundary: i64, built: &pb::BuildContextResponse) -> Result<(), Broken> {
    if built.boundary_message_id == boundary {
        return Ok(());
    }
    Err(format!("the context starts after {}, not after {boundary}", built.boundary_message_id))
}

/// A caller's context, built in one of [`BUILDS`] ways: what its beginning was is remembered.
pub(crate) async fn build(world: &World<'_>, way: u8) -> Result<(), Broken> {
    let built = world.context(pb::BuildContextRequest::default()).await?;
    covers_all(world, &built)?;
    if built.messages.is_empty() {
        return Ok(());
    }
    provider_takes(world, ask(way)).await.map(|_| ())
}

fn covers_all(world: &World<'_>, built: &pb::BuildContextResponse) -> Result<(), Broken> {
    let mut next = 1;
    for entry in &built.manifest {
        if entry.first_message_id != next || entry.last_message_id < entry.first_message_id {
            return Err(format!("the manifest has a gap or an overlap at {next}: {:?}", built.manifest));
        }
        next = entry.last_message_id + 1;
    }
    if next == world.newest().0 + 1 {
        return Ok(());
    }
    Err(format!("the manifest ends before {next}, the newest message is {}", world.newest()))
}

/// What is sent is what a provider takes: every call with its result and no result without a call, in a small budget too,
/// which keeps the newest words of the user.
async fn provider_takes(world: &World<'_>, ask: pb::BuildContextRequest) -> Result<pb::BuildContextResponse, Broken> {
    let (format, budget_tokens) = (ask.format(), ask.budget_tokens);
    let built = Built(world.context(ask).await?);
    covers_all(world, &built.0)?;
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
    if refusals.is_empty() {
        return Ok(built.0);
    }
    Err(format!("{format:?} within {budget_tokens:?} would be refused: {refusals:?}"))
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
    let stand = all_hold(world).await?;
    if stand.counted != stand.newest || !stand.jobs.is_empty() {
        return Err(format!("{} of {} are counted, jobs {:?} are left", stand.counted, stand.newest, stand.jobs));
    }
    let last = stand.checkpoints.last();
    if world.pairs().iter().any(|(_, result)| last.is_some_and(|last| result <= last)) {
        world.note("calls with their results in checkpoints");
    }
    *world.tally.entry("checkpoints").or_default() += stand.checkpoints.len() as u64;
    *world.tally.entry("summaries of messages").or_default() += stand.summaries.unsigned_abs();
    Ok(())
}

/// Where something could be left of a conversation.
const TABLES: [&str; 10] = [
    "ai_message",
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

/// Nothing is left of a deleted conversation, whoever has woken up since.
pub(crate) async fn nothing_is_left(db: &mut PgConnection) -> Result<(), Broken> {
    let counts = TABLES.map(|table| format!("(select count(*) from {table})"));
    let left = AssertSqlSafe(format!("select {}", counts.join(" + ")));
    let left: i64 = sqlx::query_scalar(left).fetch_one(db).await.expect("counts");
    if left == 0 { Ok(()) } else { Err(format!("{left} rows are left of a deleted conversation")) }
}

/// Deletes what is left where a list was broken.
pub(crate) async fn clear(db: &mut PgConnection) {
    for table in TABLES {
        let all = AssertSqlSafe(format!("delete from {table}"));
        sqlx::query(all).execute(&mut *db).await.expect("clears");
    }
}
