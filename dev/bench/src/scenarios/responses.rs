//! Turns of POST /v1/responses, with a worker: what a long chain costs, and the server's own time
//! to the first delta of turns side by side, while checkpoints are made for their conversations and
//! while none are. Turns of Chat run in the same rounds.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::task::JoinSet;

use super::chat;
use crate::{
    conversations::text,
    doors::{Chain, Door, TurnTimes},
    figures::{Figure, Figures, Target, median},
    latencies::Latencies,
    pace::{Pace, alternate},
    processes::{cpu_seconds, family_cpu_seconds},
    silent_model::SilentModel,
    stack::BenchStack,
    statement_log::StatementTimes,
};

/// Responses of a long chain.
const CHAIN: u64 = 1_000;
/// Responses at the end of a long chain, and at the beginning of a short one, that are compared.
const COMPARED: u64 = 50;
/// Rounds of this comparison: the two chains alternate.
const COMPARED_ROUNDS: u64 = 5;
/// The text of each input of a long chain, beside its number.
const SHORT_INPUT: &str = "What was asked before?";
/// Turns side by side.
const CALLERS: u64 = 64;
const ROUNDS: usize = 3;
/// Seconds of a round.
const SECONDS: f64 = 20.0;
/// Seconds of turns before, in which the conversations begin.
const WARM_UP: f64 = 3.0;
/// Mean time that the model takes to answer.
const MODEL_DELAY: Duration = Duration::from_secs(1);
/// Seconds of a round with a model that answers at once.
const FULL_LOAD_SECONDS: f64 = 5.0;
/// Commits whose time is measured, one after the other.
const COMMITS: u64 = 1_000;
/// Turns whose statements are counted.
const COUNTED_TURNS: u64 = 100;
/// A checkpoint is due after a few turns.
const COMPACT_THRESHOLD: u32 = 300;
/// The most milliseconds of the server's own time to the first delta.
const MOST_P50_MS: f64 = 5.0;
const MOST_P99_MS: f64 = 25.0;

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let model = Arc::new(SilentModel::start().await?);
    let settings = chat::settings(&model);
    let stack = BenchStack::start_with(&settings).await?;
    let bench = Bench { pace, stack, model };
    for (name, most_ratio, fields) in [
        ("truncation auto", Some(1.25), json!({"truncation": "auto"})),
        ("nothing left out", None, json!({})),
    ] {
        let rounds = bench.compare_chains(&Door::Responses(fields)).await?;
        report_chains(name, most_ratio, &rounds, figures);
    }
    bench.measure_commits(figures).await?;
    bench.measure_turns(figures).await?;
    bench.measure_full_load(figures).await?;
    let Bench { stack, model, .. } = bench;
    stack.stop().await?;
    let stack = BenchStack::start_logging_without_worker_with(&settings).await?;
    let bench = Bench { pace, stack, model };
    bench.measure_statements(figures).await?;
    bench.stack.stop().await
}

struct Bench {
    pace: Pace,
    stack: BenchStack,
    model: Arc<SilentModel>,
}

/// Some responses, one after the other.
struct Block {
    turns: Vec<TurnTimes>,
    server_cpu_ms: f64,
    postgres_cpu_ms: f64,
}

impl Block {
    /// The median of the responses.
    fn median(&self, value: impl Fn(&TurnTimes) -> f64) -> f64 {
        median(&self.turns.iter().map(value).collect::<Vec<_>>())
    }
}

/// The last responses of a long chain beside the first of a short one.
struct ChainRound {
    long: Block,
    short: Block,
}

impl Bench {
    async fn open(&self, door: &Door) -> anyhow::Result<Chain> {
        Chain::open(&self.stack, door, &self.model, chat::MODEL).await
    }

    /// Compares the last responses of a long chain with those after the first of a short one.
    async fn compare_chains(&self, door: &Door) -> anyhow::Result<Vec<ChainRound>> {
        let mut long = self.open(door).await?;
        for _ in 0..self.pace.number(CHAIN).saturating_sub(COMPARED) {
            long.run_turn(SHORT_INPUT).await?;
        }
        let mut short = self.open(door).await?;
        short.run_turn(SHORT_INPUT).await?;
        let mut rounds = Vec::new();
        for round in 0..COMPARED_ROUNDS {
            let (mut of_long, mut of_short) = (None, None);
            let sides = [(&mut long, &mut of_long), (&mut short, &mut of_short)];
            for (chain, block) in alternate(round as usize, sides) {
                *block = Some(self.run_block(chain).await?);
            }
            rounds.extend(
                of_long
                    .zip(of_short)
                    .map(|(long, short)| ChainRound { long, short }),
            );
        }
        Ok(rounds)
    }

    async fn run_block(&self, chain: &mut Chain) -> anyhow::Result<Block> {
        let (server, postgres) = (self.stack.server_id()?, self.stack.postgres_id()?);
        let before = (cpu_seconds(server)?, family_cpu_seconds(postgres)?);
        let mut turns = Vec::new();
        for _ in 0..COMPARED / COMPARED_ROUNDS {
            turns.push(chain.run_turn(SHORT_INPUT).await?);
        }
        let per_turn = 1_000.0 / turns.len() as f64;
        Ok(Block {
            turns,
            server_cpu_ms: (cpu_seconds(server)? - before.0) * per_turn,
            postgres_cpu_ms: (family_cpu_seconds(postgres)? - before.1) * per_turn,
        })
    }

    /// Runs turns side by side for a while, each caller in a new chain.
    async fn run_side_by_side(&self, door: &Door, seconds: f64) -> anyhow::Result<Turns> {
        let mut chains = Vec::new();
        for _ in 0..CALLERS {
            chains.push(self.open(door).await?);
        }
        let before = self.count_checkpoints().await?;
        let from = Instant::now() + self.pace.seconds(WARM_UP);
        let time = self.pace.seconds(seconds);
        let mut callers = JoinSet::new();
        for mut chain in chains {
            callers.spawn(async move {
                let mut turns = Vec::new();
                while from.elapsed() < time {
                    let begun = Instant::now();
                    let times = chain.run_turn(&text()).await?;
                    if begun >= from {
                        turns.push(times);
                    }
                }
                anyhow::Ok(turns)
            });
        }
        let mut all = Turns::default();
        while let Some(turns) = callers.join_next().await {
            for turn in turns?? {
                all.own.record(turn.own());
                all.before.record(turn.before);
                all.after.record(turn.after);
            }
        }
        all.rate = all.own.count() as f64 / from.elapsed().as_secs_f64();
        all.checkpoints = self.count_checkpoints().await? - before;
        Ok(all)
    }

    async fn count_checkpoints(&self) -> anyhow::Result<f64> {
        let sql = "select count(*) from ai_conversation_checkpoint";
        self.stack.database()?.number(sql).await
    }

    /// Measures a commit of PostgreSQL alone: a turn waits for several.
    async fn measure_commits(&self, figures: &mut Figures) -> anyhow::Result<()> {
        let database = self.stack.database()?;
        database
            .run("create table bare_commit (value integer)")
            .await?;
        let sql = "insert into bare_commit values (1);";
        let commits = self.pace.number(COMMITS) as usize;
        if let Some(times) = database.time_statement(sql, commits).await? {
            let name = "one commit of PostgreSQL alone, p50";
            figures.add("responses", name, "ms", [median(&times)]);
        }
        Ok(())
    }

    /// Measures the server's own time of turns whose model takes a while.
    async fn measure_turns(&self, figures: &mut Figures) -> anyhow::Result<()> {
        self.model.answer_after(MODEL_DELAY);
        let plain_door = Door::Responses(json!({}));
        let compaction = json!({"type": "compaction", "compact_threshold": COMPACT_THRESHOLD});
        let compacted_door = Door::Responses(json!({"context_management": [compaction]}));
        let (mut plain, mut compacted, mut chat) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..self.pace.rounds(ROUNDS) {
            let sides = [
                (&plain_door, &mut plain),
                (&compacted_door, &mut compacted),
                (&Door::Chat, &mut chat),
            ];
            for (door, rounds) in alternate(round, sides) {
                rounds.push(self.run_side_by_side(door, SECONDS).await?);
            }
        }
        self.model.answer_after(Duration::ZERO);
        report_turns(&plain, &compacted, &chat, figures);
        Ok(())
    }

    /// Measures turns per second with a model that answers at once: more than the cores can do.
    async fn measure_full_load(&self, figures: &mut Figures) -> anyhow::Result<()> {
        let responses_door = Door::Responses(json!({}));
        let (mut responses, mut chat) = (Vec::new(), Vec::new());
        for round in 0..self.pace.rounds(ROUNDS) {
            let sides = [(&responses_door, &mut responses), (&Door::Chat, &mut chat)];
            for (door, rates) in alternate(round, sides) {
                rates.push(self.run_side_by_side(door, FULL_LOAD_SECONDS).await?.rate);
            }
        }
        let name = format!("{CALLERS} callers, a model that answers at once");
        let figure = Figure::new("responses", name, "turns/s", &responses);
        figures.put(figure.with_baseline("Chat", &responses, &chat));
        Ok(())
    }

    /// Counts the statements of a response in a chain, and of a turn of Chat.
    async fn measure_statements(&self, figures: &mut Figures) -> anyhow::Result<()> {
        let ours = self.count_statements(&Door::Responses(json!({}))).await?;
        let theirs = self.count_statements(&Door::Chat).await?;
        let name = "statements of a response";
        for (name, unit, value) in [
            (
                name.to_owned(),
                "statements",
                (|statements| statements.executed as f64) as fn(&StatementTimes) -> f64,
            ),
            (format!("{name}, time of all"), "ms", |statements| {
                statements.total_ms
            }),
        ] {
            let per_turn = |statements| value(statements) / self.counted_turns() as f64;
            let (ours, theirs) = (per_turn(&ours), per_turn(&theirs));
            let figure = Figure::new("responses", name, unit, &[ours]);
            figures.put(figure.with_baseline("Chat", &[ours], &[theirs]));
        }
        Ok(())
    }

    fn counted_turns(&self) -> u64 {
        self.pace.number(COUNTED_TURNS)
    }

    /// The statements of turns that follow each other, without those that look for stops.
    async fn count_statements(&self, door: &Door) -> anyhow::Result<StatementTimes> {
        let mut chain = self.open(door).await?;
        chain.run_turn(SHORT_INPUT).await?;
        let before = self.stack.log_end()?;
        for _ in 0..self.counted_turns() {
            chain.run_turn(SHORT_INPUT).await?;
        }
        let of_turns = |statement: &str| !statement.contains(chat::FIND_STOPS);
        self.stack.statements_since(before, of_turns)
    }
}

/// Turns side by side.
#[derive(Default)]
struct Turns {
    own: Latencies,
    before: Latencies,
    after: Latencies,
    /// Turns per second.
    rate: f64,
    /// Checkpoints that were made meanwhile, warm-up included.
    checkpoints: f64,
}

fn report_chains(
    name: &str,
    most_ratio: Option<f64>,
    rounds: &[ChainRound],
    figures: &mut Figures,
) {
    let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
    let figure = |what: &str, unit, value: &dyn Fn(&Block) -> f64| {
        let long: Vec<f64> = rounds.iter().map(|round| value(&round.long)).collect();
        let short: Vec<f64> = rounds.iter().map(|round| value(&round.short)).collect();
        let name = format!(
            "responses {} to {CHAIN} of a chain, {name}, {what}",
            CHAIN - COMPARED + 1
        );
        let baseline = format!("responses 2 to {} of another", COMPARED + 1);
        Figure::new("responses", name, unit, &long).with_baseline(baseline, &long, &short)
    };
    let own = figure("own time to the first delta", "ms", &|block| {
        block.median(|turn| ms(turn.own()))
    });
    figures.put(match most_ratio {
        Some(most) => own.with_target(Target::RatioAtMost(most)),
        None => own,
    });
    figures.put(figure("whole response", "ms", &|block| {
        block.median(|turn| ms(turn.whole))
    }));
    figures.put(figure("sending the context", "ms", &|block| {
        block.median(|turn| ms(turn.sending))
    }));
    figures.put(figure("request to the model", "KiB", &|block| {
        block.median(|turn| turn.bytes as f64 / 1_024.0)
    }));
    figures.put(figure("processor time of the server", "ms", &|block| {
        block.server_cpu_ms
    }));
    figures.put(figure("processor time of PostgreSQL", "ms", &|block| {
        block.postgres_cpu_ms
    }));
}

fn report_turns(plain: &[Turns], compacted: &[Turns], chat: &[Turns], figures: &mut Figures) {
    let values = |rounds: &[Turns], value: fn(&Turns) -> f64| -> Vec<f64> {
        rounds.iter().map(value).collect()
    };
    let name = |what: &str| format!("{CALLERS} turns side by side, {what}");
    for (percentile, most, value) in [
        (
            "p50",
            MOST_P50_MS,
            (|turns| turns.own.p50()) as fn(&Turns) -> f64,
        ),
        ("p99", MOST_P99_MS, |turns| turns.own.p99()),
    ] {
        let [ours, beside, theirs] = [plain, compacted, chat].map(|rounds| values(rounds, value));
        let figure = |what: &str, values: &[f64]| {
            let what = format!("{what} to the first delta, {percentile}");
            Figure::new("responses", name(&what), "ms", values)
        };
        figures.put(
            figure("own time", &ours)
                .with_baseline("Chat", &ours, &theirs)
                .with_target(Target::AtMost(most)),
        );
        figures.put(
            figure("own time beside checkpoints", &beside)
                .with_baseline("without checkpoints", &beside, &ours)
                .with_target(Target::AtMost(most)),
        );
    }
    for (what, value) in [
        (
            "until the model is called, p50",
            (|turns| turns.before.p50()) as fn(&Turns) -> f64,
        ),
        ("until the model is called, p99", |turns| turns.before.p99()),
        ("from the model's delta to the client's, p50", |turns| {
            turns.after.p50()
        }),
        ("from the model's delta to the client's, p99", |turns| {
            turns.after.p99()
        }),
    ] {
        let (ours, theirs) = (values(plain, value), values(chat, value));
        let figure = Figure::new("responses", name(what), "ms", &ours);
        figures.put(figure.with_baseline("Chat", &ours, &theirs));
    }
    let turns = name("turns begun and ended");
    figures.add(
        "responses",
        turns,
        "turns/s",
        values(plain, |turns| turns.rate),
    );
    let made = name("checkpoints made in a round beside checkpoints");
    let made_values = values(compacted, |turns| turns.checkpoints);
    figures.add("responses", made, "checkpoints", made_values);
}
