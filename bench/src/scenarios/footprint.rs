//! What is stored: bytes of each table and index for each message of a long history; and what a mixed load leaves behind (dead
//! rows, bloat, updates outside the page), by default after 10 s, or `anneal-bench footprint --minutes 60`.

use std::time::{Duration, Instant};

use anneal_proto::v1 as pb;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::{
    database::Database,
    figures::{Figure, Figures},
    history::{self, Shape},
    house::{House, user},
    pace::Pace,
    talks,
};

/// So many that every table and index but theirs is as good as empty.
const MESSAGES: usize = 200_000;
const SHORT_LOAD: Duration = Duration::from_secs(10);
const CONVERSATIONS: usize = 64;
const APPENDERS: usize = 8;
const READERS: usize = 2;

/// Our tables that hold anything, each with its bytes without indexes.
const TABLES: &str = "select relname, pg_table_size(oid) from pg_class
    where relkind = 'r' and relname like 'ai\\_%' and pg_relation_size(oid) > 0 order by relname";
/// The indexes of those tables, each with its bytes.
const INDEXES: &str = "select i.relname, pg_table_size(i.oid) from pg_class as t
    join pg_index as x on x.indrelid = t.oid join pg_class as i on i.oid = x.indexrelid
    where t.relkind = 'r' and t.relname like 'ai\\_%' and pg_relation_size(t.oid) > 0 order by t.relname, i.relname";

pub(crate) async fn measure(pace: Pace, minutes: Option<u64>, figures: &mut Figures) -> anyhow::Result<()> {
    let short = if pace.is_quick() { Duration::from_secs(3) } else { SHORT_LOAD };
    let load = minutes.map_or(short, Duration::from_mins);
    let house = House::start().await?;
    sizes(&house, pace, figures).await?;
    house.stop().await?;
    let house = House::start().await?;
    after_load(&house, load, figures).await?;
    house.stop().await
}

async fn sizes(house: &House, pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let messages = if pace.is_quick() { 20_000 } else { MESSAGES };
    history::fill(house, &house.channel().await?, Shape { messages, tail: 50 }).await?;
    let database = house.database()?;
    let mut all = 0.0;
    for (kind, sql) in [("table", TABLES), ("index", INDEXES)] {
        for (name, bytes) in database.named_numbers(sql).await? {
            all += bytes;
            figures.add("footprint", format!("{kind} {name}"), "bytes/message", [bytes / messages as f64]);
        }
    }
    figures.add("footprint", "everything of one message", "bytes/message", [all / messages as f64]);
    Ok(())
}

async fn after_load(house: &House, load: Duration, figures: &mut Figures) -> anyhow::Result<()> {
    let database = house.database()?;
    let channel = house.channel().await?;
    let mut conversations = Vec::with_capacity(CONVERSATIONS);
    for _ in 0..CONVERSATIONS {
        conversations.push(house.conversation(&channel, None).await?);
    }
    let from = database.run("select pg_current_wal_lsn()").await?;
    let appended = mixed_load(house, &conversations, Instant::now() + load).await?;
    house.settle(&channel).await?;
    let wal = database.number(&format!("select pg_wal_lsn_diff(pg_current_wal_lsn(), '{from}')")).await?;
    figures.add("footprint", "appended under the mixed load", "messages", [appended as f64]);
    figures.add("footprint", "WAL under the mixed load, with page images", "bytes/message", [wal / appended as f64]);
    told(&database, appended).await?;
    let dead = "select relname, n_dead_tup from pg_stat_user_tables
        where relname like 'ai\\_%' and n_tup_upd + n_tup_del > 0 order by relname";
    for (table, rows) in database.named_numbers(dead).await? {
        figures.add("footprint", format!("dead rows of {table}"), "rows", [rows]);
    }
    let hot = "select relname, 100.0 * n_tup_hot_upd / n_tup_upd from pg_stat_user_tables
        where relname like 'ai\\_%' and n_tup_upd > 0 order by relname";
    for (table, share) in database.named_numbers(hot).await? {
        figures.add("footprint", format!("updates within the page, {table}"), "%", [share]);
    }
    bloat(&database, figures).await
}

/// Tables and indexes as the load has left them, beside what they are when written anew.
async fn bloat(database: &Database, figures: &mut Figures) -> anyhow::Result<()> {
    let mut left = database.named_numbers(TABLES).await?;
    left.extend(database.named_numbers(INDEXES).await?);
    // Writes tables and their indexes anew.
    database.run("vacuum full").await?;
    for (name, bytes) in left {
        let anew = database.number(&format!("select pg_table_size('{name}')")).await?;
        let (bytes, anew) = (bytes / 1_024.0, anew / 1_024.0);
        let figure = Figure::new("footprint", format!("{name} after the load"), "KiB", &[bytes]);
        figures.put(figure.beside("written anew", &[bytes], &[anew]));
    }
    Ok(())
}

/// Appends, contexts, and all the counting and summarising that comes of them; returns how many messages were appended.
async fn mixed_load(house: &House, conversations: &[String], until: Instant) -> anyhow::Result<usize> {
    let mut callers: JoinSet<anyhow::Result<usize>> = JoinSet::new();
    for (caller, own) in conversations.chunks(CONVERSATIONS / APPENDERS).enumerate() {
        let (channel, own) = (house.channel().await?, own.to_vec());
        callers.spawn(async move { append(&channel, &own, until).await });
        if caller < READERS {
            let (channel, all) = (house.channel().await?, conversations.to_vec());
            callers.spawn(async move { read(&channel, &all, until).await.map(|()| 0) });
        }
    }
    let mut appended = 0;
    while let Some(done) = callers.join_next().await {
        appended += done??;
    }
    Ok(appended)
}

/// Appends to these conversations in turn, users' messages and assistants'.
async fn append(channel: &Channel, conversations: &[String], until: Instant) -> anyhow::Result<usize> {
    let mut appended = 0;
    while Instant::now() < until {
        let role =
            if (appended / conversations.len()).is_multiple_of(2) { pb::Role::User } else { pb::Role::Assistant };
        let message = pb::NewMessage { role: role.into(), ..user(talks::text()) };
        talks::append(channel, &conversations[appended % conversations.len()], vec![message]).await?;
        appended += 1;
    }
    Ok(appended)
}

async fn read(channel: &Channel, conversations: &[String], until: Instant) -> anyhow::Result<()> {
    let mut client = House::contexts(channel);
    for conversation_id in conversations.iter().cycle() {
        if Instant::now() >= until {
            break;
        }
        let ask = pb::BuildContextRequest { conversation_id: conversation_id.clone(), ..Default::default() };
        client.build_context(ask).await?;
    }
    Ok(())
}

/// Waits until PostgreSQL's connections have told what they did; they do so when idle, after ten seconds at the latest.
async fn told(database: &Database, appended: usize) -> anyhow::Result<()> {
    let patience = Instant::now() + Duration::from_mins(1);
    let sql = "select n_tup_ins from pg_stat_user_tables where relname = 'ai_message'";
    while (database.number(sql).await? as usize) < appended {
        anyhow::ensure!(Instant::now() < patience, "PostgreSQL does not tell what it did");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}
