//! Appends while a dead model piles up jobs: 100,000 conversations are due for a checkpoint that no model writes.

use std::net::TcpListener;

use anneal_proto::v1 as pb;
use tonic::transport::Channel;

use crate::{
    database::Database,
    figures::{Figure, Figures, Target},
    house::{House, user},
    load::Load,
    pace::{Pace, in_turns},
    scenarios::append::{CALLERS, CONNECTIONS, fastest},
    talks::{self, Talks},
};

const ROUNDS: usize = 5;
const SECONDS: f64 = 3.0;
const PILE: u64 = 100_000;
/// Messages of a conversation that is due.
const MESSAGES: usize = 5;
const COPIES: &str = include_str!("../../sql/pile_jobs.sql");

pub(super) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let house = House::start_with(&settings()?).await?;
    let channel = house.channel().await?;
    let pile = Pile::prepare(&house, &channel, pace.number(PILE)).await?;
    let talks = Talks::start(&house, CALLERS, CONNECTIONS).await?;
    fastest(pace, 1.0, CALLERS, &talks).await?;
    let (mut calm, mut piled) = (Vec::new(), Vec::new());
    for round in 0..pace.rounds(ROUNDS) {
        for jobs in in_turns(round, [Jobs::None, Jobs::Waiting]) {
            pile.make(jobs).await?;
            house.counted(&channel).await?;
            let load = fastest(pace, SECONDS, CALLERS, &talks).await?;
            match jobs {
                Jobs::None => calm.push(load),
                Jobs::Waiting => {
                    let (copies, waiting) =
                        (pile.copies, house.queued(&channel, pb::JobKind::Checkpoint).await? as u64);
                    anyhow::ensure!(waiting * 10 >= copies * 9, "of {copies} jobs only {waiting} wait for the model");
                    piled.push(load);
                }
            }
        }
    }
    let of = |loads: &[Load]| loads.iter().map(Load::rate).collect::<Vec<f64>>();
    let name = format!("{CALLERS} callers and a worker while {} jobs wait for a dead model", pile.copies);
    let figure = Figure::new("append", name, "messages/s", &of(&piled));
    let figure = figure.beside("while none wait", &of(&piled), &of(&calm));
    figures.put(figure.target(Target::RatioAtLeast(0.9)));
    house.stop().await
}

/// A worker whose model refuses connections, and that waits for it.
fn settings() -> anyhow::Result<String> {
    // Taken and given back: nobody listens there.
    let nobody = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
    Ok(format!(
        "[providers.dead]\napi = \"openai\"\nurl = \"http://{nobody}/v1\"\n\
         [models.dead]\nprovider = \"dead\"\nwindow_tokens = 32768\n\
         [summarizer]\nmodel = \"dead\"\nfallback = \"none\"\n"
    ))
}

/// What waits for the dead model in a round.
#[derive(Debug, Clone, Copy)]
enum Jobs {
    None,
    /// One of each conversation of the pile, all due when the round begins.
    Waiting,
}

/// Conversations that are due for a checkpoint, all alike.
struct Pile {
    database: Database,
    copies: u64,
}

impl Pile {
    /// Makes one through the front door, and copies it once it is counted.
    async fn prepare(house: &House, channel: &Channel, copies: u64) -> anyhow::Result<Self> {
        let policy = pb::Policy {
            max_message_count: Some(MESSAGES as u32 - 1),
            keep_recent_turns: Some(1),
            ..Default::default()
        };
        let conversation_id = house.conversation(channel, Some(policy)).await?;
        let messages =
            (0..MESSAGES).map(|number| user(format!("Question {number}: {}", "what about it? ".repeat(20)))).collect();
        talks::append(channel, &conversation_id, messages).await?;
        house.counted(channel).await?;
        anyhow::ensure!(house.queued(channel, pb::JobKind::Checkpoint).await? == 1, "no checkpoint was due");
        let database = house.database()?;
        database.run_with(COPIES, &[("template", &conversation_id), ("copies", &copies.to_string())]).await?;
        Ok(Self { database, copies })
    }

    /// These jobs, and no trace of those that were.
    async fn make(&self, jobs: Jobs) -> anyhow::Result<()> {
        self.database.run("delete from ai_job where kind = 2; delete from ai_job_dead; vacuum ai_job;").await?;
        match jobs {
            Jobs::None => Ok(()),
            Jobs::Waiting => self.up().await,
        }
    }

    /// A due job for each of them.
    async fn up(&self) -> anyhow::Result<()> {
        let jobs = "insert into ai_job (tenant_id, kind, conversation_id)
            select tenant_id, 2, conversation_id from ai_conversation where conversation_id::text like '00000000-0000-7000-9000-%'
            on conflict (kind, conversation_id) do nothing";
        self.database.run(jobs).await.map(drop)
    }
}
