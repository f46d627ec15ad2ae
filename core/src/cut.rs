//! When a checkpoint is due, and where it cuts.

use std::collections::HashMap;

use crate::{
    message::{MessageId, Role, ToolMark},
    policy::{KeepRecent, Policy, SHARE_LEAST_MESSAGES, SHARE_LEAST_PERCENT, ThresholdContext, TokenThreshold},
    tokens::Tokens,
};

/// Why a checkpoint is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// The tail holds `token_threshold` tokens or more.
    Tokens,
    /// The tail holds `max_message_count` messages or more.
    Messages,
    /// A caller asked.
    Manual,
}

/// Which threshold a conversation with these figures has reached, if any. Cool large messages that have a summary stand in
/// them with its size; separators are no messages.
pub fn due(figures: &ThresholdContext, policy: &Policy) -> Option<Trigger> {
    if figures.messages == 0 {
        None
    } else if figures.tail >= policy.threshold(figures) {
        Some(Trigger::Tokens)
    } else if policy.max_message_count > 0 && figures.messages >= u64::from(policy.max_message_count) {
        Some(Trigger::Messages)
    } else {
        None
    }
}

/// The figures of a tail, with `head` tokens of system prompt and summary before it.
pub fn figures(tail: &[TailItem], head: Tokens) -> ThresholdContext {
    let turns = tail.last().map_or(0, |last| i64::from(last.turn) - i64::from(tail[0].turn) + 1);
    ThresholdContext {
        head,
        tail: tail.iter().map(|item| item.tokens).sum(),
        messages: tail.len() as u64,
        turns: turns.unsigned_abs(),
        calls: tail.iter().filter(|item| item.role == Role::Assistant).count() as u64,
    }
}

/// What the planner knows of one message of the tail. No content.
#[derive(Debug, Clone)]
pub struct TailItem {
    /// Its id.
    pub id: MessageId,
    /// Who speaks.
    pub role: Role,
    /// Its turn.
    pub turn: i32,
    /// Tokens as a context would send them.
    pub tokens: Tokens,
    /// Bytes of content, or of the summary in its place, that a summariser would read of it.
    pub bytes: u64,
    /// Its tool calls and results.
    pub outline: Vec<ToolMark>,
}

/// A place to cut: everything up to `last` is summarised, the rest stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The last message that the checkpoint covers.
    pub last: MessageId,
    /// When the cut splits a turn: its opening user messages, which the summary must quote, in order of their ids.
    pub quoted: Vec<MessageId>,
    /// Tokens of the messages that stay.
    pub kept: Tokens,
}

/// Bytes of content that one checkpoint reads; a longer range is summarised by several, one after the other.
pub const CHECKPOINT_BYTES: u64 = 32 * 1024 * 1024;
/// The same where the first place to cut is further away, beyond exchanges that cannot be parted: what is longer is not
/// summarised, unless it is a single message.
pub const CHECKPOINT_MOST_BYTES: u64 = 128 * 1024 * 1024;

/// Where to cut the tail; None when no cut would move the boundary without parting a call from its
/// results, or before more has been read than one checkpoint can.
///
/// The kept tail is the first of these that stays within half of every threshold: what `keep_recent` says; the last
/// turn; the newest part of the last turn that fits. When nothing fits, the least that can be kept.
/// A manual compaction has no thresholds: of a single turn it keeps the newest half.
/// Two of the rules hold whatever the size: everything from the last user message on; a share with its floors. Where they
/// leave nothing to cut, there is no cut.
pub fn plan(tail: &[TailItem], policy: &Policy, trigger: Trigger, head: Tokens) -> Option<Cut> {
    let plan =
        Plan { tail, free: free_places(tail), kept: kept_after(tail), room: Room::of(tail, policy, trigger, head) };
    let place = plan.place(policy.keep_recent, trigger)?;
    let place = plan.readable(place)?;
    Some(Cut { last: tail[place - 1].id, quoted: quoted(tail, place), kept: plan.kept[place] })
}

/// A tail, and where it may be cut.
struct Plan<'a> {
    tail: &'a [TailItem],
    /// For every place `k` (the first `k` messages go): may one cut there?
    free: Vec<bool>,
    /// For every place: tokens of what stays.
    kept: Vec<Tokens>,
    room: Room,
}

impl Plan<'_> {
    fn place(&self, keep: KeepRecent, trigger: Trigger) -> Option<usize> {
        let recent = match keep {
            KeepRecent::LastUserMessage => return self.before_last_user(),
            KeepRecent::Share(percent) => return self.share(percent as usize, trigger),
            KeepRecent::Turns(turns) => self.nearest_before(turn_start(self.tail, turns as usize)),
            KeepRecent::Tokens(most) => self.newest_within(most.min(self.room.tokens)),
        };
        let last_turn = self.nearest_before(turn_start(self.tail, 1));
        let fits = |place: &usize| self.fits(*place);
        let place = match trigger {
            Trigger::Manual => recent.or(last_turn).or_else(|| self.within_last_turn()),
            Trigger::Tokens | Trigger::Messages => {
                recent.filter(fits).or_else(|| last_turn.filter(fits)).or_else(|| self.within_last_turn())
            }
        };
        place.or_else(|| (1..self.tail.len()).rev().find(|place| self.free[*place]))
    }

    /// The first place whose rest counts at most `most`; the start of a turn where that keeps at least half of it.
    fn newest_within(&self, most: Tokens) -> Option<usize> {
        let mut places = (1..self.tail.len()).filter(|place| self.free[*place] && self.kept[*place] <= most);
        let first = places.next()?;
        let starts_turn = |place: &usize| self.tail[*place].turn != self.tail[*place - 1].turn;
        let enough = |place: &usize| self.kept[*place].get() * 2 >= self.kept[first].get();
        std::iter::once(first).chain(places).take_while(enough).find(starts_turn).or(Some(first))
    }

    /// The older part of the messages goes, so that `percent` of them stay; more of it where that is above two thirds of the
    /// threshold (half of the messages are seldom exactly half of the tokens), but never so much that less than the floors
    /// would stay.
    fn share(&self, percent: usize, trigger: Trigger) -> Option<usize> {
        let count = self.tail.len();
        let floor = (count * SHARE_LEAST_PERCENT).div_ceil(100).max(SHARE_LEAST_MESSAGES);
        let most = count.saturating_sub(floor);
        let goes = (count - (count * percent).div_ceil(100)).min(most);
        let fits = |place: &usize| {
            let roomy = Tokens::new(self.room.tokens.get() / 3 * 4);
            trigger == Trigger::Manual || (self.kept[*place] <= roomy && self.tail.len() - place <= self.room.messages)
        };
        let before = self.nearest_before(Some(goes)).filter(fits);
        let later = || (goes + 1..=most).find(|place| self.free[*place] && fits(place));
        before.or_else(later).or_else(|| self.nearest_before(Some(most)))
    }

    /// The start of the turn that the last user message belongs to.
    fn before_last_user(&self) -> Option<usize> {
        let user = self.tail.iter().rposition(|item| item.role == Role::User)?;
        let opening = self.tail[..user].iter().rposition(|item| item.role != Role::User).map_or(0, |before| before + 1);
        self.nearest_before(Some(opening))
    }

    /// The first place within the last turn, after its opening user messages, that leaves little enough.
    fn within_last_turn(&self) -> Option<usize> {
        let opening = opening_end(self.tail).max(1);
        (opening..self.tail.len()).find(|place| self.free[*place] && self.fits(*place))
    }

    fn nearest_before(&self, place: Option<usize>) -> Option<usize> {
        (1..=place?).rev().find(|place| self.free[*place])
    }

    fn fits(&self, place: usize) -> bool {
        self.kept[place] <= self.room.tokens && self.tail.len() - place <= self.room.messages
    }

    /// The last free place up to `place` whose messages one checkpoint can read; the first free one if none can be, and that
    /// is not too far away.
    fn readable(&self, place: usize) -> Option<usize> {
        let mut bytes = 0_u64;
        let mut best = None;
        for k in 1..=place {
            bytes = bytes.saturating_add(self.tail[k - 1].bytes);
            let first = best.is_none() && (k == 1 || bytes <= CHECKPOINT_MOST_BYTES);
            if self.free[k] && (first || bytes <= CHECKPOINT_BYTES) {
                best = Some(k);
            }
        }
        best
    }
}

/// What may stay at most.
struct Room {
    tokens: Tokens,
    messages: usize,
}

impl Room {
    fn of(tail: &[TailItem], policy: &Policy, trigger: Trigger, head: Tokens) -> Self {
        let figures = figures(tail, head);
        if trigger == Trigger::Manual {
            return Self { tokens: Tokens::new(figures.tail.get() / 2), messages: tail.len() };
        }
        let messages = match policy.max_message_count {
            0 => usize::MAX,
            most => most as usize / 2,
        };
        let tokens = match policy.token_threshold {
            // The threshold is already reckoned from what a checkpoint leaves.
            TokenThreshold::Auto => Tokens::new(policy.threshold(&figures).get() * 2 / 3),
            TokenThreshold::Tokens(_) | TokenThreshold::BelowWindow(_) => {
                Tokens::new(policy.threshold(&figures).get() / 2)
            }
        };
        Self { tokens, messages }
    }
}

/// For every place `k` (the first `k` messages go): may one cut there? Never between a call and its results, and never
/// after a call of the newest turn that still waits for its result. An unanswered call of an older turn is given up:
/// it must not stop compaction for ever.
pub(crate) fn free_places(tail: &[TailItem]) -> Vec<bool> {
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
    let waiting = calls.values().filter(|(index, answered)| !answered && tail[*index].turn == newest_turn);
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

/// For every place: tokens of what stays.
fn kept_after(tail: &[TailItem]) -> Vec<Tokens> {
    let mut kept = vec![Tokens::ZERO; tail.len() + 1];
    for (index, item) in tail.iter().enumerate().rev() {
        kept[index] = kept[index + 1] + item.tokens;
    }
    kept
}

/// Index of the first message of the last `turns` turns; None when the tail has no more turns than that.
fn turn_start(tail: &[TailItem], turns: usize) -> Option<usize> {
    let mut starts = (1..tail.len()).rev().filter(|k| tail[*k].turn != tail[*k - 1].turn);
    starts.nth(turns.saturating_sub(1))
}

/// First place after the last turn's opening user messages.
fn opening_end(tail: &[TailItem]) -> usize {
    let start = turn_start(tail, 1).unwrap_or(0);
    start + tail[start..].iter().take_while(|item| item.role == Role::User).count()
}

/// The opening user messages of the turn that a cut at `place` splits.
fn quoted(tail: &[TailItem], place: usize) -> Vec<MessageId> {
    if tail[place].turn != tail[place - 1].turn {
        return Vec::new();
    }
    let turn = tail[place].turn;
    let start = tail[..place].iter().rposition(|item| item.turn != turn).map_or(0, |before| before + 1);
    tail[start..place].iter().take_while(|item| item.role == Role::User).map(|item| item.id).collect()
}

#[cfg(test)]
#[path = "cut_tests.rs"]
mod tests;
