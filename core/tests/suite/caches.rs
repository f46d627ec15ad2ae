//! Growing conversations at a provider that caches up to marks: what a context expects in the cache
//! is what a reference cache finds there, by the request alone.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use anneal_core::{
    cache::{CacheAsk, CacheKind, CacheRetention, CacheRules, RequestIdentity},
    context::{
        Ask, Body, BreakReason, CheckpointSummary, Context, Material, PendingChange, PrefixVersion,
        ReadySummary, SummaryOrigin, TailMessage, build,
    },
    message::{MessageId, Part, Role, outline, plain_text_bytes},
    policy::{Policy, PolicyOverrides, Profile, SessionSettings},
    render::{Format, render},
    tokens::{Encoding, Tokens, count_parts},
    turn,
};
use proptest::prelude::*;
use serde_json::Value;

const ENCODING: Encoding = Encoding::O200kBase;
/// Blocks that the reference cache searches from each mark, the marked one included.
const LOOKBACK: usize = 20;
/// Without a minimum, so that short texts are cached too.
const RULES: CacheRules = CacheRules {
    kind: CacheKind::Marked,
    min_tokens: Tokens::ZERO,
    step_tokens: 1,
    lookback_blocks: LOOKBACK,
};

/// Tokens of the system prompt.
const PROMPT_TOKENS: Tokens = Tokens::new(3);
/// The same, with framing.
const SYSTEM_TOKENS: Tokens = Tokens::new(7);

/// What happens in the conversation.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A question of so many words, and its answer.
    Say(usize),
    /// A message without an answer, as after a failed turn.
    Orphan,
    /// A question, so many tool calls at once, their results, and an answer. The first result has
    /// this many words.
    Tools(usize, usize),
    Checkpoint,
    /// The system prompt changes.
    Prompt,
    /// A pause that is longer than the lifetime of the cache.
    Pause,
    /// Another model answers from now on.
    Model,
    /// A message of the user gets another text. The number chooses it.
    Edit(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..30_usize).prop_map(Step::Say),
        5 => (400..1_500_usize).prop_map(Step::Say),
        1 => Just(Step::Orphan),
        6 => (1..4_usize, 1..1_500_usize).prop_map(|(calls, words)| Step::Tools(calls, words)),
        1 => (10..30_usize, 1..1_500_usize).prop_map(|(calls, words)| Step::Tools(calls, words)),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Prompt),
        1 => Just(Step::Pause),
        1 => Just(Step::Model),
    ]
}

fn step_or_edit() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => step(),
        1 => (0..100_usize).prop_map(Step::Edit),
    ]
}

/// A provider's cache. A call can read what an earlier call has marked.
#[derive(Default)]
struct ReferenceCache {
    /// Tokens up to each mark of the last call, by the hash of everything up to there.
    of_last_call: HashMap<u64, Tokens>,
    /// The same for all calls.
    of_all_calls: HashMap<u64, Tokens>,
}

/// What a call could read.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    /// From the marks of the last call alone.
    of_last_call: Tokens,
    /// From all marks.
    of_all_calls: Tokens,
}

impl ReferenceCache {
    fn call(&mut self, model: &str, context: &Context) -> Found {
        let rendered = render(context, Format::AnthropicMessages);
        let body: Value = serde_json::from_str(&rendered.json).expect("a request is JSON");
        let mut hasher = DefaultHasher::new();
        model.hash(&mut hasher);
        let (mut prefixes, mut marked) = (Vec::new(), Vec::new());
        for (holder, block) in blocks(&body) {
            let mut block = block.clone();
            let mark = block
                .as_object_mut()
                .and_then(|block| block.remove("cache_control"));
            (holder, block.to_string()).hash(&mut hasher);
            if mark.is_some() {
                marked.push(prefixes.len());
            }
            prefixes.push(hasher.finish());
        }
        assert!(marked.len() <= 4, "{marked:?}");
        assert_eq!(marked.len(), context.marks.len(), "every mark is written");
        assert_eq!(marked.len(), rendered.mark_indexes.len());
        let find = |held: &HashMap<u64, Tokens>| {
            let searched = marked
                .iter()
                .flat_map(|mark| &prefixes[(mark + 1).saturating_sub(LOOKBACK)..=*mark]);
            let found = searched.filter_map(|hash| held.get(hash).copied());
            found.max().unwrap_or_default()
        };
        let found = Found {
            of_last_call: find(&self.of_last_call),
            of_all_calls: find(&self.of_all_calls),
        };
        self.of_last_call = marked
            .iter()
            .zip(&context.marks)
            .map(|(place, mark)| (prefixes[*place], mark.point.tokens))
            .collect();
        self.of_all_calls.extend(&self.of_last_call);
        found
    }

    fn expire(&mut self) {
        *self = Self::default();
    }
}

/// The blocks of a request, each with the number of its message; -1: the system prompt.
fn blocks(body: &Value) -> Vec<(i64, &Value)> {
    let system = body["system"].as_array().into_iter().flatten();
    let messages = body["messages"].as_array().into_iter().flatten();
    let in_messages = messages.zip(0..).flat_map(|(message, number)| {
        let content = message["content"].as_array().into_iter().flatten();
        content.map(move |block| (number, block))
    });
    system.map(|block| (-1, block)).chain(in_messages).collect()
}

struct StoredMessage {
    role: Role,
    parts: Vec<Part>,
    tokens: Tokens,
}

struct Conversation {
    policy: Policy,
    messages: Vec<StoredMessage>,
    checkpoint: Option<MessageId>,
    prompt: String,
    format: Format,
    cache_ask: CacheAsk,
    /// Seconds since the last model call.
    idle: i64,
    version: Option<PrefixVersion>,
    cache: ReferenceCache,
    /// What each call has expected, and what it could read.
    calls: Vec<(Tokens, Found)>,
}

impl Conversation {
    fn new() -> Self {
        Self::with(Format::AnthropicMessages, RULES)
    }

    fn with(format: Format, rules: CacheRules) -> Self {
        let overrides = PolicyOverrides {
            profile: Some(Profile::Agents),
            ..PolicyOverrides::default()
        };
        let policy = Policy {
            hot_zone_radius: 2,
            large_message_threshold: Tokens::new(300),
            ..SessionSettings::default().policy(&overrides, None)
        };
        Self {
            policy,
            messages: Vec::new(),
            checkpoint: None,
            prompt: "Answer.".to_owned(),
            format,
            cache_ask: CacheAsk {
                rules,
                retention: CacheRetention::Short,
                marks: true,
                identity: RequestIdentity {
                    model: Some("a".to_owned()),
                    ..RequestIdentity::default()
                },
            },
            idle: 1,
            version: None,
            cache: ReferenceCache::default(),
            calls: Vec::new(),
        }
    }

    /// What the next call expects, after this step.
    fn expected_after(&mut self, step: Step) -> Tokens {
        let calls = self.calls.len();
        self.apply(step);
        self.apply(Step::Say(5));
        self.calls[calls].0
    }

    /// Tokens of all stored messages and of the system prompt, with framing.
    fn tokens(&self) -> Tokens {
        let messages = self.messages.iter();
        let stored: Tokens = messages
            .map(|message| message.tokens + Tokens::new(4))
            .sum();
        stored + SYSTEM_TOKENS
    }

    fn last(&self) -> MessageId {
        MessageId(self.messages.len() as i64)
    }

    fn boundary(&self) -> MessageId {
        self.checkpoint.unwrap_or_default()
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Say(words) => {
                self.store_text(Role::User, words);
                self.call();
                self.store_text(Role::Assistant, 9);
            }
            Step::Orphan => self.store_text(Role::User, 5),
            Step::Tools(calls, words) => {
                self.store_text(Role::User, 3);
                self.call();
                let first = self.messages.len();
                let name = |call: usize| format!("call_{first}_{call}");
                let ask = |call| Part::ToolUse {
                    id: name(call),
                    name: "look".to_owned(),
                    input: "{\"at\":1}".to_owned(),
                };
                let answer = |call| Part::ToolResult {
                    id: name(call),
                    text: "sea ".repeat(if call == 0 { words } else { 1 }),
                    is_error: false,
                    media: Vec::new(),
                };
                self.store(Role::Assistant, (0..calls).map(ask).collect());
                self.store(Role::Tool, (0..calls).map(answer).collect());
                self.call();
                self.store_text(Role::Assistant, 9);
            }
            Step::Checkpoint => {
                let mut kept = self.messages.iter().rev().take(2);
                let has = |role| move |message: &StoredMessage| message.role == role;
                // Nothing is known of a call whose answer is not in the tail.
                let keeps_answer = kept.clone().any(has(Role::Assistant));
                let cuts_pair = kept.any(has(Role::Tool));
                if self.last().0 > self.boundary().0 + 2 && keeps_answer && !cuts_pair {
                    self.checkpoint = Some(MessageId(self.last().0 - 2));
                }
            }
            Step::Prompt => self.prompt.push('!'),
            Step::Pause => {
                self.idle = 1_000;
                self.cache.expire();
            }
            Step::Model => {
                let model = &mut self.cache_ask.identity.model;
                let next = if model.as_deref() == Some("a") {
                    "b"
                } else {
                    "a"
                };
                *model = Some(next.to_owned());
            }
            Step::Edit(which) => self.edit(which),
        }
    }

    fn store_text(&mut self, role: Role, words: usize) {
        let text = format!("message {}: {}", self.last().next(), "sea ".repeat(words));
        self.store(role, vec![Part::Text { text }]);
    }

    fn store(&mut self, role: Role, parts: Vec<Part>) {
        self.messages.push(StoredMessage {
            role,
            tokens: count_parts(ENCODING, &parts),
            parts,
        });
    }

    /// Edits a message of the user that is sent, and marks the change as the store does.
    fn edit(&mut self, which: usize) {
        let boundary = self.boundary().0 as usize;
        let tail = self.messages.iter().enumerate().skip(boundary);
        let of_user: Vec<usize> = tail
            .filter(|(_, message)| message.role == Role::User)
            .map(|(index, _)| index)
            .collect();
        let (Some(index), Some(before)) =
            (of_user.iter().cycle().nth(which).copied(), &self.version)
        else {
            return;
        };
        let at = MessageId(index as i64 + 1);
        let epoch = before.epoch + 1;
        let earlier = before.pending.map_or(at, |pending| pending.at);
        self.version = Some(PrefixVersion {
            epoch,
            change_epoch: epoch,
            pending: Some(PendingChange {
                reason: BreakReason::Edit,
                at: at.min(earlier),
            }),
            ..before.clone()
        });
        let message = &mut self.messages[index];
        message.parts.push(Part::Text {
            text: format!("edit {epoch}"),
        });
        message.tokens = count_parts(ENCODING, &message.parts);
    }

    fn call(&mut self) {
        let ask = Ask {
            format: self.format,
            cache: Some(self.cache_ask.clone()),
            ..Ask::default()
        };
        let context = build(self.material(), ask).expect("there is no budget");
        if let Some(new) = &context.prefix.new_version {
            self.version = Some(new.version.clone());
        }
        let found = if self.format == Format::AnthropicMessages {
            let model = self.cache_ask.identity.model.as_deref();
            self.cache.call(model.unwrap_or_default(), &context)
        } else {
            Found::default()
        };
        self.calls.push((context.prefix.cached, found));
        self.idle = 1;
    }

    fn material(&self) -> Material {
        let swapped = self
            .version
            .as_ref()
            .map(|version| version.swapped.as_slice())
            .unwrap_or_default();
        let (mut turn, mut previous_role) = (0, None);
        let mut tail = Vec::new();
        for (id, message) in (1..).map(MessageId).zip(&self.messages) {
            turn += i32::from(turn::starts(message.role, previous_role));
            previous_role = Some(message.role);
            if id <= self.boundary() {
                continue;
            }
            let summary = ReadySummary {
                text: format!("summary of {id}"),
                tokens: Tokens::new(5),
            };
            let is_large = message.tokens > self.policy.large_message_threshold;
            let (body, ready_summary) = if swapped.contains(&id) {
                let body = Body::Summary {
                    text: summary.text,
                    tokens: summary.tokens,
                    original_bytes: plain_text_bytes(&message.parts) as u64,
                    outline: outline(&message.parts),
                };
                (body, None)
            } else {
                let body = Body::Original(message.parts.clone());
                (body, is_large.then_some(summary))
            };
            tail.push(TailMessage {
                id,
                role: message.role,
                turn,
                tokens: message.tokens,
                estimated: false,
                body,
                ready_summary,
            });
        }
        let summary = |last| CheckpointSummary {
            last,
            text: format!("They spoke of the sea, {last} times."),
            tokens: Tokens::new(12),
            saved: Tokens::new(100),
            origin: SummaryOrigin::Stored,
        };
        Material {
            last_message_id: self.last(),
            last_role: previous_role,
            turn,
            encoding: ENCODING,
            policy: self.policy,
            system_prompt: self.prompt.clone(),
            system_prompt_tokens: PROMPT_TOKENS,
            separator: None,
            checkpoint: self.checkpoint.map(summary),
            tail,
            prefix: self.version.clone(),
            omitted: Vec::new(),
            withdrawn: Vec::new(),
            idle_seconds: Some(self.idle),
            tokens_ratio: None,
            learnt_window: None,
            change_id: 0,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_context_expects_what_the_marks_of_the_last_call_have_left_in_the_cache(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut conversation = Conversation::new();
        for step in &steps {
            conversation.apply(*step);
        }
        for (number, (expected, found)) in conversation.calls.iter().enumerate() {
            prop_assert_eq!(*expected, found.of_last_call, "call {} of {:?}", number, steps);
        }
    }

    #[test]
    fn after_edits_too_a_context_expects_no_more_than_the_cache_holds(
        steps in prop::collection::vec(step_or_edit(), 1..60),
    ) {
        let mut conversation = Conversation::new();
        for step in &steps {
            conversation.apply(*step);
        }
        for (number, (expected, found)) in conversation.calls.iter().enumerate() {
            prop_assert!(
                *expected <= found.of_all_calls,
                "call {number} expects {expected}, finds {found:?}: {steps:?}"
            );
        }
    }
}

#[test]
fn a_swap_in_a_long_tail_reads_everything_before_the_swapped_message() {
    let mut conversation = Conversation::new();
    for _ in 0..4 {
        conversation.apply(Step::Say(20));
    }
    conversation.apply(Step::Tools(1, 2_500));
    let large = MessageId(11);
    let is_swapped = |conversation: &Conversation| {
        let version = conversation.version.as_ref();
        version.is_some_and(|version| version.swapped.contains(&large))
    };
    let mut calls = 0;
    while !is_swapped(&conversation) {
        conversation.apply(Step::Tools(2, 5));
        calls += 1;
        assert!(calls < 200, "the large result is swapped at last");
    }
    let mut pairs = conversation.calls.windows(2);
    let swap = pairs
        .find(|pair| pair[1].0 < pair[0].0)
        .expect("a swap breaks the cache")[1];
    let before: Tokens = conversation.messages[..large.0 as usize - 1]
        .iter()
        .map(|message| message.tokens + Tokens::new(4))
        .sum();
    assert_eq!(
        swap.0,
        before + SYSTEM_TOKENS,
        "everything before message {large}, and the system prompt"
    );
    assert_eq!(swap.0, swap.1.of_last_call);
}

#[test]
fn the_system_prompt_stays_cached_when_only_what_follows_it_changes() {
    let mut conversation = Conversation::new();
    conversation.apply(Step::Say(20));
    conversation.cache_ask.identity.options = Some([1; 32]);
    conversation.cache_ask.identity.tools = Some([1; 32]);
    conversation.apply(Step::Say(20));
    assert_eq!(
        conversation.expected_after(Step::Checkpoint),
        SYSTEM_TOKENS,
        "a checkpoint"
    );
    // The first version knew neither; the checkpoint's one does.
    conversation.cache_ask.identity.options = Some([2; 32]);
    assert_eq!(conversation.expected_after(Step::Orphan), SYSTEM_TOKENS);
    conversation.cache_ask.identity.tools = Some([2; 32]);
    assert_eq!(conversation.expected_after(Step::Orphan), Tokens::ZERO);
    assert_eq!(conversation.expected_after(Step::Prompt), Tokens::ZERO);
    assert_eq!(conversation.expected_after(Step::Model), Tokens::ZERO);
}

#[test]
fn an_hour_long_head_survives_a_pause_of_less_than_an_hour() {
    let expected_after_pause = |retention, idle| {
        let mut conversation = Conversation::new();
        conversation.cache_ask.retention = retention;
        conversation.apply(Step::Say(20));
        conversation.apply(Step::Say(20));
        conversation.idle = idle;
        conversation.expected_after(Step::Orphan)
    };
    assert_eq!(
        expected_after_pause(CacheRetention::LongHead, 3_600),
        SYSTEM_TOKENS
    );
    assert_eq!(
        expected_after_pause(CacheRetention::LongHead, 3_601),
        Tokens::ZERO
    );
    assert_eq!(
        expected_after_pause(CacheRetention::Short, 301),
        Tokens::ZERO
    );
}

#[test]
fn nothing_is_expected_without_marks_where_they_are_needed_or_below_the_minimum() {
    let mut unmarked = Conversation::new();
    unmarked.cache_ask.marks = false;
    unmarked.apply(Step::Say(1_000));
    assert_eq!(unmarked.expected_after(Step::Say(5)), Tokens::ZERO);
    let rules = CacheRules::of(Format::AnthropicMessages, "claude-opus-5");
    let mut short = Conversation::with(Format::AnthropicMessages, rules);
    short.apply(Step::Say(400));
    assert_eq!(short.expected_after(Step::Say(100)), Tokens::ZERO);
    assert!(
        short.expected_after(Step::Say(5)) >= Tokens::new(512),
        "the last call was long enough"
    );
}

#[test]
fn openai_keeps_whole_steps_and_from_gpt_5_6_on_exactly_what_was_sent() {
    // What the last call has sent, which is everything but its answer, and what the next expects.
    let sent_and_expected = |model| {
        let rules = CacheRules::of(Format::OpenAiChat, model);
        let mut conversation = Conversation::with(Format::OpenAiChat, rules);
        conversation.apply(Step::Say(1_400));
        let changed = conversation.expected_after(Step::Prompt);
        assert_eq!(changed, Tokens::ZERO, "the prompt comes first");
        let answer = conversation.messages[3].tokens + Tokens::new(4);
        let sent = conversation.tokens().less(answer);
        (sent.get(), conversation.expected_after(Step::Say(5)).get())
    };
    let (sent, expected) = sent_and_expected("gpt-5.5");
    assert_eq!(expected, sent / 128 * 128);
    let (sent, expected) = sent_and_expected("gpt-5.6");
    assert_eq!(expected, sent);
}
