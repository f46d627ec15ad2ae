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
    wal,
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
    wal::prepare(&database).await?;
    for callers in CALLERS {
        let connections = callers.div_ceil(CALLERS_PER_CONNECTION);
        let conversations = Conversations::create(stack, callers as u64, connections).await?;
        // Warm-up: writes the page images of the pages that all appends share, and creates the jobs
        // that count each conversation.
        append(stack, &conversations, messages / callers, work).await?;
        let (mut with_images, mut without_images) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            let from = wal::position(&database).await?;
            append(stack, &conversations, messages / callers, work).await?;
            let wal = wal::bytes_since(&database, &from, messages).await?;
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
        figures.put(figure.with_target(if work == Work::Append {
            Target::RatioAtMost(3.0)
        } else {
            Target::AtMost(1_250.0)
        }));
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
            let from = wal::position(&database).await?;
            append_one_by_one(&channel, &conversation, MESSAGES_AT_LENGTH).await?;
            let wal = wal::bytes_since(&database, &from, MESSAGES_AT_LENGTH).await?;
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
