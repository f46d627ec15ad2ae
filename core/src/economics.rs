//! What a conversation's model calls have cost, and would have cost under another way of cooling: a replay of its rows against
//! a provider's prefix cache. One call for each assistant message; no content is needed.

use crate::{
    cooling::{self, Candidate, Stepped},
    message::{MessageId, Role},
    policy::Policy,
    tokens::{FRAMING_PER_MESSAGE, Tokens},
};

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// Its id.
    pub id: MessageId,
    /// Who speaks.
    pub role: Role,
    /// Its turn.
    pub turn: i32,
    /// Its tokens.
    pub tokens: Tokens,
    /// Tokens of its summary, where it has one.
    pub summary: Option<Tokens>,
    /// When it was stored, in microseconds since some start.
    pub at_us: i64,
}

/// A boundary that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// When, on the clock of the messages.
    pub at_us: i64,
    /// Contexts start after this message from then on.
    pub after: MessageId,
    /// Tokens of the checkpoint's summary; None for a separator.
    pub summary: Option<Tokens>,
}

/// What to replay.
#[derive(Debug, Clone)]
pub struct History {
    /// The messages, in id order.
    pub said: Vec<Said>,
    /// The boundaries, in the order in which they came.
    pub moved: Vec<Moved>,
    /// Tokens of the system prompt.
    pub system_prompt: Tokens,
}

/// How large messages cool in a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Every cool message is swapped at once.
    Strict,
    /// In steps.
    Stepped,
    /// Not at all, and without checkpoints: the whole history since the last separator.
    None,
}

/// What all calls of a replay sent.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Bill {
    /// Calls.
    pub calls: u64,
    /// Tokens sent.
    pub sent: Tokens,
    /// Of these: what a prefix cache would have held.
    pub cached: Tokens,
    /// Input price in units of one plain input token.
    pub units: f64,
    /// Times that the beginning was not what the call before had sent.
    pub breaks: u64,
}

/// About what is sent around a summary that stands for one message: the mark that says so, and its call or result.
const MARK: Tokens = Tokens::new(22);

/// A summary that was never made is taken to be this long: at most 500 tokens, at most a tenth.
fn assumed_summary(tokens: Tokens) -> Tokens {
    Tokens::new((tokens.get() / 10).min(500))
}

/// What comes before the tail is a message too, where there is any.
fn framed(tokens: Tokens) -> Tokens {
    if tokens == Tokens::ZERO { tokens } else { tokens + FRAMING_PER_MESSAGE }
}

/// Replays a history under a policy's thresholds and prices.
pub fn replay(history: &History, policy: &Policy, way: Way) -> Bill {
    let mut replay = Replay::new(history, policy, way);
    for call in 0..history.said.len() {
        if history.said[call].role == Role::Assistant {
            replay.call(call);
        }
    }
    replay.bill
}

struct Replay<'a> {
    history: &'a History,
    policy: Policy,
    way: Way,
    /// For each message: assistant messages before it.
    calls_before: Vec<u64>,
    /// For each message: tokens as sent, framing included.
    sizes: Vec<Tokens>,
    /// Large messages of the tail that are still sent as they were said.
    pending: Vec<usize>,
    /// First message of the tail.
    start: usize,
    /// Tokens of the checkpoint's summary.
    summary: Tokens,
    /// Boundaries seen.
    moved: usize,
    /// Messages seen.
    seen: usize,
    last_call: Option<usize>,
    /// Tokens of the tail as the last call sent it.
    sent: Tokens,
    bill: Bill,
}

impl<'a> Replay<'a> {
    fn new(history: &'a History, policy: &Policy, way: Way) -> Self {
        let mut calls = 0;
        let calls_before = history.said.iter().map(|said| {
            let before = calls;
            calls += u64::from(said.role == Role::Assistant);
            before
        });
        let cooling = match way {
            Way::Stepped => crate::policy::Cooling::Stepped,
            Way::Strict | Way::None => crate::policy::Cooling::Strict,
        };
        Self {
            history,
            policy: Policy { cooling, ..*policy },
            way,
            calls_before: calls_before.collect(),
            sizes: history.said.iter().map(|said| said.tokens + FRAMING_PER_MESSAGE).collect(),
            pending: Vec::new(),
            start: 0,
            summary: Tokens::ZERO,
            moved: 0,
            seen: 0,
            last_call: None,
            sent: Tokens::ZERO,
            bill: Bill::default(),
        }
    }

    /// The model call that wrote message `call`.
    fn call(&mut self, call: usize) {
        let said = &self.history.said;
        let fresh = self.seen..call;
        let large = |index: &usize| cooling::is_large(said[*index].tokens, &self.policy);
        self.pending.extend(fresh.clone().filter(large));
        let added: Tokens = self.sizes[fresh].iter().copied().sum();
        self.seen = call;
        let idle_us = self.last_call.map_or(0, |last| said[call].at_us - said[last].at_us);
        let cold = idle_us > i64::from(self.policy.cache_ttl_seconds) * 1_000_000;
        let moved = self.move_boundary(call);
        let sent_before = self.sent;
        let broken = self.swap(call, moved || cold || self.last_call.is_none());
        self.sent = if moved || broken.is_some() { self.tail(call) } else { sent_before + added };
        let system_prompt = framed(self.history.system_prompt);
        let head = system_prompt + framed(self.summary);
        let cached = match (self.last_call, moved, broken) {
            _ if cold => Tokens::ZERO,
            (None, ..) => Tokens::ZERO,
            (_, true, _) => system_prompt,
            (Some(last), false, Some(at)) => {
                head + self.sizes[self.start..at.min(last).max(self.start)].iter().copied().sum()
            }
            (Some(_), false, None) => head + sent_before,
        };
        self.bill.breaks += u64::from(self.last_call.is_some() && (moved || broken.is_some()));
        self.charge(head + self.sent, cached);
        self.last_call = Some(call);
    }

    fn tail(&self, call: usize) -> Tokens {
        self.sizes[self.start.min(call)..call].iter().copied().sum()
    }

    /// Takes in the boundaries that came before this call. True when one holds. Times are those at which transactions began:
    /// a boundary behind the call was set after it, whatever its time says.
    fn move_boundary(&mut self, call: usize) -> bool {
        let said = self.history.said[call];
        let came = |next: &&Moved| next.at_us <= said.at_us && next.after < said.id;
        let mut moved = false;
        while let Some(next) = self.history.moved.get(self.moved).filter(came) {
            self.moved += 1;
            if self.way == Way::None && next.summary.is_some() {
                continue;
            }
            self.start = self.history.said.partition_point(|said| said.id <= next.after);
            self.summary = next.summary.unwrap_or_default();
            self.pending.retain(|index| *index >= self.start);
            moved = true;
        }
        moved
    }

    /// Swaps what is to be swapped. Returns the first message that is sent otherwise than before.
    fn swap(&mut self, call: usize, free: bool) -> Option<usize> {
        if self.way == Way::None || self.pending.is_empty() {
            return None;
        }
        let cool: Vec<(usize, u64)> =
            self.pending.iter().filter_map(|index| Some((*index, self.calls_since_cool(*index, call)?))).collect();
        let oldest = cool.first()?.0;
        if self.way == Way::Stepped && !self.steps(&cool, free) {
            return None;
        }
        for (index, _) in &cool {
            self.sizes[*index] = self.summary_of(*index) + MARK + FRAMING_PER_MESSAGE;
        }
        self.pending.retain(|index| !cool.iter().any(|(swapped, _)| swapped == index));
        Some(oldest)
    }

    fn steps(&self, cool: &[(usize, u64)], free: bool) -> bool {
        let saved = |index: usize| self.history.said[index].tokens.less(self.summary_of(index));
        let candidates: Vec<Candidate> = cool
            .iter()
            .map(|(index, calls)| Candidate { id: self.history.said[*index].id, saved: saved(*index), calls: *calls })
            .collect();
        let last = self.last_call.unwrap_or(0);
        let oldest = cool[0].0;
        let behind: Tokens = self.sizes[(oldest + 1).min(last)..last].iter().copied().sum();
        let saved_behind: Tokens =
            cool[1..].iter().filter(|(index, _)| *index < last).map(|(index, _)| saved(*index)).sum();
        let stepped = Stepped { rewritten: behind.less(saved_behind), prices: self.policy.prices, free };
        cooling::decide(&candidates, &stepped)
    }

    fn summary_of(&self, index: usize) -> Tokens {
        let said = &self.history.said[index];
        said.summary.unwrap_or_else(|| assumed_summary(said.tokens))
    }

    /// Model calls since a message became cool, before call `call`; None while it is hot.
    fn calls_since_cool(&self, index: usize, call: usize) -> Option<u64> {
        let said = &self.history.said;
        let calls = self.calls_before[call];
        let by_turns = cooling::is_cool_by_turns(said[index].turn, said[call].turn, &self.policy).then(|| {
            let cool_at = i64::from(said[index].turn) + i64::from(self.policy.hot_zone_radius);
            calls - self.calls_before[said.partition_point(|later| i64::from(later.turn) <= cool_at).min(call)]
        });
        let after = calls - self.calls_before[index] - u64::from(said[index].role == Role::Assistant);
        let by_calls = (self.way == Way::Stepped && self.policy.hot_zone_calls > 0)
            .then(|| after.checked_sub(u64::from(self.policy.hot_zone_calls) + 1))
            .flatten();
        by_turns.max(by_calls)
    }

    fn charge(&mut self, sent: Tokens, cached: Tokens) {
        let cached = cached.min(sent);
        let price = |tokens: Tokens, thousandths: u32| tokens.get() as f64 * f64::from(thousandths) / 1_000.0;
        self.bill.calls += 1;
        self.bill.sent += sent;
        self.bill.cached += cached;
        self.bill.units +=
            price(cached, self.policy.prices.cached) + price(sent.less(cached), self.policy.prices.write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{PolicyOverrides, Profile, Session};

    fn agents() -> Policy {
        let overrides = PolicyOverrides { profile: Some(Profile::Agents), ..PolicyOverrides::default() };
        Session::default().policy(&overrides, None)
    }

    fn said(id: i64, role: Role, turn: i32, tokens: u64) -> Said {
        Said { id: MessageId(id), role, turn, tokens: Tokens::new(tokens), summary: None, at_us: id }
    }

    /// One long turn: question, then calls with results of this size.
    fn tool_run(calls: i64, size: u64) -> History {
        let mut all = vec![said(1, Role::User, 1, 100)];
        for n in 0..calls {
            all.push(said(2 * n + 2, Role::Assistant, 1, 50));
            all.push(said(2 * n + 3, Role::Tool, 1, size));
        }
        History { said: all, moved: Vec::new(), system_prompt: Tokens::new(1_000) }
    }

    #[test]
    fn without_cooling_every_call_finds_the_last_one_in_the_cache() {
        let bill = replay(&tool_run(3, 1_000), &agents(), Way::None);
        let contexts = [1_108, 1_108 + 1_058, 1_108 + 2 * 1_058];
        assert_eq!((bill.calls, bill.breaks), (3, 0));
        assert_eq!(bill.sent.get(), contexts.iter().sum::<u64>());
        assert_eq!(bill.cached.get(), contexts[0] + contexts[1]);
        let units = 0.1 * (contexts[0] + contexts[1]) as f64 + 1.25 * contexts[2] as f64;
        assert!((bill.units - units).abs() < 1e-6, "{} {units}", bill.units);
    }

    #[test]
    fn steps_are_cheaper_than_nothing_in_long_tool_runs_and_break_seldom() {
        let history = tool_run(100, 4_000);
        let none = replay(&history, &agents(), Way::None);
        let stepped = replay(&history, &agents(), Way::Stepped);
        assert!(stepped.units < 0.7 * none.units, "{} of {}", stepped.units, none.units);
        assert!((3..30).contains(&stepped.breaks), "{}", stepped.breaks);
        let strict = replay(&history, &agents(), Way::Strict);
        assert_eq!(strict, none, "turns stand still: nothing is swapped");
    }

    #[test]
    fn strict_cooling_breaks_at_every_turn_that_cools_a_message() {
        let mut all = Vec::new();
        for turn in 1..=20_i32 {
            let id = 2 * i64::from(turn);
            all.extend([said(id - 1, Role::User, turn, 3_000), said(id, Role::Assistant, turn, 10)]);
        }
        let history = History { said: all, moved: Vec::new(), system_prompt: Tokens::ZERO };
        let strict = replay(&history, &agents(), Way::Strict);
        assert_eq!(strict.breaks, 14, "turns 7 to 20");
    }

    #[test]
    fn a_checkpoint_is_a_break_and_shortens_what_is_sent() {
        let mut history = tool_run(4, 1_000);
        let whole = replay(&history, &agents(), Way::None);
        history.moved.push(Moved { at_us: 7, after: MessageId(5), summary: Some(Tokens::new(200)) });
        let stepped = replay(&history, &agents(), Way::Stepped);
        assert_eq!(stepped.breaks, 1);
        assert_eq!(whole.sent.get() - stepped.sent.get(), 104 + 2 * 1_058 - 204);
        assert_eq!(replay(&history, &agents(), Way::None).sent, whole.sent, "the whole history knows no checkpoint");
        history.moved[0].summary = None;
        assert_eq!(replay(&history, &agents(), Way::None).breaks, 1, "a separator is the user's own");
    }

    #[test]
    fn a_mark_is_about_as_long_as_what_is_sent_around_the_summary_of_a_result() {
        let result = |n: i64, original_bytes| crate::context::Swapped {
            id: MessageId(n),
            role: Role::Tool,
            original_bytes,
            outline: Vec::new(),
        };
        for swapped in [result(7, 5_000), result(512, 40_000), result(9_999, 1_000_000)] {
            let around = swapped.tokens_around(crate::tokens::Encoding::O200kBase).get();
            assert!(around.abs_diff(MARK.get()) <= 3, "{around}");
        }
    }

    #[test]
    fn a_boundary_with_an_earlier_time_than_the_messages_before_it_comes_after_them() {
        let mut history = tool_run(4, 1_000);
        history.moved.push(Moved { at_us: 1, after: MessageId(9), summary: None });
        let bill = replay(&history, &agents(), Way::Stepped);
        assert_eq!((bill.calls, bill.breaks), (4, 0), "no call follows it");
    }

    #[test]
    fn a_cold_call_pays_for_everything_and_swaps_for_nothing() {
        let mut history = tool_run(14, 4_000);
        let warm = replay(&history, &agents(), Way::Stepped);
        for said in &mut history.said[25..] {
            said.at_us += 301_000_000;
        }
        let cold = replay(&history, &agents(), Way::Stepped);
        assert!(cold.cached < warm.cached && cold.sent < warm.sent && cold.units > warm.units);
    }
}
