//! Appends while jobs for an unreachable model accumulate: 100,000 conversations are due for a
//! checkpoint that no model writes.

use std::net::TcpListener;

use anneal_proto::v1 as pb;

use crate::{
    connection::Channel,
    conversations::{self, Conversations},
    database::Database,
    figures::{Figure, Figures, Target},
    load::Load,
    pace::{Pace, alternate},
    scenarios::append::{CALLERS, CONNECTIONS, run_closed_loop},
    stack::{BenchStack, user},
};

const ROUNDS: usize = 5;
const SECONDS: f64 = 3.0;
/// Conversations that are due for a checkpoint.
const DUE_CONVERSATIONS: u64 = 100_000;
/// Messages of a conversation that is due.
const MESSAGES: usize = 5;
/// SQL that copies a conversation with its messages.
pub(super) const COPY_CONVERSATION: &str = include_str!("../../sql/copy_conversation.sql");

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let stack = BenchStack::start_with(&settings()?).await?;
    let channel = stack.channel().await?;
    let due_conversations =
        DueConversations::prepare(&stack, &channel, pace.number(DUE_CONVERSATIONS)).await?;
    let conversations = Conversations::create(&stack, CALLERS, CONNECTIONS).await?;
    // A warm-up, whose result is not used.
    run_closed_loop(pace, 1.0, CALLERS, &conversations).await?;
    let (mut without_jobs, mut with_jobs) = (Vec::new(), Vec::new());
    for round in 0..pace.rounds(ROUNDS) {
        for jobs in alternate(round, [Jobs::None, Jobs::Waiting]) {
            due_conversations.reset(jobs).await?;
            stack.wait_for_counts(&channel).await?;
            let load = run_closed_loop(pace, SECONDS, CALLERS, &conversations).await?;
            match jobs {
                Jobs::None => without_jobs.push(load),
                Jobs::Waiting => {
                    let (copies, waiting) = (
                        due_conversations.copies,
                        stack
                            .queue_length(&channel, pb::JobKind::Checkpoint)
                            .await? as u64,
                    );
                    anyhow::ensure!(
                        waiting * 10 >= copies * 9,
                        "of {copies} jobs only {waiting} wait for the model"
                    );
                    with_jobs.push(load);
                }
            }
        }
    }
    let rates = |loads: &[Load]| loads.iter().map(Load::rate).collect::<Vec<f64>>();
    let name = format!(
        "{CALLERS} callers and a worker while {} jobs wait for a dead model",
        due_conversations.copies
    );
    let figure = Figure::new("dead_model", name, "messages/s", &rates(&with_jobs));
    let figure = figure.with_baseline("while none wait", &rates(&with_jobs), &rates(&without_jobs));
    figures.put(figure.with_target(Target::RatioAtLeast(0.9)));
    stack.stop().await
}

/// Settings of a worker whose model refuses connections, so that its jobs wait.
fn settings() -> anyhow::Result<String> {
    // The port is bound and released again, so nothing listens on it.
    let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
    Ok(format!(
        "[providers.dead]\napi = \"openai\"\nurl = \"http://{address}/v1\"\n\
         [models.dead]\nprovider = \"dead\"\nwindow_tokens = 32768\n\
         [summarizer]\nmodel = \"dead\"\nfallback = \"none\"\n"
    ))
}

/// Which jobs are waiting for the unreachable model in a round.
#[derive(Debug, Clone, Copy)]
enum Jobs {
    None,
    /// One for each of the due conversations, all due when the round begins.
    Waiting,
}

/// Identical conversations that are due for a checkpoint.
struct DueConversations {
    database: Database,
    copies: u64,
}

impl DueConversations {
    /// Creates one conversation through gRPC and copies it once it is counted.
    async fn prepare(stack: &BenchStack, channel: &Channel, copies: u64) -> anyhow::Result<Self> {
        let policy = pb::Policy {
            max_message_count: Some(MESSAGES as u32 - 1),
            keep_recent_turns: Some(1),
            ..Default::default()
        };
        let conversation_id = stack.create_conversation(channel, Some(policy)).await?;
        let messages = (0..MESSAGES)
            .map(|number| {
                user(format!(
                    "Question {number}: {}",
                    "what about it? ".repeat(20)
                ))
            })
            .collect();
        conversations::append(channel, &conversation_id, messages).await?;
        stack.wait_for_counts(channel).await?;
        anyhow::ensure!(
            stack.queue_length(channel, pb::JobKind::Checkpoint).await? == 1,
            "no checkpoint was due"
        );
        let database = stack.database()?;
        database
            .run_with(
                COPY_CONVERSATION,
                &[
                    ("template", &conversation_id),
                    ("copies", &copies.to_string()),
                ],
            )
            .await?;
        Ok(Self { database, copies })
    }

    /// Deletes the checkpoint jobs (kind 2) and the dead jobs that earlier rounds have left. Then
    /// adds the requested jobs.
    async fn reset(&self, jobs: Jobs) -> anyhow::Result<()> {
        self.database
            .run("delete from ai_job where kind = 2; delete from ai_job_dead; vacuum ai_job;")
            .await?;
        match jobs {
            Jobs::None => Ok(()),
            Jobs::Waiting => self.enqueue().await,
        }
    }

    /// Adds a due job for each of the due conversations. Their ids begin as in
    /// `sql/copy_conversation.sql`.
    async fn enqueue(&self) -> anyhow::Result<()> {
        let jobs = "insert into ai_job (tenant_id, kind, conversation_id)
            select tenant_id, 2, conversation_id from ai_conversation where conversation_id::text like '00000000-0000-7000-9000-%'
            on conflict (kind, conversation_id) do nothing";
        self.database.run(jobs).await.map(drop)
    }
}
