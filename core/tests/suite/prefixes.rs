//! Growing conversations: equal prefix hashes mean equal beginnings, and stepped cooling never
//! swaps hot messages or undoes a swap.

use anneal_core::{
    cache::RequestIdentity,
    context::{
        Ask, Body, BreakReason, CheckpointSummary, Context, ContextMessage, Material,
        PendingChange, PrefixVersion, Pressure, ReadySummary, Representation, SummaryOrigin,
        TailMessage, build,
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
    /// This many adjacent messages are withdrawn, one by one. The number before it chooses them, as
    /// in the following steps.
    Withdraw(usize, usize),
    /// A withdrawn message is restored.
    Restore(usize),
    /// A message gets another text.
    Edit(usize),
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

fn step_or_change() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => step(),
        2 => (0..100_usize, 1..4_usize).prop_map(|(which, count)| Step::Withdraw(which, count)),
        1 => (0..100_usize).prop_map(Step::Restore),
        1 => (0..100_usize).prop_map(Step::Edit),
    ]
}

/// A message of a growing conversation.
struct StoredMessage {
    id: MessageId,
    role: Role,
    tokens: u64,
    edits: usize,
    withdrawn: bool,
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
            Step::Say(role, tokens) => self.messages.push(StoredMessage {
                id: self.last().next(),
                role,
                tokens,
                edits: 0,
                withdrawn: false,
            }),
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
            Step::Withdraw(which, count) => {
                let standing = self.ids(|message| !message.withdrawn);
                let first = which.checked_rem(standing.len()).unwrap_or(0);
                for id in standing.into_iter().skip(first).take(count) {
                    self.message_mut(id).withdrawn = true;
                    self.mark(BreakReason::Withdrawal, id);
                }
            }
            Step::Restore(which) => {
                let withdrawn = self.ids(|message| message.withdrawn);
                if let Some(id) = withdrawn.iter().cycle().nth(which) {
                    self.message_mut(*id).withdrawn = false;
                    self.mark(BreakReason::Withdrawal, *id);
                }
            }
            Step::Edit(which) => {
                let standing = self.ids(|message| !message.withdrawn);
                if let Some(id) = standing.iter().cycle().nth(which) {
                    self.message_mut(*id).edits += 1;
                    self.mark(BreakReason::Edit, *id);
                }
            }
            Step::Checkpoint => {}
        }
    }

    fn ids(&self, is_wanted: fn(&StoredMessage) -> bool) -> Vec<MessageId> {
        let wanted = self.messages.iter().filter(|message| is_wanted(message));
        wanted.map(|message| message.id).collect()
    }

    fn message_mut(&mut self, id: MessageId) -> &mut StoredMessage {
        &mut self.messages[id.0 as usize - 1]
    }

    /// Marks a change of a message as the store does. A checkpoint that covers the message no
    /// longer holds.
    fn mark(&mut self, reason: BreakReason, id: MessageId) {
        if self.separator.is_some_and(|separator| id <= separator) {
            return;
        }
        let voids_checkpoint = self.checkpoint.is_some_and(|last| id <= last);
        let at = if voids_checkpoint {
            MessageId::NONE
        } else {
            id
        };
        self.checkpoint = self.checkpoint.filter(|_| !voids_checkpoint);
        let before = self.version.take().unwrap_or(PrefixVersion {
            epoch: 0,
            hash: [0; 32],
            boundary: MessageId::NONE,
            system_prompt: [0; 32],
            swapped: Vec::new(),
            cut: false,
            change_epoch: 0,
            pending: None,
            identity: RequestIdentity::default(),
        });
        let pending = match before.pending {
            None if before.epoch == 0 => PendingChange {
                reason: BreakReason::First,
                at: MessageId::NONE,
            },
            None => PendingChange { reason, at },
            Some(pending) if pending.reason == BreakReason::First => pending,
            Some(pending) => PendingChange {
                reason,
                at: pending.at.min(at),
            },
        };
        let epoch = before.epoch + 1;
        self.version = Some(PrefixVersion {
            epoch,
            change_epoch: epoch,
            pending: Some(pending),
            ..before
        });
    }

    /// The messages that are not withdrawn, with their turns.
    fn standing(&self) -> Vec<(i32, &StoredMessage)> {
        let (mut turn, mut previous_role) = (0, None);
        let standing = self.messages.iter().filter(|message| !message.withdrawn);
        let with_turn = standing.map(|message| {
            turn += i32::from(turn::starts(message.role, previous_role));
            previous_role = Some(message.role);
            (turn, message)
        });
        with_turn.collect()
    }

    fn boundary(&self) -> MessageId {
        self.checkpoint.or(self.separator).unwrap_or_default()
    }

    /// The material as the store reads it: swapped messages come without their originals.
    fn material(&self) -> Material {
        let standing = self.standing();
        let last = standing.last();
        let (current_turn, last_role) = (
            last.map_or(0, |(turn, _)| *turn),
            last.map(|(_, message)| message.role),
        );
        let tail = standing
            .iter()
            .filter(|(_, message)| message.id > self.boundary())
            .map(|(turn, message)| {
                let StoredMessage {
                    id,
                    role,
                    tokens,
                    edits,
                    ..
                } = **message;
                let turn = *turn;
                let said = format!("said, {id}{}", "!".repeat(edits));
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
                    let original_bytes = said.len() as u64;
                    Body::Summary {
                        text,
                        tokens,
                        original_bytes,
                        outline: Vec::new(),
                    }
                } else {
                    Body::Original(vec![Part::Text { text: said }])
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
            last_role,
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
            withdrawn: self.ids(|message| message.withdrawn),
            idle_seconds: Some(self.idle),
            tokens_ratio: None,
            learnt_window: None,
            change_id: 0,
        }
    }

    fn build(&mut self) -> Context {
        let tail_tokens: u64 = self
            .messages
            .iter()
            .filter(|message| message.id > self.boundary() && !message.withdrawn)
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

/// Whether the earlier context has this message. More text may have been joined to it there, by a
/// message that was withdrawn since.
fn was_sent(message: &ContextMessage, earlier: &Context) -> bool {
    let text = plain_text(&message.parts);
    earlier.messages.iter().any(|sent| {
        sent.role == message.role
            && sent.message_ids.starts_with(&message.message_ids)
            && plain_text(&sent.parts).starts_with(&text)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn equal_hashes_mean_that_one_context_is_the_beginning_of_the_next(
        steps in prop::collection::vec(step_or_change(), 1..120),
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
                    prop_assert!(was_sent(message, &before), "sent before: {:?}", message.message_ids);
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
