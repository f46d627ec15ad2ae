//! The conversation's rows, read and judged as a whole by one statement: cheap enough for after every operation.

use anneal_core::{
    digest,
    message::Role,
    tokens::{Encoding, count_message},
    turn,
};
use anneal_tests::parsed;
use sqlx::{FromRow, postgres::PgRow};

use crate::world::{Broken, World};

/// How the conversation's rows stand.
#[derive(FromRow)]
pub(crate) struct Stand {
    /// The newest message, as the conversation says.
    pub(crate) newest: i64,
    /// Up to which message tokens are counted.
    pub(crate) counted: i64,
    token_total: i64,
    turn: i32,
    /// Kinds of jobs that wait, run or are dead.
    pub(crate) jobs: Vec<i16>,
    separators: Vec<i64>,
    /// Where its checkpoints end, those behind separators too.
    pub(crate) checkpoints: Vec<i64>,
    /// Up to where the newest checkpoint or separator reaches that counts: contexts start after it.
    pub(crate) boundary: i64,
    /// Messages that have a summary.
    pub(crate) summaries: i64,
    ids: Vec<i64>,
    roles: Vec<i16>,
    turns: Vec<i32>,
    token_counts: Vec<Option<i64>>,
    token_estimates: Vec<i64>,
    digests: Vec<Vec<u8>>,
    /// Whether every message's content is what its digest says.
    whole: bool,
}

/// A message as its row should be.
pub(crate) struct Kept {
    role: Role,
    digest: digest::Digest,
    /// Its tokens, as a worker counts them.
    pub(crate) tokens: i64,
}

const STAND: &str = "
    select last_message_id as newest, counted_message_id as counted, token_total, turn, summaries, ids, roles, turns,
        token_counts, token_estimates, digests, whole, s.separators, k.checkpoints,
        greatest(s.separator, (
            select max(last_message_id) from ai_conversation_checkpoint
            where conversation_id = $1 and first_message_id = s.separator + 1
        )) as boundary,
        array(
            select kind from ai_job where conversation_id = $1
            union all select kind from ai_job_dead where conversation_id = $1
        ) as jobs
    from ai_conversation
    cross join lateral (
        select coalesce(array_agg(after_message_id order by after_message_id), '{}') as separators,
            coalesce(max(after_message_id), 0) as separator
        from ai_separator where conversation_id = $1
    ) as s
    cross join lateral (
        select coalesce(array_agg(last_message_id order by last_message_id), '{}') as checkpoints
        from ai_conversation_checkpoint where conversation_id = $1
    ) as k
    cross join lateral (
        select coalesce(array_agg(message_id), '{}') as ids, coalesce(array_agg(role), '{}') as roles,
            coalesce(array_agg(m.turn), '{}') as turns, coalesce(array_agg(token_count), '{}') as token_counts,
            coalesce(array_agg(token_estimate), '{}') as token_estimates,
            coalesce(array_agg(content_digest), '{}') as digests, count(summary_cache) as summaries,
            coalesce(bool_and(sha256(convert_to(content::text, 'UTF8')) = content_digest), true) as whole
        from (select * from ai_message where conversation_id = $1 order by message_id) as m
    ) as messages
    where conversation_id = $1";

/// What was said is there, dense and in order; what is counted is counted as what it says; the conversation's figures are
/// those of its messages; separators stand where they were put.
pub(crate) async fn hold(world: &mut World<'_>) -> Result<Stand, Broken> {
    let row: Option<PgRow> = sqlx::query(STAND).bind(world.id.0).fetch_optional(&mut *world.db).await.expect("asks");
    let row = row.ok_or_else(|| format!("the conversation {} is gone", world.id))?;
    let stand = Stand::from_row(&row).expect("the statement's columns");
    messages(world, &stand)?;
    let put: Vec<i64> = world.separators.iter().map(|after| after.0).collect();
    if stand.separators == put {
        return Ok(stand);
    }
    Err(format!("separators stand after {:?}, put after {put:?}", stand.separators))
}

fn messages(world: &mut World<'_>, stand: &Stand) -> Result<(), Broken> {
    let kept = world.kept();
    let wanted: Vec<i64> = (1..=kept.len() as i64).collect();
    if stand.ids != wanted || stand.newest != kept.len() as i64 {
        return Err(format!("{:?} are stored up to {}, {} messages were said", stand.ids, stand.newest, kept.len()));
    }
    if !stand.whole {
        return Err("a message's content is not what its digest says".into());
    }
    let (mut turn, mut before, mut total) = (0, None, 0);
    for (place, message) in kept.iter().enumerate() {
        let id = stand.ids[place];
        turn += i32::from(turn::starts(message.role, before));
        before = Some(message.role);
        if (stand.roles[place], stand.turns[place]) != (code(message.role), turn) {
            let (role, found) = (stand.roles[place], stand.turns[place]);
            return Err(format!(
                "message {id} has the role {role} in turn {found}, said as {:?} in {turn}",
                message.role
            ));
        }
        if stand.digests[place] != message.digest {
            return Err(format!("message {id} is not what was said"));
        }
        let counted = stand.token_counts[place];
        if counted.is_some_and(|counted| counted != message.tokens) || counted.is_some() != (id <= stand.counted) {
            let (tokens, up_to) = (message.tokens, stand.counted);
            return Err(format!(
                "message {id} is counted as {counted:?}, and has {tokens} tokens; counted up to {up_to}"
            ));
        }
        total += counted.unwrap_or(stand.token_estimates[place]);
    }
    if (stand.turn, stand.token_total) == (turn, total) {
        return Ok(());
    }
    let (told_turn, told) = (stand.turn, stand.token_total);
    Err(format!("turn {told_turn} and {told} tokens are told of messages with {total} tokens up to turn {turn}"))
}

const fn code(role: Role) -> i16 {
    match role {
        Role::User => 1,
        Role::Assistant => 2,
        Role::Tool => 3,
        Role::System => 4,
    }
}

impl World<'_> {
    /// What was said, as rows.
    pub(crate) fn kept(&mut self) -> &[Kept] {
        for new in &self.said[self.kept.len()..] {
            let message = parsed(new);
            let content = serde_json::to_string(&message.parts).expect("parts are JSON");
            let tokens = count_message(Encoding::default(), &message).get().cast_signed();
            self.kept.push(Kept { role: message.role, digest: digest::of_content(&content), tokens });
        }
        &self.kept
    }
}
