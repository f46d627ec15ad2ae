//! When a checkpoint is due, and where it cuts the tail.

use std::collections::HashMap;

use crate::{
    message::{MessageId, Role, ToolMark},
    policy::{
        KeepRecent, Policy, SHARE_MIN_MESSAGES, SHARE_MIN_PERCENT, TailFigures, TokenThreshold,
    },
    tokens::Tokens,
};

/// Why a checkpoint is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// The tail holds `token_threshold` tokens or more.
    Tokens,
    /// The tail holds `max_message_count` messages or more.
    Messages,
    /// A caller requested it.
    Manual,
}

/// The threshold that the tail has reached, if any. In `figures`, cool large messages with a
/// summary count with the summary's size, and separators do not count as messages.
pub fn due_trigger(figures: &TailFigures, policy: &Policy) -> Option<Trigger> {
    if figures.messages == 0 {
        None
    } else if figures.tail >= policy.threshold(figures) {
        Some(Trigger::Tokens)
    } else if policy.max_message_count > 0
        && figures.messages >= u64::from(policy.max_message_count)
    {
        Some(Trigger::Messages)
    } else {
        None
    }
}

/// The figures of a tail that follows `head` tokens of system prompt and summary.
pub fn tail_figures(tail: &[TailItem], head: Tokens) -> TailFigures {
    let turns = tail
        .last()
        .map_or(0, |last| i64::from(last.turn) - i64::from(tail[0].turn) + 1);
    TailFigures {
        head,
        tail: tail.iter().map(|item| item.tokens).sum(),
        messages: tail.len() as u64,
        turns: turns.unsigned_abs(),
        calls: tail
            .iter()
            .filter(|item| item.role == Role::Assistant)
            .count() as u64,
    }
}

/// Input of the planner for one message of the tail. The planner reads no content.
#[derive(Debug, Clone)]
pub struct TailItem {
    /// Its id.
    pub id: MessageId,
    /// Author of the message.
    pub role: Role,
    /// Its turn.
    pub turn: i32,
    /// Tokens that a context would send for it.
    pub tokens: Tokens,
    /// Bytes that a summariser would read of it: its content, or its summary if it has one.
    pub bytes: u64,
    /// Its tool calls and results.
    pub outline: Vec<ToolMark>,
}

/// A cut: everything up to `last` is summarised, the rest stays in the tail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The last message that the checkpoint covers.
    pub last: MessageId,
    /// If the cut splits a turn: the turn's opening user messages, in id order. The summary must
    /// quote them.
    pub quoted: Vec<MessageId>,
    /// Tokens of the messages that stay.
    pub kept: Tokens,
}

/// Bytes of content that one checkpoint reads. A longer range takes several checkpoints, one after
/// the other.
pub const CHECKPOINT_BYTES: u64 = 32 * 1024 * 1024;
/// Bytes of content that one checkpoint reads if there is no earlier place to cut, because the
/// exchanges before it cannot be split. A longer range is not summarised, unless it is a single
/// message.
pub const CHECKPOINT_MAX_BYTES: u64 = 128 * 1024 * 1024;

/// Plans where to cut the tail. Returns None if no cut moves the boundary without parting a call
/// from its results, or if a checkpoint cannot read as far as the first cut.
///
/// The kept tail is the first of these that stays within half of every threshold: what
/// `keep_recent` says; the last turn; the newest part of the last turn that fits. If none fits, as
/// little as possible is kept. A manual compaction has no thresholds: of a single turn it keeps the
/// newest half.
///
/// Two values of `keep_recent` hold whatever the size: everything from the last user message on,
/// and a share with its minimum. If they leave nothing to cut, there is no cut.
pub fn plan(tail: &[TailItem], policy: &Policy, trigger: Trigger, head: Tokens) -> Option<Cut> {
    let plan = Plan {
        tail,
        allowed: allowed_cuts(tail),
        kept: kept_after(tail),
        budget: CutBudget::of(tail, policy, trigger, head),
    };
    let place = plan.cut_place(policy.keep_recent, trigger)?;
    let place = plan.readable(place)?;
    Some(Cut {
        last: tail[place - 1].id,
        quoted: quoted(tail, place),
        kept: plan.kept[place],
    })
}

/// A tail, and where it may be cut.
struct Plan<'a> {
    tail: &'a [TailItem],
    /// For every place `k`, where the first `k` messages are summarised: whether a cut is allowed
    /// there.
    allowed: Vec<bool>,
    /// For every place: tokens of the messages that stay.
    kept: Vec<Tokens>,
    budget: CutBudget,
}

impl Plan<'_> {
    fn cut_place(&self, keep: KeepRecent, trigger: Trigger) -> Option<usize> {
        let recent = match keep {
            KeepRecent::LastUserMessage => return self.before_last_user(),
            KeepRecent::Share(percent) => return self.share(percent as usize, trigger),
            KeepRecent::Turns(turns) => self.nearest_before(turn_start(self.tail, turns as usize)),
            KeepRecent::Tokens(most) => self.newest_within(most.min(self.budget.tokens)),
        };
        let last_turn = self.nearest_before(turn_start(self.tail, 1));
        let fits = |place: &usize| self.fits(*place);
        let place = match trigger {
            Trigger::Manual => recent.or(last_turn).or_else(|| self.within_last_turn()),
            Trigger::Tokens | Trigger::Messages => recent
                .filter(fits)
                .or_else(|| last_turn.filter(fits))
                .or_else(|| self.within_last_turn()),
        };
        place.or_else(|| {
            (1..self.tail.len())
                .rev()
                .find(|place| self.allowed[*place])
        })
    }

    /// The first place whose kept tail has at most `most` tokens. A later place is preferred if it
    /// starts a turn and keeps at least half as many tokens.
    fn newest_within(&self, most: Tokens) -> Option<usize> {
        let mut places =
            (1..self.tail.len()).filter(|place| self.allowed[*place] && self.kept[*place] <= most);
        let first = places.next()?;
        let starts_turn = |place: &usize| self.tail[*place].turn != self.tail[*place - 1].turn;
        let enough = |place: &usize| self.kept[*place].get() * 2 >= self.kept[first].get();
        std::iter::once(first)
            .chain(places)
            .take_while(enough)
            .find(starts_turn)
            .or(Some(first))
    }

    /// The place that keeps `percent` of the messages. More are summarised if the kept tail has
    /// more than two thirds of the threshold, because half of the messages are seldom half of the
    /// tokens. Never fewer than the minimum stay.
    fn share(&self, percent: usize, trigger: Trigger) -> Option<usize> {
        let count = self.tail.len();
        let floor = (count * SHARE_MIN_PERCENT)
            .div_ceil(100)
            .max(SHARE_MIN_MESSAGES);
        let most = count.saturating_sub(floor);
        let goes = (count - (count * percent).div_ceil(100)).min(most);
        let fits = |place: &usize| {
            let limit = Tokens::new(self.budget.tokens.get() / 3 * 4);
            trigger == Trigger::Manual
                || (self.kept[*place] <= limit && self.tail.len() - place <= self.budget.messages)
        };
        let before = self.nearest_before(Some(goes)).filter(fits);
        let later = || (goes + 1..=most).find(|place| self.allowed[*place] && fits(place));
        before
            .or_else(later)
            .or_else(|| self.nearest_before(Some(most)))
    }

    /// The start of the turn that the last user message belongs to.
    fn before_last_user(&self) -> Option<usize> {
        let user = self.tail.iter().rposition(|item| item.role == Role::User)?;
        let opening = self.tail[..user]
            .iter()
            .rposition(|item| item.role != Role::User)
            .map_or(0, |before| before + 1);
        self.nearest_before(Some(opening))
    }

    /// The first place within the last turn, after its opening user messages, whose kept tail fits.
    fn within_last_turn(&self) -> Option<usize> {
        let opening = opening_end(self.tail).max(1);
        (opening..self.tail.len()).find(|place| self.allowed[*place] && self.fits(*place))
    }

    fn nearest_before(&self, place: Option<usize>) -> Option<usize> {
        (1..=place?).rev().find(|place| self.allowed[*place])
    }

    fn fits(&self, place: usize) -> bool {
        self.kept[place] <= self.budget.tokens && self.tail.len() - place <= self.budget.messages
    }

    /// The last allowed place up to `place` whose messages one checkpoint can read. If there is
    /// none, the first allowed place, unless even [`CHECKPOINT_MAX_BYTES`] do not reach it.
    fn readable(&self, place: usize) -> Option<usize> {
        let mut bytes = 0_u64;
        let mut best = None;
        for k in 1..=place {
            bytes = bytes.saturating_add(self.tail[k - 1].bytes);
            let first = best.is_none() && (k == 1 || bytes <= CHECKPOINT_MAX_BYTES);
            if self.allowed[k] && (first || bytes <= CHECKPOINT_BYTES) {
                best = Some(k);
            }
        }
        best
    }
}

/// The most that may stay in the tail.
struct CutBudget {
    tokens: Tokens,
    messages: usize,
}

impl CutBudget {
    fn of(tail: &[TailItem], policy: &Policy, trigger: Trigger, head: Tokens) -> Self {
        let figures = tail_figures(tail, head);
        if trigger == Trigger::Manual {
            return Self {
                tokens: Tokens::new(figures.tail.get() / 2),
                messages: tail.len(),
            };
        }
        let messages = match policy.max_message_count {
            0 => usize::MAX,
            most => most as usize / 2,
        };
        let tokens = match policy.token_threshold {
            // The automatic threshold already depends on what a checkpoint leaves.
            TokenThreshold::Auto => Tokens::new(policy.threshold(&figures).get() * 2 / 3),
            TokenThreshold::Tokens(_) | TokenThreshold::BelowWindow(_) => {
                Tokens::new(policy.threshold(&figures).get() / 2)
            }
        };
        Self { tokens, messages }
    }
}

/// For every place `k`, where the first `k` messages are summarised: whether a cut is allowed
/// there. A cut never parts a call from its results, and never covers a call of the newest turn
/// that still waits for its result. An unanswered call of an older turn does not count, because it
/// would block compaction for ever.
pub(crate) fn allowed_cuts(tail: &[TailItem]) -> Vec<bool> {
    let newest_turn = tail.last().map_or(0, |item| item.turn);
    let mut calls: HashMap<&str, (usize, bool)> = HashMap::new();
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for (index, item) in tail.iter().enumerate() {
        for mark in &item.outline {
            match mark {
                ToolMark::Call { id, .. } => {
                    calls.insert(id, (index, false));
                }
                ToolMark::Result { id, .. } => {
                    if let Some((call, answered)) = calls.get_mut(id.as_str()) {
                        *answered = true;
                        spans.push((*call, index));
                    }
                }
            }
        }
    }
    let waiting = calls
        .values()
        .filter(|(index, answered)| !answered && tail[*index].turn == newest_turn);
    spans.extend(waiting.map(|(index, _)| (*index, tail.len())));

    let mut change = vec![0_i32; tail.len() + 2];
    for (call, result) in spans {
        change[call + 1] += 1;
        change[result + 1] -= 1;
    }
    let mut depth = 0;
    let depths = change[..=tail.len()].iter().map(|step| {
        depth += step;
        depth
    });
    depths.map(|depth| depth == 0).collect()
}

/// For every place: tokens of the messages that stay.
fn kept_after(tail: &[TailItem]) -> Vec<Tokens> {
    let mut kept = vec![Tokens::ZERO; tail.len() + 1];
    for (index, item) in tail.iter().enumerate().rev() {
        kept[index] = kept[index + 1] + item.tokens;
    }
    kept
}

/// Index of the first message of the last `turns` turns; None if the tail has no more turns than
/// that.
fn turn_start(tail: &[TailItem], turns: usize) -> Option<usize> {
    let mut starts = (1..tail.len())
        .rev()
        .filter(|k| tail[*k].turn != tail[*k - 1].turn);
    starts.nth(turns.saturating_sub(1))
}

/// The first place after the last turn's opening user messages.
fn opening_end(tail: &[TailItem]) -> usize {
    let start = turn_start(tail, 1).unwrap_or(0);
    start
        + tail[start..]
            .iter()
            .take_while(|item| item.role == Role::User)
            .count()
}

/// The opening user messages of the turn that a cut at `place` splits; empty if it splits none.
fn quoted(tail: &[TailItem], place: usize) -> Vec<MessageId> {
    if tail[place].turn != tail[place - 1].turn {
        return Vec::new();
    }
    let turn = tail[place].turn;
    let start = tail[..place]
        .iter()
        .rposition(|item| item.turn != turn)
        .map_or(0, |before| before + 1);
    tail[start..place]
        .iter()
        .take_while(|item| item.role == Role::User)
        .map(|item| item.id)
        .collect()
}

#[cfg(test)]
#[path = "cut_tests.rs"]
mod tests;
