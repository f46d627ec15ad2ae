//! What must hold after every single operation, whoever is busy with the conversation meanwhile.

use anneal_core::{job::JobKind, policy::PolicyOverrides, trigger};
use sqlx::Row as _;

use crate::world::{Broken, CALLER, World};

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
    let rows = sqlx::query(
        "select message_id, content -> 0 ->> 'text', token_count from ai_message where conversation_id = $1 order by 1",
    );
    let rows = rows.bind(world.id.0).fetch_all(&mut *world.db).await.expect("reads");
    let stored: Vec<(i64, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    for (row, (id, text)) in rows.iter().zip(&stored) {
        let (counted, tokens): (Option<i64>, i64) = (row.get(2), world.tokens_of(text));
        if counted.is_some_and(|counted| counted != tokens) {
            return Err(format!("message {id} is counted as {counted:?}, and has {tokens} tokens"));
        }
    }
    let said: Vec<(i64, String)> = (1..).zip(world.said.iter().cloned()).collect();
    if stored == said {
        return Ok(());
    }
    let first =
        stored.iter().zip(&said).position(|(stored, said)| stored != said).unwrap_or(stored.len().min(said.len()));
    Err(format!("{} messages are stored, {} were said; they part at {}", stored.len(), said.len(), first + 1))
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
    let built = world.context().await?;
    let mut next = 1;
    for entry in &built.manifest {
        if entry.first_message_id != next || entry.last_message_id < entry.first_message_id {
            return Err(format!("the manifest has a gap or an overlap at {next}: {:?}", built.manifest));
        }
        next = entry.last_message_id + 1;
    }
    if next != stand.newest + 1 {
        return Err(format!("the manifest ends before {next}, the newest message is {}", stand.newest));
    }
    if built.boundary_message_id < known.unwrap_or(0) {
        return Err(format!("the context starts after {}, before the separator", built.boundary_message_id));
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
        + (select count(*) from ai_separator) + (select count(*) from ai_context_prefix)";
    let left: i64 = sqlx::query_scalar(left).fetch_one(db).await.expect("counts");
    if left == 0 { Ok(()) } else { Err(format!("{left} rows are left of a deleted conversation")) }
}
