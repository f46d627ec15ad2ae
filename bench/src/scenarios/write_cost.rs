//! What an append writes: bytes of PostgreSQL's log (WAL) for each 400-byte message, beside the bytes of its row; alone and
//! with counting; and in conversations of 10, 1,000 and 100,000 messages. Page images, which PostgreSQL writes once for each
//! page after a checkpoint of its own, are measured and said apart: in a steady state they are rare.

use crate::{
    database::Database,
    figures::{Figure, Figures, Target},
    history::{self, Shape},
    house::House,
    pace::Pace,
    talks::{Talks, append_in_turn},
};

const RUNS: usize = 5;
const CALLERS: [usize; 2] = [16, 256];
/// A connection takes 128 streams.
const CALLERS_PER_CONNECTION: usize = 64;
/// Messages of a run, by all its callers together.
const MESSAGES: usize = 8_192;
const LENGTHS: [usize; 3] = [10, 1_000, 100_000];
/// Messages appended to a conversation of each length in a round.
const AT_LENGTH: usize = 200;
const ROUNDS: usize = 7;

/// Bytes of the log for each message of a run.
#[derive(Debug, Clone, Copy)]
struct Written {
    /// All of it.
    all: f64,
    /// Without images of pages.
    records: f64,
}

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let house = House::start().await?;
    by_callers(&house, Work::AppendAndCount, pace, figures).await?;
    house.stop().await?;
    let mut house = House::start().await?;
    house.stop_worker().await?;
    by_callers(&house, Work::Append, pace, figures).await?;
    by_length(&house, pace, figures).await?;
    house.stop().await
}

/// What goes on while the log is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Work {
    Append,
    /// Until everything is counted.
    AppendAndCount,
}

async fn by_callers(house: &House, work: Work, pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let (runs, messages) = if pace.is_quick() { (1, 1_024) } else { (RUNS, MESSAGES) };
    let database = house.database()?;
    database.run("create extension if not exists pg_walinspect; checkpoint").await?;
    for callers in CALLERS {
        let connections = callers.div_ceil(CALLERS_PER_CONNECTION);
        let talks = Talks::start(house, callers as u64, connections).await?;
        // The pages that everybody writes to get their images here, and conversations the jobs that count them.
        append(house, &talks, messages / callers, work).await?;
        let mut written = Vec::with_capacity(runs);
        for _ in 0..runs {
            let from = position(&database).await?;
            append(house, &talks, messages / callers, work).await?;
            written.push(since(&database, &from, messages).await?);
        }
        let all: Vec<f64> = written.iter().map(|written| written.all).collect();
        let records: Vec<f64> = written.iter().map(|written| written.records).collect();
        let row = vec![row_bytes(&database).await?; runs];
        let name = if work == Work::Append { "append" } else { "append and count" };
        let name = format!("WAL of {name}, {callers} callers");
        let figure = Figure::new("write_cost", format!("{name}, without page images"), "bytes/message", &records);
        let figure = figure.beside("bytes of the row", &records, &row);
        figures.put(if work == Work::Append { figure.target(Target::RatioAtMost(3.0)) } else { figure });
        figures.add("write_cost", format!("{name}, with page images"), "bytes/message", all);
    }
    Ok(())
}

/// Appends messages one by one, a caller for each conversation.
async fn append(house: &House, talks: &Talks, messages: usize, work: Work) -> anyhow::Result<()> {
    talks.append_to_each(messages).await?;
    if work == Work::AppendAndCount {
        house.settle(talks.channel(0)).await?;
    }
    Ok(())
}

/// Where the log ends.
async fn position(database: &Database) -> anyhow::Result<String> {
    database.run("select pg_current_wal_lsn()").await
}

/// What was written since `from`, for each message; pg_walinspect tells page images from records.
async fn since(database: &Database, from: &str, messages: usize) -> anyhow::Result<Written> {
    let to = position(database).await?;
    let all = database.number(&format!("select pg_wal_lsn_diff('{to}', '{from}')")).await?;
    let images = format!("select coalesce(sum(fpi_size), 0) from pg_get_wal_stats('{from}', '{to}')");
    let images = database.number(&images).await?;
    Ok(Written { all: all / messages as f64, records: (all - images) / messages as f64 })
}

/// Mean bytes of a message's row as it is stored, its header and the 4 bytes of its line pointer included.
async fn row_bytes(database: &Database) -> anyhow::Result<f64> {
    database.number("select avg(pg_column_size(m.*)) + 4 from ai_message as m").await
}

/// The same for conversations of some lengths, one caller, in turns: a message is to cost the same in each.
async fn by_length(house: &House, pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let lengths = if pace.is_quick() { &LENGTHS[..2] } else { &LENGTHS[..] };
    let database = house.database()?;
    let channel = house.channel().await?;
    let mut written = vec![Vec::new(); lengths.len()];
    for _ in 0..pace.rounds(ROUNDS) {
        for (length, written) in lengths.iter().zip(&mut written) {
            let shape = Shape { messages: *length, tail: *length };
            let conversation = history::fill(house, &channel, shape).await?;
            // The first one makes the job that counts; those after it find it.
            append_in_turn(&channel, &conversation, 1).await?;
            let from = position(&database).await?;
            append_in_turn(&channel, &conversation, AT_LENGTH).await?;
            written.push(since(&database, &from, AT_LENGTH).await?.records);
        }
    }
    for (place, (length, records)) in lengths.iter().zip(&written).enumerate() {
        let name = format!("WAL of an append after {length} messages, without page images");
        let figure = Figure::new("write_cost", name, "bytes/message", records);
        // The first is what the others are held against.
        figures.put(if place == 0 {
            figure
        } else {
            let beside = format!("after {} messages", lengths[0]);
            figure.beside(beside, records, &written[0]).target(Target::RatioAtMost(1.1))
        });
    }
    Ok(())
}
