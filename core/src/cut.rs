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
    /// The provider's cache is cold, so that a checkpoint makes the provider write nothing again
    /// that it still has.
    Idle,
}

/// The threshold that the tail has reached; None if it has reached none. In `figures`, a cool large
/// message with a summary counts with the summary's size, and separators do not count as messages.
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

/// The figures of a tail. `head`: tokens of what a context sends before the tail, which are the
/// system prompt and the checkpoint's summary.
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

/// One message of the tail, as [`plan`] sees it: without content.
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
    /// Bytes that a summarizer would read of it: its content, or its summary if it has one.
    pub bytes: u64,
    /// Its tool calls and results.
    pub outline: Vec<ToolMark>,
}

/// A cut: everything up to `last` is summarized, the rest stays in the tail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The last message that the checkpoint covers.
    pub last: MessageId,
    /// If the cut splits a turn: the user messages at the start of that turn, in id order. The
    /// summary must quote them.
    pub quoted: Vec<MessageId>,
    /// Tokens of the messages that stay.
    pub kept: Tokens,
}

/// After this many checkpoints whose summaries were built on each other, the next summary is built
/// from the messages again, because each summary of a summary loses detail.
pub const MAX_GENERATIONS: i32 = 5;
/// Most bytes of content that one checkpoint reads. A longer range takes several checkpoints, one
/// after the other.
pub const CHECKPOINT_BYTES: u64 = 32 * 1024 * 1024;
/// Most bytes of content that one checkpoint reads if the first allowed cut lies beyond
/// [`CHECKPOINT_BYTES`], because the tool calls before it must stay with their results. A longer
/// range is not summarized, unless it is a single message.
pub const CHECKPOINT_MAX_BYTES: u64 = 128 * 1024 * 1024;

/// Plans where to cut the tail. Returns None if no cut is allowed (`allowed_cuts`), or if a
/// checkpoint cannot read as far as the first allowed cut.
///
/// The kept tail is the first of these that fits `CutBudget`, which is half of each threshold, and
/// two thirds of the automatic one:
/// 1. what `keep_recent` says;
/// 2. the last turn;
/// 3. the newest part of the last turn.
///
/// If none fits, as little as possible is kept. A manual compaction takes the first of these that
/// exists, without a threshold. If that is a number of tokens or a part of a turn, it keeps at most
/// half of the tail's tokens.
///
/// For two values of `keep_recent`, the last user message and a share, steps 2 and 3 do not apply.
/// They may keep more than fits: everything from the last user message on, and the minimum of the
/// share. If they leave nothing to cut, there is no cut.
///
/// [`Trigger::Idle`] keeps what `keep_recent` says, if that fits. Otherwise there is no cut,
/// because nothing makes one necessary.
///
/// `head`: as in [`tail_figures`].
pub fn plan(tail: &[TailItem], policy: &Policy, trigger: Trigger, head: Tokens) -> Option<Cut> {
    let plan = Plan::of(tail, policy, trigger, head);
    let place = plan.cut_place(policy.keep_recent, trigger)?;
    let place = plan.last_readable(place)?;
    (trigger != Trigger::Idle || plan.fits(place)).then(|| plan.cut(place))
}

/// The cut after message `last`, which was planned when the tail was shorter. None if it is no
/// longer allowed, or if the kept tail no longer fits. `head`: as in [`tail_figures`].
pub fn plan_after(
    tail: &[TailItem],
    policy: &Policy,
    trigger: Trigger,
    head: Tokens,
    last: MessageId,
) -> Option<Cut> {
    let plan = Plan::of(tail, policy, trigger, head);
    let place = tail.iter().position(|item| item.id == last)? + 1;
    (place < tail.len() && plan.allowed[place] && plan.fits(place)).then(|| plan.cut(place))
}

/// A tail, and where it may be cut. A place is the number of messages before the cut, which are
/// summarized.
struct Plan<'a> {
    tail: &'a [TailItem],
    /// For every place: whether a cut is allowed there.
    allowed: Vec<bool>,
    /// For every place: tokens of the messages that stay in the tail.
    kept: Vec<Tokens>,
    budget: CutBudget,
}

impl<'a> Plan<'a> {
    fn of(tail: &'a [TailItem], policy: &Policy, trigger: Trigger, head: Tokens) -> Self {
        Self {
            tail,
            allowed: allowed_cuts(tail),
            kept: kept_after(tail),
            budget: CutBudget::of(tail, policy, trigger, head),
        }
    }

    fn cut(&self, place: usize) -> Cut {
        Cut {
            last: self.tail[place - 1].id,
            quoted: quoted(self.tail, place),
            kept: self.kept[place],
        }
    }

    /// The place of the cut, if one checkpoint could read any number of bytes.
    fn cut_place(&self, keep: KeepRecent, trigger: Trigger) -> Option<usize> {
        let recent = match keep {
            KeepRecent::LastUserMessage => return self.before_last_user(),
            KeepRecent::Share(percent) => return self.share(percent as usize, trigger),
            KeepRecent::Turns(turns) => {
                self.last_allowed_up_to(turn_start(self.tail, turns as usize))
            }
            KeepRecent::Tokens(most) => self.newest_within(most.min(self.budget.tokens)),
        };
        let last_turn = self.last_allowed_up_to(turn_start(self.tail, 1));
        let fits = |place: &usize| self.fits(*place);
        let place = match trigger {
            Trigger::Idle => return recent,
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

    /// The place that keeps `percent` of the messages, and at least [`SHARE_MIN_MESSAGES`] and
    /// [`SHARE_MIN_PERCENT`]. More messages are summarized if the kept tail exceeds the budget. The
    /// kept tail may have a third more tokens than the budget, because half of the messages are
    /// seldom exactly half of the tokens.
    fn share(&self, percent: usize, trigger: Trigger) -> Option<usize> {
        let count = self.tail.len();
        let min_kept = (count * SHARE_MIN_PERCENT)
            .div_ceil(100)
            .max(SHARE_MIN_MESSAGES);
        let last_place = count.saturating_sub(min_kept);
        let wanted = (count - (count * percent).div_ceil(100)).min(last_place);
        let fits = |place: &usize| {
            let limit = Tokens::new(self.budget.tokens.get() / 3 * 4);
            trigger == Trigger::Manual
                || (self.kept[*place] <= limit && self.tail.len() - place <= self.budget.messages)
        };
        let before = self.last_allowed_up_to(Some(wanted)).filter(fits);
        let later = || (wanted + 1..=last_place).find(|place| self.allowed[*place] && fits(place));
        before
            .or_else(later)
            .or_else(|| self.last_allowed_up_to(Some(last_place)))
    }

    /// The last allowed place before the last user message and the user messages directly before
    /// it.
    fn before_last_user(&self) -> Option<usize> {
        let last_user = self.tail.iter().rposition(|item| item.role == Role::User)?;
        let first_user = self.tail[..last_user]
            .iter()
            .rposition(|item| item.role != Role::User)
            .map_or(0, |before| before + 1);
        self.last_allowed_up_to(Some(first_user))
    }

    /// The first place after the user messages at the start of the last turn whose kept tail fits.
    fn within_last_turn(&self) -> Option<usize> {
        let first_place = opening_end(self.tail).max(1);
        (first_place..self.tail.len()).find(|place| self.allowed[*place] && self.fits(*place))
    }

    /// The last place up to and including `place` where a cut is allowed.
    fn last_allowed_up_to(&self, place: Option<usize>) -> Option<usize> {
        (1..=place?).rev().find(|place| self.allowed[*place])
    }

    fn fits(&self, place: usize) -> bool {
        self.kept[place] <= self.budget.tokens && self.tail.len() - place <= self.budget.messages
    }

    /// The last allowed place up to `limit` with at most [`CHECKPOINT_BYTES`] before it. If there
    /// is none: the first allowed place, if it has at most [`CHECKPOINT_MAX_BYTES`] or a single
    /// message before it.
    fn last_readable(&self, limit: usize) -> Option<usize> {
        let mut bytes = 0_u64;
        let mut last = None;
        for place in 1..=limit {
            bytes = bytes.saturating_add(self.tail[place - 1].bytes);
            let first_readable = last.is_none() && (place == 1 || bytes <= CHECKPOINT_MAX_BYTES);
            if self.allowed[place] && (first_readable || bytes <= CHECKPOINT_BYTES) {
                last = Some(place);
            }
        }
        last
    }
}

/// The most that may stay in the tail after a cut.
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
            // The automatic threshold is at least 1.5 times what a checkpoint leaves.
            TokenThreshold::Auto => Tokens::new(policy.threshold(&figures).get() * 2 / 3),
            TokenThreshold::Tokens(_) | TokenThreshold::BelowWindow(_) => {
                Tokens::new(policy.threshold(&figures).get() / 2)
            }
        };
        Self { tokens, messages }
    }
}

/// For every place, from 0 on: whether a cut is allowed there. A cut never separates a call from
/// its results, and never covers a call of the newest turn that still waits for its result. An
/// unanswered call of an older turn may be covered, because otherwise it would block compaction
/// forever.
pub(crate) fn allowed_cuts(tail: &[TailItem]) -> Vec<bool> {
    let newest_turn = tail.last().map_or(0, |item| item.turn);
    // For each call id: the index of the call's message, and whether the call is answered.
    let mut calls: HashMap<&str, (usize, bool)> = HashMap::new();
    // For each result that has its call: the indexes of the call's and of the result's message.
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
    // A call that waits for its result counts as if the result came after the tail.
    spans.extend(waiting.map(|(index, _)| (*index, tail.len())));

    // A span is separated by the places from `call + 1` to `result`. So the number of separated
    // spans rises by one at the first of these places, and falls by one after the last.
    let mut changes = vec![0_i32; tail.len() + 2];
    for (call, result) in spans {
        changes[call + 1] += 1;
        changes[result + 1] -= 1;
    }
    let mut separated_spans = 0;
    let is_allowed = changes[..=tail.len()].iter().map(|change| {
        separated_spans += change;
        separated_spans == 0
    });
    is_allowed.collect()
}

/// For every place: tokens of the messages that stay in the tail.
fn kept_after(tail: &[TailItem]) -> Vec<Tokens> {
    let mut kept = vec![Tokens::ZERO; tail.len() + 1];
    for (index, item) in tail.iter().enumerate().rev() {
        kept[index] = kept[index + 1] + item.tokens;
    }
    kept
}

/// Index of the first message of the last `turns` turns; None if the tail does not have more turns
/// than that.
fn turn_start(tail: &[TailItem], turns: usize) -> Option<usize> {
    let mut starts = (1..tail.len())
        .rev()
        .filter(|index| tail[*index].turn != tail[*index - 1].turn);
    starts.nth(turns.saturating_sub(1))
}

/// The place directly after the user messages at the start of the last turn.
fn opening_end(tail: &[TailItem]) -> usize {
    let start = turn_start(tail, 1).unwrap_or(0);
    start
        + tail[start..]
            .iter()
            .take_while(|item| item.role == Role::User)
            .count()
}

/// The user messages at the start of the turn that a cut at `place` splits; empty if it splits no
/// turn.
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
