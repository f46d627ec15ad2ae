//! Conversations at providers whose prompt caches behave as they are published to. Every turn
//! expects in the cache what the provider then bills as read, and the bill of a family of
//! conversations is that of the simulator with which the rules of cooling are measured.
//!
//! The last tests show that these checks notice faults. Faults that can only be made in the code,
//! and the test that each breaks:
//!
//! - `core/src/cache/points.rs`, `marks`: without `CachePointKind::Stable`, or with `LastEnd`
//!   always in its place, a swap pays for the whole tail: `anthropic_bills_…`.
//! - The same without `CachePointKind::System`: `a_checkpoint_leaves_…`.
//! - `core/src/context/cache_places.rs`, `plan`: with `unchanged_tokens` in place of what the last
//!   call has marked, short contexts expect an ideal cache: `anthropic_bills_…`, with the real
//!   conversations.
//! - `core/src/cache/mod.rs`, `CacheRetention::ttl`: with five minutes for every place, nothing is
//!   left of what should live longer: `after_a_pause_…`.

use std::{collections::BTreeMap, time::Duration};

use anneal_core::tokens::{Encoding, FRAMING_PER_MESSAGE};
use anneal_llm::provider::PromptCache;
use anneal_testkit::{
    BilledCall, CachingProvider, Chat, MarkFault, Refresh, TestApp, TestConversation, assistant,
    call, gate_or_nightly, pb, prose,
    replay::{
        counted_conversation::{CoolingZone, CountedConversation, sent_summaries},
        meter::{CacheLimits, CacheUsage},
        prices::{PLAIN_PRICE, Prices},
        rules::{Rule, meter_with},
    },
    result, sentence, user,
};
use pb::{BreakReason, CacheRetention, part::Part};

use crate::exchanges::{Extent, Replays, real_families, says};

/// Messages with more tokens are large.
const LARGE_TOKENS: u64 = 1_000;
/// A large message is cool after so many turns.
const HOT_TURNS: u32 = 5;
/// A large message is cool after so many calls, too.
const HOT_CALLS: u32 = 10;
/// Prompts of at most so many bytes are counted before they are sent.
const COUNTED_BYTES: usize = 12_000;

/// Tokens that a model's format adds to the results of tools.
#[derive(Clone, Copy)]
enum ResultTokens {
    None,
    /// The framing of a message to each further result: OpenAI has a message for each.
    Framing,
    /// The tool's name to each result.
    Names,
}

/// A model at a provider with a prompt cache.
#[derive(Clone, Copy)]
struct CachedModel {
    name: &'static str,
    result_tokens: ResultTokens,
    prices: Prices,
    limits: CacheLimits,
}

const CLAUDE: CachedModel = CachedModel {
    name: "claude-sonnet-4-5",
    result_tokens: ResultTokens::None,
    prices: Prices {
        name: "anthropic",
        cached: 10,
        written: 125,
    },
    limits: CacheLimits {
        shortest: 1_024,
        step: 1,
    },
};

const GPT_5_5: CachedModel = CachedModel {
    name: "gpt-5.5",
    result_tokens: ResultTokens::Framing,
    prices: Prices {
        name: "openai",
        cached: 10,
        written: 100,
    },
    limits: CacheLimits {
        shortest: 1_024,
        step: 128,
    },
};

const GPT_5_6: CachedModel = CachedModel {
    name: "gpt-5.6",
    result_tokens: ResultTokens::Framing,
    prices: Prices {
        name: "openai with breakpoints",
        cached: 10,
        written: 125,
    },
    limits: CacheLimits {
        shortest: 1_024,
        step: 1,
    },
};

const GEMINI: CachedModel = CachedModel {
    name: "gemini-2.5-pro",
    result_tokens: ResultTokens::Names,
    prices: Prices {
        name: "gemini",
        cached: 10,
        written: 100,
    },
    limits: CacheLimits {
        shortest: 2_048,
        step: 1,
    },
};

impl CachedModel {
    /// Stepped cooling at the model's prices, without checkpoints.
    fn policy(&self) -> pb::Policy {
        pb::Policy {
            token_threshold: Some(i64::MAX as u64),
            max_message_count: Some(0),
            large_message_threshold: Some(LARGE_TOKENS),
            hot_zone_radius: Some(HOT_TURNS),
            hot_zone_calls: Some(HOT_CALLS),
            large_summaries: pb::LargeSummaries::Eager.into(),
            cooling: pb::Cooling::Stepped.into(),
            // A policy has prices in thousandths, a price list in hundredths.
            cache_read_price: Some(self.prices.cached as u32 * 10),
            cache_write_price: Some(self.prices.written as u32 * 10),
            ..Default::default()
        }
    }

    /// The tokens that the model's format adds to each message.
    fn added_tokens(&self, chat: &Chat) -> Vec<u64> {
        let counter = Encoding::O200kBase.counter();
        let mut name_tokens: BTreeMap<&str, u64> = BTreeMap::new();
        let mut added = Vec::new();
        for message in &chat.messages {
            let (mut results, mut names) = (0_u64, 0_u64);
            for part in message.parts.iter().filter_map(|part| part.part.as_ref()) {
                match part {
                    Part::ToolUse(call) => {
                        name_tokens.insert(&call.id, counter.count(&call.name).get());
                    }
                    Part::ToolResult(result) => {
                        results += 1;
                        names += name_tokens.get(result.tool_use_id.as_str()).unwrap_or(&0);
                    }
                    _ => {}
                }
            }
            added.push(match self.result_tokens {
                ResultTokens::None => 0,
                ResultTokens::Framing => FRAMING_PER_MESSAGE.get() * results.saturating_sub(1),
                ResultTokens::Names => names,
            });
        }
        added
    }

    /// The usage of a played conversation, as the simulator has it. `summaries`: tokens of its
    /// summaries, by message id.
    fn simulate(&self, chat: &Chat, summaries: &BTreeMap<i64, u64>) -> CacheUsage {
        let zone = CoolingZone {
            threshold: LARGE_TOKENS,
            turns: HOT_TURNS as i32,
            calls: u64::from(HOT_CALLS),
        };
        let mut counted = CountedConversation::of(chat, 0);
        for (message, added) in counted.messages.iter_mut().zip(self.added_tokens(chat)) {
            message.added = added;
        }
        let decided_by = counted.clone().with_summaries(summaries).in_zone(zone);
        let sent = sent_summaries(chat, summaries);
        let sent = counted.with_summaries(&sent).in_zone(zone);
        let schedule = Rule::Stepped.schedule(&decided_by, self.prices);
        meter_with(self.limits, &sent, &schedule)
    }
}

/// A call: what the provider has billed, and what the turn has said.
#[derive(Debug)]
struct Call {
    billed: BilledCall,
    expected: u64,
    broken: BreakReason,
}

/// A server with its providers.
struct Stage {
    provider: CachingProvider,
    app: TestApp,
    model: CachedModel,
    policy: pb::Policy,
    /// Time of the provider's clock before each call.
    pause: Duration,
}

impl Stage {
    async fn open(model: CachedModel) -> Self {
        Self::open_with(model, CachingProvider::start().await).await
    }

    async fn open_with(model: CachedModel, provider: CachingProvider) -> Self {
        let app = TestApp::with_models(provider.settings(&[model.name]), model.name).await;
        Self {
            provider,
            app,
            model,
            policy: model.policy(),
            pause: Duration::ZERO,
        }
    }

    async fn conversation(&self, system_prompt: &str) -> TestConversation<'_> {
        let ask = pb::CreateConversationRequest {
            system_prompt: system_prompt.to_owned(),
            policy: Some(self.policy.clone()),
            ..Default::default()
        };
        self.app.conversation_with(ask).await
    }

    /// Plays these messages through turns of the conversation.
    async fn play(
        &self,
        conversation: &TestConversation<'_>,
        messages: &[pb::NewMessage],
    ) -> Vec<Call> {
        let mut calls = Vec::new();
        let mut prompt = Vec::new();
        for message in messages {
            if message.role() == pb::Role::Assistant {
                self.provider.answer_next(says(message));
                self.provider.clock().advance(self.pause);
                let turn = conversation.chat_all(std::mem::take(&mut prompt));
                let outcome = turn.with_model(self.model.name).await;
                let done = outcome.done();
                let (usage, cache) = (done.usage.as_ref(), done.cache.as_ref());
                let (usage, cache) = usage.zip(cache).expect("the provider reports its usage");
                let bills = self.provider.bills();
                let billed = *bills.last().expect("the turn has called the provider");
                assert_eq!(usage.cached_tokens, billed.cached);
                assert_eq!(cache.long_written_tokens, billed.long_written);
                assert!(billed.marks <= 4, "{billed:?}");
                calls.push(Call {
                    billed,
                    expected: cache.expected_tokens,
                    broken: cache.break_reason(),
                });
                self.app.run_jobs_until_idle().await;
            } else {
                prompt.push(message.clone());
            }
        }
        calls
    }

    /// Plays a whole conversation, and adds it to a bill.
    async fn play_and_bill(&self, chat: &Chat, bill: &mut Bill) {
        // Conversations that begin alike share a cache, which no turn expects.
        self.provider.empty_caches();
        let conversation = self.conversation(&chat.system_prompt).await;
        let calls = self.play(&conversation, &chat.messages).await;
        for (number, call) in calls.iter().enumerate() {
            bill.add(call, || format!("{}, call {number}", chat.name));
        }
        let stored = conversation.messages().await.into_iter();
        let summaries = stored
            .filter_map(|stored| Some((stored.message_id, stored.summary?.tokens)))
            .collect();
        bill.simulated += self.model.simulate(chat, &summaries);
    }
}

/// The bill of several conversations, and its comparison with what was expected.
#[derive(Default)]
struct Bill {
    calls: usize,
    sent: u64,
    cached: u64,
    units: u64,
    /// Calls whose expectation was not met.
    differing: Vec<String>,
    simulated: CacheUsage,
}

impl Bill {
    fn add(&mut self, call: &Call, name: impl Fn() -> String) {
        let Call {
            billed, expected, ..
        } = call;
        self.calls += 1;
        self.sent += billed.input;
        self.cached += billed.cached;
        self.units += billed.units;
        if billed.cached != *expected {
            let name = name();
            let differing = format!("{name}: expected {expected}, {billed:?}");
            self.differing.push(differing);
        }
    }

    /// Whether at least 99 of 100 calls have read what was expected.
    fn is_as_expected(&self) -> bool {
        self.differing.len() * 100 <= self.calls
    }

    /// Whether the price is within a hundredth of the simulator's.
    fn is_as_simulated(&self, model: &CachedModel) -> bool {
        let simulated = self.simulated.units(model.prices);
        self.units.abs_diff(simulated) * 100 <= simulated
    }

    fn print(&self, name: &str, model: &CachedModel) {
        println!(
            "{:<18} {name:<16} {:>5} calls, {:>9} tokens sent, {:>5.1} % cached, {:.4} of the simulator's bill, {} not as expected",
            model.name,
            self.calls,
            self.sent,
            100.0 * self.cached as f64 / self.sent.max(1) as f64,
            self.units as f64 / self.simulated.units(model.prices).max(1) as f64,
            self.differing.len(),
        );
    }
}

/// A conversation of so many turns with a system prompt of about 1,300 tokens. Every sixth turn
/// reads a text of about 2,700 tokens with a tool.
fn generated(turns: usize) -> Chat {
    let mut messages = Vec::new();
    for n in 0..turns {
        messages.push(user(&sentence(n)));
        if n % 6 == 0 {
            let id = format!("call_{n}");
            messages.push(call(&id, "{\"at\":1}"));
            messages.push(result(&id, &prose(n * 200, 120)));
        }
        messages.push(assistant(&prose(n * 3, 3)));
    }
    Chat {
        name: "generated".to_owned(),
        system_prompt: prose(9_000, 60),
        messages,
    }
}

/// Turns of the generated conversation that most tests play.
const TURNS: usize = 40;

/// All families. The first one is generated, so that there is always one.
fn families(model: &CachedModel) -> Vec<Replays> {
    let all = Extent {
        chats: usize::MAX,
        messages: usize::MAX,
        prompt_bytes: usize::MAX,
    };
    let sample = Extent {
        chats: 1,
        messages: 80,
        prompt_bytes: COUNTED_BYTES,
    };
    let mut extent = gate_or_nightly(sample, all);
    if model.limits.step > 1 {
        // A prompt that is estimated when it is sent changes the ratio of the model's tokens to
        // anneal's, by which the steps are counted.
        extent.prompt_bytes = COUNTED_BYTES;
    }
    let mut families = vec![Replays {
        name: "generated",
        chats: vec![generated(gate_or_nightly(TURNS, 200))],
    }];
    families.extend(real_families(extent));
    families
}

/// Replays all families through turns.
async fn check_bills(model: CachedModel) {
    let stage = Stage::open(model).await;
    let (mut calls, mut differing) = (0, Vec::new());
    for family in families(&model) {
        let mut bill = Bill::default();
        for chat in &family.chats {
            stage.play_and_bill(chat, &mut bill).await;
        }
        bill.print(family.name, &model);
        assert!(bill.calls > 0, "{}: nothing is played", family.name);
        assert!(
            bill.is_as_simulated(&model),
            "{}: {} units, simulated {:?}",
            family.name,
            bill.units,
            bill.simulated
        );
        if family.name == "generated" {
            assert!(bill.simulated.breaks > 0, "large messages are swapped");
        }
        calls += bill.calls;
        differing.extend(bill.differing);
    }
    assert!(
        differing.len() * 100 <= calls,
        "{} of {calls} calls: {differing:#?}",
        differing.len()
    );
}

#[tokio::test]
async fn anthropic_bills_what_is_expected_and_what_the_simulator_says() {
    check_bills(CLAUDE).await;
}

#[tokio::test]
async fn openai_bills_what_is_expected_and_what_the_simulator_says() {
    check_bills(GPT_5_5).await;
}

#[tokio::test]
async fn openai_with_breakpoints_bills_what_is_expected_and_what_the_simulator_says() {
    check_bills(GPT_5_6).await;
}

#[tokio::test]
async fn gemini_bills_what_is_expected_and_what_the_simulator_says() {
    check_bills(GEMINI).await;
}

#[tokio::test]
async fn without_marks_anthropic_caches_nothing_and_the_loss_is_large() {
    let mut stage = Stage::open(CLAUDE).await;
    let unmarked = pb::Policy {
        cache_marks: Some(false),
        ..CLAUDE.policy()
    };
    for family in families(&CLAUDE) {
        let (mut with_marks, mut without) = (Bill::default(), Bill::default());
        for chat in family.chats.iter().take(1) {
            stage.policy = CLAUDE.policy();
            stage.play_and_bill(chat, &mut with_marks).await;
            stage.policy = unmarked.clone();
            stage.play_and_bill(chat, &mut without).await;
        }
        assert!(without.calls > 0, "{}: nothing is played", family.name);
        assert_eq!(without.cached, 0);
        assert_eq!(without.units, without.sent * PLAIN_PRICE);
        assert!(without.differing.is_empty(), "{:?}", without.differing);
        let loss = without.units as f64 / with_marks.units as f64;
        println!(
            "{:<16} without marks: {loss:.2} times the bill",
            family.name
        );
        if family.name == "generated" {
            assert!(loss > 2.0, "{loss}");
        }
    }
}

#[tokio::test]
async fn a_checkpoint_leaves_the_system_prompt_in_the_cache() {
    for model in [CLAUDE, GPT_5_5, GPT_5_6, GEMINI] {
        let mut stage = Stage::open(model).await;
        stage.policy.token_threshold = Some(8_500);
        stage.policy.keep_recent_tokens = Some(2_000);
        let chat = generated(60);
        let conversation = stage.conversation(&chat.system_prompt).await;
        let calls = stage.play(&conversation, &chat.messages).await;
        let mut bill = Bill::default();
        for (number, call) in calls.iter().enumerate() {
            bill.add(call, || format!("call {number}"));
        }
        bill.print("checkpoints", &model);
        assert!(bill.is_as_expected(), "{:#?}", bill.differing);
        let broken = calls
            .iter()
            .find(|call| call.broken == BreakReason::Checkpoint)
            .expect("a checkpoint is made");
        // Gemini's cache needs more tokens than the system prompt has.
        let is_long_enough = model.limits.shortest <= 1_024;
        assert_eq!(broken.billed.cached > 0, is_long_enough, "{broken:?}");
    }
}

/// Lets the last calls be older by this time, for the server and for the provider.
async fn pause(stage: &Stage, seconds: u64) {
    let age = "update ai_message set created_ts = created_ts - make_interval(secs => $1)";
    sqlx::query(age)
        .bind(seconds as f64)
        .execute(&mut stage.app.db().await)
        .await
        .expect("the messages grow older");
    stage.provider.clock().advance(Duration::from_secs(seconds));
}

/// The part of the cache that is left after a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    SystemPrompt,
    Everything,
}

#[tokio::test]
async fn after_a_pause_what_lives_longer_is_expected_and_billed() {
    use CacheRetention::{Long, LongHead, Short};

    for (retention, seconds, left) in [
        (Short, 280, Left::Everything),
        (Short, 301, Left::Nothing),
        (LongHead, 301, Left::SystemPrompt),
        (LongHead, 3_601, Left::Nothing),
        (Long, 3_500, Left::Everything),
        (Long, 3_601, Left::Nothing),
    ] {
        let mut stage = Stage::open(CLAUDE).await;
        stage.policy.cache_retention = retention.into();
        let chat = generated(8);
        let conversation = stage.conversation(&chat.system_prompt).await;
        let (before, after) = chat.messages.split_at(chat.messages.len() - 2);
        let before = stage.play(&conversation, before).await;
        let long_written: u64 = before.iter().map(|call| call.billed.long_written).sum();
        assert_eq!(long_written > 0, retention != Short, "{retention:?}");
        pause(&stage, seconds).await;
        let after = stage.play(&conversation, after).await;
        let (last, next) = (&before[before.len() - 1].billed, &after[0]);
        let what = format!("{retention:?} after {seconds} s: {next:?}");
        assert_eq!(next.billed.cached, next.expected, "{what}");
        match left {
            Left::Nothing => assert_eq!(next.expected, 0, "{what}"),
            Left::SystemPrompt => {
                assert!((1_024..2_000).contains(&next.expected), "{what}");
            }
            Left::Everything => assert_eq!(next.expected, last.input, "{what}"),
        }
    }
}

/// A bill of the generated conversation with calls every 20 seconds, at a provider that refreshes
/// these entries.
async fn bill_of_a_slow_conversation(refresh: Refresh) -> Bill {
    let provider = CachingProvider::start_with(refresh, MarkFault::None).await;
    let mut stage = Stage::open_with(CLAUDE, provider).await;
    stage.pause = Duration::from_secs(20);
    let mut bill = Bill::default();
    stage.play_and_bill(&generated(TURNS), &mut bill).await;
    bill
}

#[tokio::test]
async fn a_conversation_keeps_its_marks_alive_for_longer_than_one_lifetime() {
    let bill = bill_of_a_slow_conversation(Refresh::All).await;
    assert!(bill.is_as_expected(), "{:#?}", bill.differing);
    // It is not published what becomes of the other marks, so this is only told.
    let bill = bill_of_a_slow_conversation(Refresh::Longest).await;
    bill.print("longest refreshed", &CLAUDE);
}

#[tokio::test]
async fn marks_that_are_left_out_or_misplaced_are_noticed() {
    for fault in [MarkFault::Dropped, MarkFault::OneBlockEarly] {
        let provider = CachingProvider::start_with(Refresh::All, fault).await;
        let stage = Stage::open_with(CLAUDE, provider).await;
        let mut bill = Bill::default();
        stage.play_and_bill(&generated(TURNS), &mut bill).await;
        assert!(!bill.is_as_expected(), "{fault:?}");
        let is_as_simulated = bill.is_as_simulated(&CLAUDE);
        assert!(fault == MarkFault::OneBlockEarly || !is_as_simulated);
    }
}

#[tokio::test]
async fn the_expectation_of_an_ideal_cache_is_noticed() {
    let provider = CachingProvider::start().await;
    let (mut providers, models) = provider.settings(&[GPT_5_5.name]);
    // At another host than OpenAI's own, an ideal cache is expected.
    for settings in providers.values_mut() {
        settings.prompt_cache = PromptCache::Auto;
    }
    let app = TestApp::with_models((providers, models), GPT_5_5.name).await;
    let stage = Stage {
        provider,
        app,
        model: GPT_5_5,
        policy: GPT_5_5.policy(),
        pause: Duration::ZERO,
    };
    let mut bill = Bill::default();
    stage.play_and_bill(&generated(TURNS), &mut bill).await;
    assert!(!bill.is_as_expected());
}
