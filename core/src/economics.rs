//! Computes what a conversation's model calls cost with a provider's prefix cache, and what they
//! would cost under another variant of cooling. Each assistant message counts as one call. A replay
//! needs sizes only, no content.

use crate::{
    cooling::{self, Candidate, SwapCost},
    message::{MessageId, Role},
    policy::Policy,
    tokens::{FRAMING_PER_MESSAGE, Tokens},
};

/// One stored message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageRecord {
    /// Its id.
    pub id: MessageId,
    /// Author of the message.
    pub role: Role,
    /// Its turn.
    pub turn: i32,
    /// Its tokens.
    pub tokens: Tokens,
    /// Tokens of its summary; None if it has none.
    pub summary: Option<Tokens>,
    /// Time of storage, in microseconds since any fixed time.
    pub at_us: i64,
}

/// A change of the boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundaryRecord {
    /// Time of the change, on the same clock as the messages.
    pub at_us: i64,
    /// Contexts start after this message from then on.
    pub after: MessageId,
    /// Tokens of the checkpoint's summary; None for a separator.
    pub summary: Option<Tokens>,
}

/// The input of a replay.
#[derive(Debug, Clone)]
pub struct History {
    /// The messages, in id order.
    pub messages: Vec<MessageRecord>,
    /// The changes of the boundary, in order of time.
    pub boundaries: Vec<BoundaryRecord>,
    /// Tokens of the system prompt.
    pub system_prompt: Tokens,
}

/// How large messages cool in a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoolingVariant {
    /// Every cool large message is swapped at once.
    Strict,
    /// Cool large messages are swapped in steps.
    Stepped,
    /// No cooling and no checkpoints: every call sends the whole history since the last separator.
    None,
}

/// The cost of all calls of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ReplayCost {
    /// Number of model calls.
    pub calls: u64,
    /// Tokens sent.
    pub sent: Tokens,
    /// Tokens sent that a prefix cache would have held.
    pub cached: Tokens,
    /// Price of the input. The unit is the price of one input token without a cache.
    pub units: f64,
    /// Calls whose context did not begin with the whole context of the previous call.
    pub breaks: u64,
}

/// Typical tokens that a swapped message takes in addition to its summary: the mark before the
/// summary, and the call or result around it. (`context::swapped_message` has the exact number.)
const MARK_TOKENS: Tokens = Tokens::new(22);

/// The size assumed for a summary that does not exist: a tenth of the message, at most 500 tokens.
fn assumed_summary_tokens(tokens: Tokens) -> Tokens {
    Tokens::new((tokens.get() / 10).min(500))
}

/// Tokens with the framing of a message; zero for an absent message.
fn framed(tokens: Tokens) -> Tokens {
    if tokens == Tokens::ZERO {
        tokens
    } else {
        tokens + FRAMING_PER_MESSAGE
    }
}

/// Replays a history with the thresholds and prices of a policy.
pub fn replay(history: &History, policy: &Policy, variant: CoolingVariant) -> ReplayCost {
    let mut replay = Replay::new(history, policy, variant);
    for call in 0..history.messages.len() {
        if history.messages[call].role == Role::Assistant {
            replay.replay_call(call);
        }
    }
    replay.cost
}

struct Replay<'a> {
    history: &'a History,
    policy: Policy,
    variant: CoolingVariant,
    /// For each message: number of assistant messages before it.
    calls_before: Vec<u64>,
    /// For each message: tokens as sent, framing included.
    sizes: Vec<Tokens>,
    /// Indexes of the tail's large messages that are still sent as their originals.
    pending: Vec<usize>,
    /// Index of the first message of the tail.
    start: usize,
    /// Tokens of the checkpoint's summary.
    summary: Tokens,
    /// Number of boundary changes already applied or skipped.
    boundaries_seen: usize,
    /// Number of messages before the one that the last replayed call wrote.
    messages_seen: usize,
    /// Index of the message that the last replayed call wrote; None before the first call.
    last_call: Option<usize>,
    /// Tokens of the tail as the last call sent it.
    tail_sent: Tokens,
    cost: ReplayCost,
}

impl<'a> Replay<'a> {
    fn new(history: &'a History, policy: &Policy, variant: CoolingVariant) -> Self {
        let mut calls = 0;
        let calls_before = history.messages.iter().map(|message| {
            let before = calls;
            calls += u64::from(message.role == Role::Assistant);
            before
        });
        let cooling = match variant {
            CoolingVariant::Stepped => crate::policy::Cooling::Stepped,
            CoolingVariant::Strict | CoolingVariant::None => crate::policy::Cooling::Strict,
        };
        Self {
            history,
            policy: Policy { cooling, ..*policy },
            variant,
            calls_before: calls_before.collect(),
            sizes: history
                .messages
                .iter()
                .map(|message| message.tokens + FRAMING_PER_MESSAGE)
                .collect(),
            pending: Vec::new(),
            start: 0,
            summary: Tokens::ZERO,
            boundaries_seen: 0,
            messages_seen: 0,
            last_call: None,
            tail_sent: Tokens::ZERO,
            cost: ReplayCost::default(),
        }
    }

    /// Replays the model call that wrote message `call`.
    fn replay_call(&mut self, call: usize) {
        let messages = &self.history.messages;
        let added = self.messages_seen..call;
        let large = |index: &usize| cooling::is_large(messages[*index].tokens, &self.policy);
        self.pending.extend(added.clone().filter(large));
        let added_tokens: Tokens = self.sizes[added].iter().copied().sum();
        self.messages_seen = call;
        let idle_us = self
            .last_call
            .map_or(0, |last| messages[call].at_us - messages[last].at_us);
        let cold = idle_us > i64::from(self.policy.cache_ttl_seconds) * 1_000_000;
        let boundary_moved = self.move_boundary(call);
        let tail_sent_before = self.tail_sent;
        let changed_at = self.swap(call, boundary_moved || cold || self.last_call.is_none());
        self.tail_sent = if boundary_moved || changed_at.is_some() {
            self.tail_tokens(call)
        } else {
            tail_sent_before + added_tokens
        };
        let system_prompt = framed(self.history.system_prompt);
        let head = system_prompt + framed(self.summary);
        let cached = match (self.last_call, boundary_moved, changed_at) {
            _ if cold => Tokens::ZERO,
            (None, ..) => Tokens::ZERO,
            (_, true, _) => system_prompt,
            // The last call sent the messages before its own. The cache still holds those of them
            // that come before the first changed one.
            (Some(last), false, Some(at)) => {
                head + self.sizes[self.start..at.min(last).max(self.start)]
                    .iter()
                    .copied()
                    .sum()
            }
            (Some(_), false, None) => head + tail_sent_before,
        };
        let changed = boundary_moved || changed_at.is_some();
        self.cost.breaks += u64::from(self.last_call.is_some() && changed);
        self.charge(head + self.tail_sent, cached);
        self.last_call = Some(call);
    }

    /// Tokens of the tail that this call sends.
    fn tail_tokens(&self, call: usize) -> Tokens {
        self.sizes[self.start.min(call)..call].iter().copied().sum()
    }

    /// Applies the boundary changes before this call. Returns whether it applied one. A boundary at
    /// or after this call's message was set after the call, even if its time is earlier: the stored
    /// times are those at which transactions began.
    fn move_boundary(&mut self, call: usize) -> bool {
        let message = self.history.messages[call];
        let is_before_call =
            |next: &&BoundaryRecord| next.at_us <= message.at_us && next.after < message.id;
        let mut moved = false;
        while let Some(next) = self
            .history
            .boundaries
            .get(self.boundaries_seen)
            .filter(is_before_call)
        {
            self.boundaries_seen += 1;
            if self.variant == CoolingVariant::None && next.summary.is_some() {
                continue;
            }
            self.start = self
                .history
                .messages
                .partition_point(|message| message.id <= next.after);
            self.summary = next.summary.unwrap_or_default();
            self.pending.retain(|index| *index >= self.start);
            moved = true;
        }
        moved
    }

    /// Swaps the messages that are due. Returns the index of the first message that is sent
    /// differently than in the previous call. `free`: the provider's cache holds nothing of the
    /// tail, so a swap costs nothing.
    fn swap(&mut self, call: usize, free: bool) -> Option<usize> {
        if self.variant == CoolingVariant::None || self.pending.is_empty() {
            return None;
        }
        let cool: Vec<(usize, u64)> = self
            .pending
            .iter()
            .filter_map(|index| Some((*index, self.calls_since_cool(*index, call)?)))
            .collect();
        let oldest = cool.first()?.0;
        if self.variant == CoolingVariant::Stepped && !self.step_is_due(&cool, free) {
            return None;
        }
        for (index, _) in &cool {
            self.sizes[*index] = self.summary_tokens(*index) + MARK_TOKENS + FRAMING_PER_MESSAGE;
        }
        self.pending
            .retain(|index| !cool.iter().any(|(swapped, _)| swapped == index));
        Some(oldest)
    }

    fn step_is_due(&self, cool: &[(usize, u64)], free: bool) -> bool {
        let saved = |index: usize| {
            self.history.messages[index]
                .tokens
                .less(self.summary_tokens(index))
        };
        let candidates: Vec<Candidate> = cool
            .iter()
            .map(|(index, calls)| Candidate {
                id: self.history.messages[*index].id,
                saved: saved(*index),
                calls: *calls,
            })
            .collect();
        let last = self.last_call.unwrap_or(0);
        let oldest = cool[0].0;
        let sent_after_oldest: Tokens = self.sizes[(oldest + 1).min(last)..last]
            .iter()
            .copied()
            .sum();
        let saved_after_oldest: Tokens = cool[1..]
            .iter()
            .filter(|(index, _)| *index < last)
            .map(|(index, _)| saved(*index))
            .sum();
        let cost = SwapCost {
            rewritten: sent_after_oldest.less(saved_after_oldest),
            prices: self.policy.prices,
            free,
        };
        cooling::step_is_due(&candidates, &cost)
    }

    fn summary_tokens(&self, index: usize) -> Tokens {
        let message = &self.history.messages[index];
        message
            .summary
            .unwrap_or_else(|| assumed_summary_tokens(message.tokens))
    }

    /// Model calls between the time a message became cool and call `call`; None while it is hot.
    fn calls_since_cool(&self, index: usize, call: usize) -> Option<u64> {
        let messages = &self.history.messages;
        let calls = self.calls_before[call];
        let by_turns =
            cooling::is_cool_by_turns(messages[index].turn, messages[call].turn, &self.policy)
                .then(|| {
                    let last_hot_turn =
                        i64::from(messages[index].turn) + i64::from(self.policy.hot_zone_radius);
                    calls
                        - self.calls_before[messages
                            .partition_point(|later| i64::from(later.turn) <= last_hot_turn)
                            .min(call)]
                });
        let calls_after =
            calls - self.calls_before[index] - u64::from(messages[index].role == Role::Assistant);
        let by_calls = (self.variant == CoolingVariant::Stepped && self.policy.hot_zone_calls > 0)
            .then(|| calls_after.checked_sub(u64::from(self.policy.hot_zone_calls) + 1))
            .flatten();
        // The larger count began earlier. `None` is less than any count.
        by_turns.max(by_calls)
    }

    fn charge(&mut self, sent: Tokens, cached: Tokens) {
        let cached = cached.min(sent);
        let price = |tokens: Tokens, thousandths: u32| {
            tokens.get() as f64 * f64::from(thousandths) / 1_000.0
        };
        self.cost.calls += 1;
        self.cost.sent += sent;
        self.cost.cached += cached;
        self.cost.units += price(cached, self.policy.prices.cached)
            + price(sent.less(cached), self.policy.prices.write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{PolicyOverrides, Profile, SessionSettings};

    fn agents_policy() -> Policy {
        let overrides = PolicyOverrides {
            profile: Some(Profile::Agents),
            ..PolicyOverrides::default()
        };
        SessionSettings::default().policy(&overrides, None)
    }

    fn message(id: i64, role: Role, turn: i32, tokens: u64) -> MessageRecord {
        MessageRecord {
            id: MessageId(id),
            role,
            turn,
            tokens: Tokens::new(tokens),
            summary: None,
            at_us: id,
        }
    }

    /// One long turn: a question, then calls with results of `size` tokens.
    fn tool_run(calls: i64, size: u64) -> History {
        let mut all = vec![message(1, Role::User, 1, 100)];
        for n in 0..calls {
            all.push(message(2 * n + 2, Role::Assistant, 1, 50));
            all.push(message(2 * n + 3, Role::Tool, 1, size));
        }
        History {
            messages: all,
            boundaries: Vec::new(),
            system_prompt: Tokens::new(1_000),
        }
    }

    #[test]
    fn without_cooling_every_call_finds_the_previous_context_in_the_cache() {
        let cost = replay(&tool_run(3, 1_000), &agents_policy(), CoolingVariant::None);
        // System prompt, question and the framing of both; then a call and a result for each step.
        let contexts = [1_108, 1_108 + 1_058, 1_108 + 2 * 1_058];
        assert_eq!((cost.calls, cost.breaks), (3, 0));
        assert_eq!(cost.sent.get(), contexts.iter().sum::<u64>());
        assert_eq!(cost.cached.get(), contexts[0] + contexts[1]);
        let written = cost.sent.less(cost.cached);
        let units = 0.1 * cost.cached.get() as f64 + 1.25 * written.get() as f64;
        assert!((cost.units - units).abs() < 1e-6, "{} {units}", cost.units);
    }

    #[test]
    fn in_long_tool_runs_stepped_cooling_costs_less_than_none_and_seldom_breaks_the_cache() {
        let history = tool_run(100, 4_000);
        let none = replay(&history, &agents_policy(), CoolingVariant::None);
        let stepped = replay(&history, &agents_policy(), CoolingVariant::Stepped);
        assert!(
            stepped.units < 0.7 * none.units,
            "{} of {}",
            stepped.units,
            none.units
        );
        assert!((3..30).contains(&stepped.breaks), "{}", stepped.breaks);
        let strict = replay(&history, &agents_policy(), CoolingVariant::Strict);
        assert_eq!(
            strict, none,
            "a tool run stays in one turn, so nothing is swapped"
        );
    }

    #[test]
    fn strict_cooling_breaks_the_cache_at_every_turn_that_cools_a_message() {
        let mut all = Vec::new();
        for turn in 1..=20_i32 {
            let id = 2 * i64::from(turn);
            all.extend([
                message(id - 1, Role::User, turn, 3_000),
                message(id, Role::Assistant, turn, 10),
            ]);
        }
        let history = History {
            messages: all,
            boundaries: Vec::new(),
            system_prompt: Tokens::ZERO,
        };
        let strict = replay(&history, &agents_policy(), CoolingVariant::Strict);
        assert_eq!(strict.breaks, 14, "turns 7 to 20 each cool a message");
    }

    #[test]
    fn a_checkpoint_breaks_the_cache_once_and_shortens_what_is_sent() {
        let mut history = tool_run(4, 1_000);
        let whole = replay(&history, &agents_policy(), CoolingVariant::None);
        history.boundaries.push(BoundaryRecord {
            at_us: 7,
            after: MessageId(5),
            summary: Some(Tokens::new(200)),
        });
        let stepped = replay(&history, &agents_policy(), CoolingVariant::Stepped);
        assert_eq!(stepped.breaks, 1);
        // Only the last call, message 8, comes after the boundary at message 5. It sends the
        // summary in place of the question and two calls with their results.
        assert_eq!(whole.sent.get() - stepped.sent.get(), 104 + 2 * 1_058 - 204);
        assert_eq!(
            replay(&history, &agents_policy(), CoolingVariant::None).sent,
            whole.sent,
            "without cooling, checkpoints are ignored"
        );
        history.boundaries[0].summary = None;
        assert_eq!(
            replay(&history, &agents_policy(), CoolingVariant::None).breaks,
            1,
            "without cooling, separators still apply"
        );
    }

    #[test]
    fn the_assumed_overhead_of_a_swapped_message_is_close_to_that_of_a_result() {
        let result = |n: i64, original_bytes| crate::context::SwappedMessage {
            id: MessageId(n),
            role: Role::Tool,
            original_bytes,
            outline: Vec::new(),
        };
        for swapped in [
            result(7, 5_000),
            result(512, 40_000),
            result(9_999, 1_000_000),
        ] {
            let overhead = swapped
                .overhead_tokens(crate::tokens::Encoding::O200kBase)
                .get();
            assert!(overhead.abs_diff(MARK_TOKENS.get()) <= 3, "{overhead}");
        }
    }

    #[test]
    fn a_boundary_applies_after_its_message_even_with_an_earlier_time() {
        let mut history = tool_run(4, 1_000);
        history.boundaries.push(BoundaryRecord {
            at_us: 1,
            after: MessageId(9),
            summary: None,
        });
        let cost = replay(&history, &agents_policy(), CoolingVariant::Stepped);
        assert_eq!(
            (cost.calls, cost.breaks),
            (4, 0),
            "no call follows the boundary"
        );
    }

    #[test]
    fn a_call_after_the_cache_expired_finds_nothing_cached_and_swaps_at_once() {
        let mut history = tool_run(14, 4_000);
        let warm = replay(&history, &agents_policy(), CoolingVariant::Stepped);
        // Every message from the thirteenth call on is 301 s late. The cache lives for 300 s.
        for message in &mut history.messages[25..] {
            message.at_us += 301_000_000;
        }
        let cold = replay(&history, &agents_policy(), CoolingVariant::Stepped);
        assert!(cold.cached < warm.cached && cold.sent < warm.sent && cold.units > warm.units);
    }
}
