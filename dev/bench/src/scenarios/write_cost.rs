//! Write volume of an append: bytes of PostgreSQL's log (WAL) per 400-byte message, compared with
//! the bytes of the message's row. Measured with and without counting, and in conversations of 10,
//! 1,000 and 100,000 messages. Page images are reported separately: PostgreSQL writes one when it
//! changes a page for the first time after one of its own checkpoints, so they are rare in a steady
//! state.

use crate::{
    conversations::{Conversations, append_one_by_one},
    database::Database,
    figures::{Figure, Figures, Target},
    history::{self, Shape},
    pace::Pace,
    stack::BenchStack,
};

const RUNS: usize = 5;
const CALLERS: [usize; 2] = [16, 256];
/// Fewer than the 128 streams that a connection supports.
const CALLERS_PER_CONNECTION: usize = 64;
/// Messages of a run, of all its callers together.
const MESSAGES: usize = 8_192;
/// Messages that the conversations have before they are appended to.
const LENGTHS: [usize; 3] = [10, 1_000, 100_000];
/// Messages appended to a conversation of each length in a round.
const MESSAGES_AT_LENGTH: usize = 200;
const ROUNDS: usize = 7;

/// Bytes of the log per appended message.
#[derive(Debug, Clone, Copy)]
struct WalBytes {
    with_page_images: f64,
    without_page_images: f64,
}

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let stack = BenchStack::start().await?;
    measure_by_callers(&stack, Work::AppendAndCount, pace, figures).await?;
    stack.stop().await?;
    let mut stack = BenchStack::start().await?;
    stack.stop_worker().await?;
    measure_by_callers(&stack, Work::Append, pace, figures).await?;
    measure_by_length(&stack, pace, figures).await?;
    stack.stop().await
}

/// The work that is done while the log is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Work {
    Append,
    /// Appends, and waits until everything is counted.
    AppendAndCount,
}

async fn measure_by_callers(
    stack: &BenchStack,
    work: Work,
    pace: Pace,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let (runs, messages) = if pace.is_quick() {
        (1, 1_024)
    } else {
        (RUNS, MESSAGES)
    };
    let database = stack.database()?;
    database
        .run("create extension if not exists pg_walinspect; checkpoint")
        .await?;
    for callers in CALLERS {
        let connections = callers.div_ceil(CALLERS_PER_CONNECTION);
        let conversations = Conversations::create(stack, callers as u64, connections).await?;
        // Warm-up: writes the page images of the pages that all appends share, and creates the jobs
        // that count each conversation.
        append(stack, &conversations, messages / callers, work).await?;
        let (mut with_images, mut without_images) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            let from = wal_position(&database).await?;
            append(stack, &conversations, messages / callers, work).await?;
            let wal = wal_since(&database, &from, messages).await?;
            with_images.push(wal.with_page_images);
            without_images.push(wal.without_page_images);
        }
        let row = vec![row_bytes(&database).await?; runs];
        let name = if work == Work::Append {
            "append"
        } else {
            "append and count"
        };
        let name = format!("WAL of {name}, {callers} callers");
        let figure = Figure::new(
            "write_cost",
            format!("{name}, without page images"),
            "bytes/message",
            &without_images,
        );
        let figure = figure.with_baseline("bytes of the row", &without_images, &row);
        figures.put(if work == Work::Append {
            figure.with_target(Target::RatioAtMost(3.0))
        } else {
            figure
        });
        figures.add(
            "write_cost",
            format!("{name}, with page images"),
            "bytes/message",
            with_images,
        );
    }
    Ok(())
}

/// Appends this many messages to each conversation one by one, with one caller per conversation.
/// With [`Work::AppendAndCount`], also waits until they are counted.
async fn append(
    stack: &BenchStack,
    conversations: &Conversations,
    messages: usize,
    work: Work,
) -> anyhow::Result<()> {
    conversations.append_to_each(messages).await?;
    if work == Work::AppendAndCount {
        stack.wait_until_idle(conversations.channel(0)).await?;
    }
    Ok(())
}

/// The current end of the log.
async fn wal_position(database: &Database) -> anyhow::Result<String> {
    database.run("select pg_current_wal_lsn()").await
}

/// Bytes of the log since `from`, per message. pg_walinspect knows the bytes of the page images.
async fn wal_since(database: &Database, from: &str, messages: usize) -> anyhow::Result<WalBytes> {
    let to = wal_position(database).await?;
    let all = database
        .number(&format!("select pg_wal_lsn_diff('{to}', '{from}')"))
        .await?;
    let images =
        format!("select coalesce(sum(fpi_size), 0) from pg_get_wal_stats('{from}', '{to}')");
    let images = database.number(&images).await?;
    Ok(WalBytes {
        with_page_images: all / messages as f64,
        without_page_images: (all - images) / messages as f64,
    })
}

/// Mean bytes of a message's row as it is stored, including its header and the 4 bytes of its line
/// pointer.
async fn row_bytes(database: &Database) -> anyhow::Result<f64> {
    database
        .number("select avg(pg_column_size(m.*)) + 4 from ai_message as m")
        .await
}

/// Appends to conversations of several lengths in turn, with one caller: the cost of a message must
/// not depend on the length.
async fn measure_by_length(
    stack: &BenchStack,
    pace: Pace,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let lengths = if pace.is_quick() {
        &LENGTHS[..2]
    } else {
        &LENGTHS[..]
    };
    let database = stack.database()?;
    let channel = stack.channel().await?;
    let mut bytes_by_length = vec![Vec::new(); lengths.len()];
    for _ in 0..pace.rounds(ROUNDS) {
        for (length, bytes) in lengths.iter().zip(&mut bytes_by_length) {
            let shape = Shape {
                messages: *length,
                tail: *length,
            };
            let conversation = history::create(stack, &channel, shape).await?;
            // The first append creates the job that counts; later appends find it.
            append_one_by_one(&channel, &conversation, 1).await?;
            let from = wal_position(&database).await?;
            append_one_by_one(&channel, &conversation, MESSAGES_AT_LENGTH).await?;
            let wal = wal_since(&database, &from, MESSAGES_AT_LENGTH).await?;
            bytes.push(wal.without_page_images);
        }
    }
    for (index, (length, bytes)) in lengths.iter().zip(&bytes_by_length).enumerate() {
        let name = format!("WAL of an append after {length} messages, without page images");
        let figure = Figure::new("write_cost", name, "bytes/message", bytes);
        // The longer conversations are compared with the shortest one.
        figures.put(if index == 0 {
            figure
        } else {
            let baseline = format!("after {} messages", lengths[0]);
            figure
                .with_baseline(baseline, bytes, &bytes_by_length[0])
                .with_target(Target::RatioAtMost(1.1))
        });
    }
    Ok(())
}
