//! Random conversations whose messages are withdrawn, rewound and restored. In every format their
//! contexts are complete, well paired, without anything that is withdrawn, and equal to the contexts
//! of a conversation that was only ever told what is left.

use anneal_testkit::{
    Built, Rendered, SeededRandom, TestApp, TestConversation, assistant, call, gate_or_nightly, pb,
    result, user,
};
use pb::{BoundaryKind, Format, Role, Segment};

use crate::contexts::{
    FORMATS,
    withdrawn::{WITHDRAWN, preview},
};

/// Steps of one conversation.
const STEPS: usize = 48;
/// Steps between two checks.
const STEPS_PER_CHECK: usize = 6;

/// A kind of message.
#[derive(Clone, Copy)]
enum Kind {
    User,
    Assistant,
    Call,
    Result,
}

impl Kind {
    /// A message of this kind with a unique word.
    fn message(self, call_id: &str, word: &str) -> pb::NewMessage {
        match self {
            Self::User => user(&format!("Question {word}: where are report and invoice?")),
            Self::Assistant => assistant(&format!("Answer {word}: in the warehouse in Osaka.")),
            Self::Call => call(call_id, &format!("{{\"find\":\"{word}\"}}")),
            Self::Result => result(call_id, &format!("Found {word} on shelf 12 of 48.")),
        }
    }
}

/// A message that was appended.
struct Told {
    message: pb::NewMessage,
    /// A word that no other message has.
    word: String,
    /// The messages of one exchange of a tool have the same number.
    exchange: usize,
    withdrawn: bool,
}

/// A conversation, and what it was told.
struct RandomChat<'a> {
    conversation: TestConversation<'a>,
    policy: pb::Policy,
    random: SeededRandom,
    /// Whether calls and results are withdrawn without each other.
    apart: bool,
    told: Vec<Told>,
    /// The separators, oldest first.
    separators: Vec<i64>,
    /// The newest context that was recorded.
    before: Option<Built>,
    /// Checkpoints that changes have made void.
    void_checkpoints: usize,
}

impl<'a> RandomChat<'a> {
    async fn new(app: &'a TestApp, policy: pb::Policy, seed: u64, apart: bool) -> Self {
        Self {
            conversation: app.conversation_with_policy(policy.clone()).await,
            policy,
            random: SeededRandom(seed),
            apart,
            told: Vec::new(),
            separators: Vec::new(),
            before: None,
            void_checkpoints: 0,
        }
    }

    async fn step(&mut self) {
        match self.random.below(100) {
            0..25 => self.append(&[Kind::User]).await,
            25..45 => self.append(&[Kind::Assistant]).await,
            45..58 => self.append(&[Kind::Call, Kind::Result]).await,
            58..64 => {
                self.append(&[Kind::Call, Kind::User, Kind::Result]).await;
            }
            64..67 => self.append(&[Kind::Call]).await,
            67..80 => self.withdraw().await,
            80..84 => self.rewind().await,
            84..93 => self.restore().await,
            93..96 => self.insert_separator().await,
            96..98 => self.delete_separator().await,
            _ => {
                self.conversation.app.run_jobs_until_idle().await;
            }
        }
    }

    async fn append(&mut self, kinds: &[Kind]) {
        let exchange = self.told.len();
        let call_id = format!("call{exchange}");
        let told: Vec<Told> = kinds
            .iter()
            .enumerate()
            .map(|(n, kind)| {
                let word = format!("word{:04}", exchange + n);
                Told {
                    message: kind.message(&call_id, &word),
                    word,
                    exchange,
                    withdrawn: false,
                }
            })
            .collect();
        let messages = told.iter().map(|told| told.message.clone()).collect();
        self.conversation.append_all(messages).await;
        self.told.extend(told);
    }

    /// Up to three ids.
    fn random_ids(&mut self) -> Vec<i64> {
        let count = if self.told.is_empty() {
            0
        } else {
            1 + self.random.index(3)
        };
        (0..count)
            .map(|_| 1 + self.random.index(self.told.len()) as i64)
            .collect()
    }

    async fn withdraw(&mut self) {
        let ids = self.random_ids();
        if ids.is_empty() {
            return;
        }
        let ask = self.conversation.withdraw(&ids);
        let change = if self.apart {
            ask.keep_tool_pairs_apart().await
        } else {
            ask.await
        };
        self.note(&change, true);
        assert!(ids.iter().all(|id| self.told[*id as usize - 1].withdrawn));
    }

    /// Withdraws up to four messages at the end.
    async fn rewind(&mut self) {
        let after = self.told.len().saturating_sub(self.random.index(5));
        let ask = self.conversation.rewind(after as i64);
        let change = if self.apart {
            ask.keep_tool_pairs_apart().await
        } else {
            ask.await
        };
        self.note(&change, true);
        assert!(self.told[after..].iter().all(|told| told.withdrawn));
    }

    async fn restore(&mut self) {
        let ids = self.random_ids();
        let (Some(first), Some(last)) = (ids.iter().min(), ids.iter().max()) else {
            return;
        };
        let ask = if self.random.below(2) == 0 {
            self.conversation.restore_range(*first, *last)
        } else {
            self.conversation.restore(&ids)
        };
        let change = if self.apart {
            ask.keep_tool_pairs_apart().await
        } else {
            ask.await
        };
        self.note(&change, false);
        assert!(ids.iter().all(|id| !self.told[*id as usize - 1].withdrawn));
    }

    /// Notes which messages a change has withdrawn or restored.
    fn note(&mut self, change: &pb::MessageChange, withdrawn: bool) {
        self.void_checkpoints += change.void_checkpoints.len();
        for run in &change.changed {
            for id in run.first_message_id..=run.last_message_id {
                let told = &mut self.told[id as usize - 1];
                assert_ne!(told.withdrawn, withdrawn, "message {id} has changed");
                told.withdrawn = withdrawn;
            }
        }
    }

    async fn insert_separator(&mut self) {
        if self.told.is_empty() || self.separators.last() == Some(&(self.told.len() as i64)) {
            return;
        }
        // The newest call may have no result.
        let ask = pb::InsertSeparatorRequest {
            conversation_id: self.conversation.id.clone(),
            part_tool_pairs: true,
            ..Default::default()
        };
        let mut client = self.conversation.app.messages();
        let inserted = client.insert_separator(ask).await.expect("inserts");
        self.separators.push(inserted.into_inner().after_message_id);
    }

    async fn delete_separator(&mut self) {
        if let Some(separator) = self.separators.pop() {
            self.conversation.delete_separator(separator).await;
        }
    }

    /// Checks the contexts, the usage and the stored rows. Returns the kind of the boundary.
    async fn check(&mut self) -> BoundaryKind {
        self.conversation.app.run_jobs_until_idle().await;
        let built = self.conversation.context().await;
        if let Some(before) = self.before.replace(built.clone())
            && before.0.prefix_hash == built.0.prefix_hash
        {
            let (before, now) = (before.texts_by_role(), built.texts_by_role());
            assert!(
                is_beginning_of(&before, &now),
                "the hash is the same: {before:#?}\n{now:#?}"
            );
        }
        if !self.apart {
            self.assert_exchanges_are_whole();
        }
        let wanted = self.tell_what_is_left(built.0.boundary_message_id).await;
        for format in FORMATS {
            self.check_format(format, &wanted).await;
        }
        if built.0.boundary_kind() != BoundaryKind::Checkpoint {
            let (usage, wanted) = (self.conversation.usage().await, wanted.usage().await);
            assert_eq!(usage.segments, wanted.segments);
            assert_eq!(usage.tail_messages, wanted.tail_messages);
        }
        self.conversation.verify().await;
        built.0.boundary_kind()
    }

    /// Asserts that the messages of each exchange are withdrawn together, except its user message.
    fn assert_exchanges_are_whole(&self) {
        for told in &self.told {
            let first = &self.told[told.exchange];
            assert!(
                told.message.role() == Role::User || told.withdrawn == first.withdrawn,
                "{} and {} are one exchange",
                first.word,
                told.word
            );
        }
    }

    /// Creates a conversation that is told the messages after the boundary that are not withdrawn.
    async fn tell_what_is_left(&self, boundary: i64) -> TestConversation<'a> {
        let policy = pb::Policy {
            max_message_count: Some(0),
            ..self.policy.clone()
        };
        let app = self.conversation.app;
        let wanted = app.conversation_with_policy(policy).await;
        let left = self.told[boundary as usize..]
            .iter()
            .filter(|told| !told.withdrawn);
        let left: Vec<pb::NewMessage> = left.map(|told| told.message.clone()).collect();
        for messages in left.chunks(100) {
            wanted.append_all(messages.to_vec()).await;
        }
        app.run_jobs_until_idle().await;
        wanted
    }

    async fn check_format(&self, format: Format, wanted: &TestConversation<'_>) {
        let built = preview(&self.conversation, format).await;
        let wanted = preview(wanted, format).await;
        built.assert_covers(self.told.len() as i64);
        let refusals = Rendered::read(&built, format)
            .expect("the request can be read")
            .refusals();
        assert!(refusals.is_empty(), "{refusals:#?}");
        built.assert_tools_paired();
        let sent = built.0.rendered.clone().unwrap_or_else(|| built.text());
        let boundary = built.0.boundary_message_id;
        for (id, told) in (1..).zip(&self.told) {
            let (word, is_sent) = (&told.word, sent.contains(&told.word));
            if told.withdrawn {
                assert!(!is_sent, "{word} is withdrawn, but in {sent}");
                assert!(id <= boundary || built.representation(id) == WITHDRAWN);
            } else if id > boundary && !self.apart {
                assert!(is_sent, "{word} is not in {sent}");
            }
        }
        assert_eq!(tail(&built), tail(&wanted));
        // A summary shares a provider's message with what follows it.
        if built.0.boundary_kind() != BoundaryKind::Checkpoint {
            assert_eq!(built.0.rendered, wanted.0.rendered);
            assert_eq!(built.0.total_tokens, wanted.0.total_tokens);
            let kinds = |built: &Built| -> Vec<_> {
                let repairs = built.repairs().into_iter();
                repairs.map(|(kind, _)| kind).collect()
            };
            assert_eq!(kinds(&built), kinds(&wanted));
        }
    }
}

/// Role, parts and tokens of each message of the tail. Ids are left out.
fn tail(built: &Built) -> Vec<(Role, &[pb::Part], u64)> {
    let messages = built.0.messages.iter();
    messages
        .filter(|message| message.segment() == Segment::Tail)
        .map(|message| (message.role(), message.parts.as_slice(), message.tokens))
        .collect()
}

/// Whether one context is the beginning of another. More text may have been joined to its last
/// message there.
fn is_beginning_of(earlier: &[(Role, String)], later: &[(Role, String)]) -> bool {
    let Some(((role, last), before)) = earlier.split_last() else {
        return true;
    };
    later.len() >= earlier.len()
        && later[..before.len()] == *before
        && later[before.len()].0 == *role
        && later[before.len()].1.starts_with(last.as_str())
}

#[tokio::test]
async fn contexts_are_those_of_a_conversation_that_was_only_told_what_is_left() {
    let app = TestApp::start().await;
    let without_checkpoints = pb::Policy {
        max_message_count: Some(0),
        ..Default::default()
    };
    let with_checkpoints = pb::Policy {
        max_message_count: Some(8),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let (mut void_checkpoints, mut boundaries) = (0, Vec::new());
    for seed in 0..gate_or_nightly(4, 60) {
        let policy = if seed % 2 == 0 {
            &without_checkpoints
        } else {
            &with_checkpoints
        };
        let mut chat = RandomChat::new(&app, policy.clone(), seed, seed % 4 > 1).await;
        for step in 1..=STEPS {
            chat.step().await;
            if step % STEPS_PER_CHECK == 0 {
                boundaries.push(chat.check().await);
            }
        }
        void_checkpoints += chat.void_checkpoints;
    }
    assert!(void_checkpoints > 0, "some changes are before the boundary");
    for kind in [
        BoundaryKind::Unspecified,
        BoundaryKind::Separator,
        BoundaryKind::Checkpoint,
    ] {
        assert!(boundaries.contains(&kind), "{kind:?} in {boundaries:?}");
    }
}
