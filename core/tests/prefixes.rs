//! Conversations that grow: what a context's prefix hash promises, and what stepped cooling never does.

use anneal_core::{
    context::{
        Ask, Body, CheckpointSummary, Context, ContextMessage, Made, Material, PrefixVersion, Pressure, ReadySummary,
        Representation, TailMessage, build,
    },
    cooling,
    message::{MessageId, Part, Role, plain_text},
    policy::{Cooling, Policy, PolicyOverrides, Profile, Session},
    tokens::{Encoding, Tokens},
    turn,
};
use proptest::prelude::*;

/// What happens between two contexts.
#[derive(Debug, Clone, Copy)]
enum Step {
    Say(Role, u64),
    Checkpoint,
    Separator,
    Prompt,
    Pause,
    /// From now on contexts fit this share of what is there, in percent; 100: no budget.
    Budget(u64),
    /// From now on tool results and everything else are sent as after a refusal, or not.
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

struct Talk {
    policy: Policy,
    said: Vec<(MessageId, Role, i32, u64)>,
    separator: Option<MessageId>,
    checkpoint: Option<MessageId>,
    prompt: String,
    idle: i64,
    share: u64,
    pressure: Pressure,
    version: Option<PrefixVersion>,
}

impl Talk {
    fn new(cooling: Cooling) -> Self {
        let overrides = PolicyOverrides { profile: Some(Profile::Agents), ..PolicyOverrides::default() };
        let policy = Policy { cooling, hot_zone_radius: 2, ..Session::default().policy(&overrides, None) };
        let (said, prompt) = (Vec::new(), "Answer.".to_owned());
        Self {
            policy,
            said,
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
        self.said.last().map_or(MessageId::NONE, |said| said.0)
    }

    fn take(&mut self, step: Step) {
        self.idle = 1;
        match step {
            Step::Say(role, tokens) => {
                let before = self.said.last().map(|said| (said.1, said.2));
                let turn =
                    before.map_or(0, |(_, turn)| turn) + i32::from(turn::starts(role, before.map(|said| said.0)));
                self.said.push((self.last().next(), role, turn, tokens));
            }
            Step::Checkpoint if self.last().0 > self.after().0 + 2 => {
                self.checkpoint = Some(MessageId(self.last().0 - 2));
            }
            Step::Separator => (self.separator, self.checkpoint) = (Some(self.last()), None),
            Step::Prompt => self.prompt.push('!'),
            Step::Pause => self.idle = 1_000,
            Step::Budget(share) => self.share = share,
            Step::Pressure(felt) => {
                self.pressure = if felt { Pressure::TruncateToolResults } else { Pressure::None };
            }
            Step::Checkpoint => {}
        }
    }

    fn after(&self) -> MessageId {
        self.checkpoint.or(self.separator).unwrap_or_default()
    }

    /// The material as the store would bring it: swapped messages without their originals.
    fn material(&self) -> Material {
        let current = self.said.last().map_or(0, |said| said.2);
        let tail = self.said.iter().filter(|said| said.0 > self.after()).map(|(id, role, turn, tokens)| {
            let large = *tokens > self.policy.large_message_threshold.get();
            let swapped = match self.policy.cooling {
                Cooling::Strict => large && cooling::is_cool_by_turns(*turn, current, &self.policy),
                Cooling::Stepped => self.version.as_ref().is_some_and(|version| version.swapped.contains(id)),
            };
            let ready = ReadySummary { text: format!("in short, {id}"), tokens: Tokens::new(tokens / 10) };
            let body = if swapped {
                let ReadySummary { text, tokens } = ready.clone();
                let original_bytes = format!("said, {id}").len() as u64;
                Body::Summary { text, tokens, original_bytes, outline: Vec::new() }
            } else {
                Body::Original(vec![Part::Text { text: format!("said, {id}") }])
            };
            let ready = (large && !swapped && self.policy.cooling == Cooling::Stepped).then_some(ready);
            TailMessage {
                id: *id,
                role: *role,
                turn: *turn,
                tokens: Tokens::new(*tokens),
                estimated: false,
                body,
                ready,
            }
        });
        let summary = |last: MessageId| CheckpointSummary {
            last,
            text: format!("up to {last}"),
            tokens: Tokens::new(20),
            saved: Tokens::new(100),
            made: Made::Stored,
        };
        Material {
            last_message_id: self.last(),
            last_role: self.said.last().map(|said| said.1),
            turn: current,
            encoding: Encoding::O200kBase,
            policy: self.policy,
            system_prompt: self.prompt.clone(),
            system_prompt_tokens: Tokens::new(3),
            separator: self.separator,
            checkpoint: self.checkpoint.map(summary),
            tail: tail.collect(),
            prefix: self.version.clone(),
            left_out: Vec::new(),
            idle_seconds: Some(self.idle),
            tokens_ratio: None,
            learnt_window: None,
        }
    }

    fn build(&mut self) -> Context {
        let all: u64 = self.said.iter().filter(|said| said.0 > self.after()).map(|said| said.3 + 4).sum();
        let budget = (self.share < 100).then(|| Tokens::new((all * self.share / 100).max(8_000)));
        let ask = Ask { budget, pressure: self.pressure, ..Ask::default() };
        let context = build(self.material(), ask).expect("8,000 tokens hold any message");
        if let Some(new) = &context.prefix.new {
            self.version = Some(new.version.clone());
        }
        context
    }
}

fn texts(context: &Context) -> Vec<(Role, String)> {
    context.messages.iter().map(|message| (message.role, plain_text(&message.parts))).collect()
}

/// The messages that stand for stored ones up to this one.
fn up_to(context: &Context, last: MessageId) -> impl Iterator<Item = &ContextMessage> {
    context.messages.iter().filter(move |message| message.message_ids.last().is_some_and(|id| *id <= last))
}

/// Whether one context is the beginning of another; its last message may have been joined by what follows.
fn begins(earlier: &[(Role, String)], later: &[(Role, String)]) -> bool {
    let Some(((role, last), before)) = earlier.split_last() else { return true };
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
        let mut talk = Talk::new(if stepped { Cooling::Stepped } else { Cooling::Strict });
        let mut before: Option<Context> = None;
        for step in steps {
            talk.take(step);
            let context = talk.build();
            let again = talk.build();
            prop_assert_eq!(&again.messages, &context.messages, "nothing changed in between");
            prop_assert_eq!((&again.prefix.new, again.prefix.hash), (&None, context.prefix.hash));
            if let Some(before) = before {
                let same = before.prefix.hash == context.prefix.hash;
                prop_assert_eq!(same, context.prefix.new.is_none(), "every break is a new version");
                if !same {
                    prop_assert!(context.prefix.broken.is_some(), "and says why");
                }
                for message in up_to(&context, context.prefix.stable_until) {
                    prop_assert!(before.messages.contains(message), "sent before: {:?}", message.message_ids);
                }
                if same {
                    prop_assert!(begins(&texts(&before), &texts(&context)));
                }
            }
            before = Some(context);
        }
    }

    #[test]
    fn what_is_swapped_is_cool_and_stays_swapped_until_the_boundary_passes_it(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut talk = Talk::new(Cooling::Stepped);
        let mut swapped: Vec<MessageId> = Vec::new();
        for step in steps {
            talk.take(step);
            let context = talk.build();
            let summaries = context.manifest.iter().filter(|line| line.representation == Representation::Summary);
            let now = talk.version.as_ref().map(|version| version.swapped.clone()).unwrap_or_default();
            prop_assert!(summaries.clone().all(|line| now.contains(&line.first)));
            prop_assert!(swapped.iter().filter(|id| **id > talk.after()).all(|id| now.contains(id)));
            for line in summaries {
                prop_assert!(line.cool, "message {} is hot", line.first);
            }
            swapped = now;
        }
    }
}
