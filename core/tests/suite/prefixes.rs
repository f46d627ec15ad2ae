//! Growing conversations: equal prefix hashes mean equal beginnings, and stepped cooling never
//! swaps hot messages or undoes a swap.

use anneal_core::{
    context::{
        Ask, Body, CheckpointSummary, Context, ContextMessage, Material, PrefixVersion, Pressure,
        ReadySummary, Representation, SummaryOrigin, TailMessage, build,
    },
    cooling,
    message::{MessageId, Part, Role, plain_text},
    policy::{Cooling, Policy, PolicyOverrides, Profile, SessionSettings},
    tokens::{Encoding, FRAMING_PER_MESSAGE, Tokens},
    turn,
};
use proptest::prelude::*;

/// An event between two contexts.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A message of this role with this many tokens.
    Say(Role, u64),
    Checkpoint,
    Separator,
    /// The system prompt changes.
    Prompt,
    /// A pause that is longer than the lifetime of the provider's cache.
    Pause,
    /// Later contexts have a budget of this share of the tail, in percent, but at least 8,000
    /// tokens. 100: no budget.
    Budget(u64),
    /// Whether later contexts are built as if the model had refused the context as too long.
    Pressure(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (10..200_u64).prop_map(|tokens| Step::Say(Role::User, tokens)),
        10 => (10..200_u64).prop_map(|tokens| Step::Say(Role::Assistant, tokens)),
        8 => (500..6_000_u64).prop_map(|tokens| Step::Say(Role::User, tokens)),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Separator),
        1 => Just(Step::Prompt),
        1 => Just(Step::Pause),
        1 => (30..=100_u64).prop_map(Step::Budget),
        1 => any::<bool>().prop_map(Step::Pressure),
    ]
}

/// A message of a growing conversation.
struct StoredMessage {
    id: MessageId,
    role: Role,
    turn: i32,
    tokens: u64,
}

struct GrowingConversation {
    policy: Policy,
    messages: Vec<StoredMessage>,
    separator: Option<MessageId>,
    checkpoint: Option<MessageId>,
    prompt: String,
    /// Seconds since the last model call.
    idle: i64,
    /// The budget of later contexts, as a share of the tail in percent; 100: no budget.
    share: u64,
    pressure: Pressure,
    /// The newest recorded version.
    version: Option<PrefixVersion>,
}

impl GrowingConversation {
    fn new(cooling: Cooling) -> Self {
        let overrides = PolicyOverrides {
            profile: Some(Profile::Agents),
            ..PolicyOverrides::default()
        };
        let policy = Policy {
            cooling,
            hot_zone_radius: 2,
            ..SessionSettings::default().policy(&overrides, None)
        };
        let (messages, prompt) = (Vec::new(), "Answer.".to_owned());
        Self {
            policy,
            messages,
            separator: None,
            checkpoint: None,
            prompt,
            idle: 1,
            share: 100,
            pressure: Pressure::None,
            version: None,
        }
    }

    fn last(&self) -> MessageId {
        self.messages
            .last()
            .map_or(MessageId::NONE, |message| message.id)
    }

    fn apply(&mut self, step: Step) {
        self.idle = 1;
        match step {
            Step::Say(role, tokens) => {
                let previous = self.messages.last();
                let starts_turn = turn::starts(role, previous.map(|message| message.role));
                let turn = previous.map_or(0, |message| message.turn) + i32::from(starts_turn);
                let id = self.last().next();
                self.messages.push(StoredMessage {
                    id,
                    role,
                    turn,
                    tokens,
                });
            }
            Step::Checkpoint if self.last().0 > self.boundary().0 + 2 => {
                self.checkpoint = Some(MessageId(self.last().0 - 2));
            }
            Step::Separator => (self.separator, self.checkpoint) = (Some(self.last()), None),
            Step::Prompt => self.prompt.push('!'),
            Step::Pause => self.idle = 1_000,
            Step::Budget(share) => self.share = share,
            Step::Pressure(applied) => {
                self.pressure = if applied {
                    Pressure::TruncateToolResults
                } else {
                    Pressure::None
                };
            }
            Step::Checkpoint => {}
        }
    }

    fn boundary(&self) -> MessageId {
        self.checkpoint.or(self.separator).unwrap_or_default()
    }

    /// The material as the store reads it: swapped messages come without their originals.
    fn material(&self) -> Material {
        let current_turn = self.messages.last().map_or(0, |message| message.turn);
        let tail = self
            .messages
            .iter()
            .filter(|message| message.id > self.boundary())
            .map(|message| {
                let StoredMessage {
                    id,
                    role,
                    turn,
                    tokens,
                } = *message;
                let large = tokens > self.policy.large_message_threshold.get();
                let swapped = match self.policy.cooling {
                    Cooling::Strict => {
                        large && cooling::is_cool_by_turns(turn, current_turn, &self.policy)
                    }
                    Cooling::Stepped => self
                        .version
                        .as_ref()
                        .is_some_and(|version| version.swapped.contains(&id)),
                };
                let summary = ReadySummary {
                    text: format!("in short, {id}"),
                    tokens: Tokens::new(tokens / 10),
                };
                let body = if swapped {
                    let ReadySummary { text, tokens } = summary.clone();
                    let original_bytes = format!("said, {id}").len() as u64;
                    Body::Summary {
                        text,
                        tokens,
                        original_bytes,
                        outline: Vec::new(),
                    }
                } else {
                    Body::Original(vec![Part::Text {
                        text: format!("said, {id}"),
                    }])
                };
                let summary_is_ready = large && !swapped && self.policy.cooling == Cooling::Stepped;
                TailMessage {
                    id,
                    role,
                    turn,
                    tokens: Tokens::new(tokens),
                    estimated: false,
                    body,
                    ready_summary: summary_is_ready.then_some(summary),
                }
            });
        let summary = |last: MessageId| CheckpointSummary {
            last,
            text: format!("up to {last}"),
            tokens: Tokens::new(20),
            saved: Tokens::new(100),
            origin: SummaryOrigin::Stored,
        };
        Material {
            last_message_id: self.last(),
            last_role: self.messages.last().map(|message| message.role),
            turn: current_turn,
            encoding: Encoding::O200kBase,
            policy: self.policy,
            system_prompt: self.prompt.clone(),
            system_prompt_tokens: Tokens::new(3),
            separator: self.separator,
            checkpoint: self.checkpoint.map(summary),
            tail: tail.collect(),
            prefix: self.version.clone(),
            omitted: Vec::new(),
            withdrawn: Vec::new(),
            idle_seconds: Some(self.idle),
            tokens_ratio: None,
            learnt_window: None,
        }
    }

    fn build(&mut self) -> Context {
        let tail_tokens: u64 = self
            .messages
            .iter()
            .filter(|message| message.id > self.boundary())
            .map(|message| message.tokens + FRAMING_PER_MESSAGE.get())
            .sum();
        let budget =
            (self.share < 100).then(|| Tokens::new((tail_tokens * self.share / 100).max(8_000)));
        let ask = Ask {
            budget,
            pressure: self.pressure,
            ..Ask::default()
        };
        let context = build(self.material(), ask).expect("8,000 tokens hold any message");
        if let Some(new) = &context.prefix.new_version {
            self.version = Some(new.version.clone());
        }
        context
    }
}

fn texts(context: &Context) -> Vec<(Role, String)> {
    context
        .messages
        .iter()
        .map(|message| (message.role, plain_text(&message.parts)))
        .collect()
}

/// The messages that represent stored ones up to `last`.
fn up_to(context: &Context, last: MessageId) -> impl Iterator<Item = &ContextMessage> {
    context
        .messages
        .iter()
        .filter(move |message| message.message_ids.last().is_some_and(|id| *id <= last))
}

/// Whether `earlier` is the beginning of `later`. In `later`, more text may have been joined to the
/// last message of `earlier`.
fn is_beginning_of(earlier: &[(Role, String)], later: &[(Role, String)]) -> bool {
    let Some(((role, last), before)) = earlier.split_last() else {
        return true;
    };
    later.len() >= earlier.len()
        && later[..before.len()] == *before
        && later[before.len()].0 == *role
        && later[before.len()].1.starts_with(last.as_str())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn equal_hashes_mean_that_one_context_is_the_beginning_of_the_next(
        steps in prop::collection::vec(step(), 1..120),
        stepped in any::<bool>(),
    ) {
        let mut conversation = GrowingConversation::new(if stepped { Cooling::Stepped } else { Cooling::Strict });
        let mut before: Option<Context> = None;
        for step in steps {
            conversation.apply(step);
            let context = conversation.build();
            let rebuilt = conversation.build();
            prop_assert_eq!(&rebuilt.messages, &context.messages, "nothing changed in between");
            prop_assert_eq!((&rebuilt.prefix.new_version, rebuilt.prefix.hash), (&None, context.prefix.hash));
            if let Some(before) = before {
                let same_hash = before.prefix.hash == context.prefix.hash;
                prop_assert_eq!(same_hash, context.prefix.new_version.is_none(), "every break is a new version");
                if !same_hash {
                    prop_assert!(context.prefix.cache_break.is_some(), "a new version has a break");
                }
                for message in up_to(&context, context.prefix.stable_until) {
                    prop_assert!(before.messages.contains(message), "sent before: {:?}", message.message_ids);
                }
                if same_hash {
                    prop_assert!(is_beginning_of(&texts(&before), &texts(&context)));
                }
            }
            before = Some(context);
        }
    }

    #[test]
    fn only_cool_messages_are_swapped_and_stay_swapped_until_the_boundary_passes_them(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut conversation = GrowingConversation::new(Cooling::Stepped);
        let mut swapped_before: Vec<MessageId> = Vec::new();
        for step in steps {
            conversation.apply(step);
            let context = conversation.build();
            let summaries = context.manifest.iter().filter(|entry| entry.representation == Representation::Summary);
            let swapped_now = conversation.version.as_ref().map(|version| version.swapped.clone()).unwrap_or_default();
            prop_assert!(summaries.clone().all(|entry| swapped_now.contains(&entry.first)));
            prop_assert!(swapped_before.iter().filter(|id| **id > conversation.boundary()).all(|id| swapped_now.contains(id)));
            for entry in summaries {
                prop_assert!(entry.cool, "message {} is hot", entry.first);
            }
            swapped_before = swapped_now;
        }
    }
}
