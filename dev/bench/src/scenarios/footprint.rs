//! Disk usage: the bytes of each table and index per message of a long history; and dead rows,
//! bloat and the share of HOT updates after a mixed load. The load runs for 10 s, or for an hour
//! with `anneal-bench footprint --minutes 60`.

use std::time::{Duration, Instant};

use anneal_proto::{convert::message::text_message, v1 as pb};
use tokio::task::JoinSet;

use crate::{
    connection::Channel,
    conversations,
    database::Database,
    figures::{Figure, Figures, Target},
    history::{self, Shape},
    pace::Pace,
    stack::BenchStack,
};

/// Messages of the long history: so many that the rows of other tables are negligible.
const MESSAGES: usize = 200_000;
const SHORT_LOAD: Duration = Duration::from_secs(10);
/// Conversations of the mixed load.
const CONVERSATIONS: usize = 64;
/// Callers of the mixed load that append.
const APPENDERS: usize = 8;
/// Callers of the mixed load that build contexts.
const READERS: usize = 2;

/// Our tables that are not empty, each with its bytes without indexes.
const TABLES: &str = "select relname, pg_table_size(oid) from pg_class
    where relkind = 'r' and relname like 'ai\\_%' and pg_relation_size(oid) > 0 order by relname";
/// The indexes of those tables, each with its bytes.
const INDEXES: &str = "select i.relname, pg_table_size(i.oid) from pg_class as t
    join pg_index as x on x.indrelid = t.oid join pg_class as i on i.oid = x.indexrelid
    where t.relkind = 'r' and t.relname like 'ai\\_%' and pg_relation_size(t.oid) > 0 order by t.relname, i.relname";

pub(crate) async fn measure(
    pace: Pace,
    minutes: Option<u64>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let short = if pace.is_quick() {
        Duration::from_secs(3)
    } else {
        SHORT_LOAD
    };
    let load = minutes.map_or(short, Duration::from_mins);
    let stack = BenchStack::start().await?;
    measure_sizes(&stack, pace, figures).await?;
    stack.stop().await?;
    let stack = BenchStack::start().await?;
    measure_after_load(&stack, load, figures).await?;
    stack.stop().await
}

async fn measure_sizes(
    stack: &BenchStack,
    pace: Pace,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let messages = if pace.is_quick() { 20_000 } else { MESSAGES };
    history::create(stack, &stack.channel().await?, Shape { messages, tail: 50 }).await?;
    let database = stack.database()?;
    let mut total_bytes = 0.0;
    for (kind, sql) in [("table", TABLES), ("index", INDEXES)] {
        for (name, bytes) in database.named_numbers(sql).await? {
            total_bytes += bytes;
            figures.add(
                "footprint",
                format!("{kind} {name}"),
                "bytes/message",
                [bytes / messages as f64],
            );
        }
    }
    let bytes = total_bytes / messages as f64;
    let figure = Figure::new(
        "footprint",
        "everything of one message",
        "bytes/message",
        &[bytes],
    );
    figures.put(figure.with_target(Target::AtMost(780.0)));
    Ok(())
}

async fn measure_after_load(
    stack: &BenchStack,
    load: Duration,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let database = stack.database()?;
    let channel = stack.channel().await?;
    let mut conversations = Vec::with_capacity(CONVERSATIONS);
    for _ in 0..CONVERSATIONS {
        conversations.push(stack.create_conversation(&channel, None).await?);
    }
    let wal_start = database.run("select pg_current_wal_lsn()").await?;
    let appended = run_mixed_load(stack, &conversations, Instant::now() + load).await?;
    stack.wait_until_idle(&channel).await?;
    let wal = database
        .number(&format!(
            "select pg_wal_lsn_diff(pg_current_wal_lsn(), '{wal_start}')"
        ))
        .await?;
    figures.add(
        "footprint",
        "appended under the mixed load",
        "messages",
        [appended as f64],
    );
    figures.add(
        "footprint",
        "WAL under the mixed load, with page images",
        "bytes/message",
        [wal / appended as f64],
    );
    wait_for_statistics(&database, appended).await?;
    let dead = "select relname, n_dead_tup from pg_stat_user_tables
        where relname like 'ai\\_%' and n_tup_upd + n_tup_del > 0 order by relname";
    for (table, rows) in database.named_numbers(dead).await? {
        figures.add("footprint", format!("dead rows of {table}"), "rows", [rows]);
    }
    let hot = "select relname, 100.0 * n_tup_hot_upd / n_tup_upd from pg_stat_user_tables
        where relname like 'ai\\_%' and n_tup_upd > 0 order by relname";
    for (table, share) in database.named_numbers(hot).await? {
        figures.add(
            "footprint",
            format!("updates within the page, {table}"),
            "%",
            [share],
        );
    }
    measure_bloat(&database, figures).await
}

/// Sizes of the tables and indexes after the load, compared with their sizes after they are
/// rewritten.
async fn measure_bloat(database: &Database, figures: &mut Figures) -> anyhow::Result<()> {
    let mut sizes_after_load = database.named_numbers(TABLES).await?;
    sizes_after_load.extend(database.named_numbers(INDEXES).await?);
    // Rewrites all tables and their indexes.
    database.run("vacuum full").await?;
    for (name, bytes) in sizes_after_load {
        let rewritten = database
            .number(&format!("select pg_table_size('{name}')"))
            .await?;
        let (kib, rewritten_kib) = (bytes / 1_024.0, rewritten / 1_024.0);
        let figure = Figure::new("footprint", format!("{name} after the load"), "KiB", &[kib]);
        figures.put(figure.with_baseline("written anew", &[kib], &[rewritten_kib]));
    }
    Ok(())
}

/// Appends and contexts, with the counting and summarizing that they cause. Returns how many
/// messages were appended.
async fn run_mixed_load(
    stack: &BenchStack,
    conversations: &[String],
    until: Instant,
) -> anyhow::Result<usize> {
    let mut callers: JoinSet<anyhow::Result<usize>> = JoinSet::new();
    for (caller, share) in conversations.chunks(CONVERSATIONS / APPENDERS).enumerate() {
        let (channel, share) = (stack.channel().await?, share.to_vec());
        callers.spawn(async move { append(&channel, &share, until).await });
        // Beside each of the first appenders, one reader.
        if caller < READERS {
            let (channel, all) = (stack.channel().await?, conversations.to_vec());
            callers.spawn(async move { read(&channel, &all, until).await.map(|()| 0) });
        }
    }
    let mut appended = 0;
    while let Some(done) = callers.join_next().await {
        appended += done??;
    }
    Ok(appended)
}

/// Appends to one of these conversations after the other, alternating messages of users and
/// assistants.
async fn append(
    channel: &Channel,
    conversations: &[String],
    until: Instant,
) -> anyhow::Result<usize> {
    let mut appended = 0;
    while Instant::now() < until {
        let role = if (appended / conversations.len()).is_multiple_of(2) {
            pb::Role::User
        } else {
            pb::Role::Assistant
        };
        let message = text_message(role, conversations::text());
        conversations::append(
            channel,
            &conversations[appended % conversations.len()],
            vec![message],
        )
        .await?;
        appended += 1;
    }
    Ok(appended)
}

async fn read(channel: &Channel, conversations: &[String], until: Instant) -> anyhow::Result<()> {
    let mut client = BenchStack::context_client(channel);
    for conversation_id in conversations.iter().cycle() {
        if Instant::now() >= until {
            break;
        }
        let ask = pb::BuildContextRequest {
            conversation_id: conversation_id.clone(),
            ..Default::default()
        };
        client.build_context(ask).await?;
    }
    Ok(())
}

/// Waits until PostgreSQL's connections have reported their statistics. They do so when idle, after
/// ten seconds at the latest.
async fn wait_for_statistics(database: &Database, appended: usize) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_mins(1);
    let sql = "select n_tup_ins from pg_stat_user_tables where relname = 'ai_message'";
    while (database.number(sql).await? as usize) < appended {
        anyhow::ensure!(
            Instant::now() < deadline,
            "PostgreSQL did not report its statistics within a minute"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}
