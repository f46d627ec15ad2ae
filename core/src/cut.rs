//! When a checkpoint is due, and where it cuts.

use std::collections::HashMap;

use crate::{
    message::{MessageId, Role, ToolMark},
    policy::Policy,
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

/// The tail's figures, large cool messages taken with their summaries' size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TailSize {
    /// Tokens.
    pub tokens: Tokens,
    /// Messages; separators are none.
    pub messages: u64,
}

/// Which threshold the tail has reached, if any.
pub fn due(size: TailSize, policy: &Policy) -> Option<Trigger> {
    if size.tokens >= policy.token_threshold {
        Some(Trigger::Tokens)
    } else if policy.max_message_count > 0 && size.messages >= u64::from(policy.max_message_count) {
        Some(Trigger::Messages)
    } else {
        None
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
    /// Bytes of text that a summariser would read of it.
    pub bytes: u64,
    /// Its tool calls and results.
    pub outline: Vec<ToolMark>,
}

/// A place to cut: everything up to `last` is summarised, the rest stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The last message that the checkpoint covers.
    pub last: MessageId,
    /// When the cut splits a turn: its opening user messages, which the summary must quote.
    pub quoted: Vec<MessageId>,
    /// Tokens of the messages that stay.
    pub kept: Tokens,
}

/// Bytes of text that one checkpoint reads at most; a longer range is summarised by several, one after the other.
pub const CHECKPOINT_BYTES: u64 = 32 * 1024 * 1024;

/// Where to cut the tail; None when no cut would move the boundary without parting a call from its results.
///
/// The kept tail is the first of these that stays within half of every threshold: the last `keep_recent_turns`; the last
/// turn; the newest part of the last turn that fits. When nothing fits, the least that can be kept.
/// A manual compaction has no thresholds: of a single turn it keeps the newest half.
pub fn plan(tail: &[TailItem], policy: &Policy, trigger: Trigger) -> Option<Cut> {
    let room = Room::of(tail, policy, trigger);
    let free = free_places(tail);
    let kept = kept_after(tail);
    let fits = |k: &usize| kept[*k] <= room.tokens && tail.len() - k <= room.messages;
    let nearest_free = |wanted: usize| (1..=wanted).rev().find(|k| free[*k]);

    let recent = turn_start(tail, policy.keep_recent_turns as usize).and_then(nearest_free);
    let last_turn = turn_start(tail, 1).and_then(nearest_free);
    let opening = opening_end(tail);
    let within = || (opening.max(1)..tail.len()).filter(|k| free[*k]);

    let place = match trigger {
        Trigger::Manual => recent.or(last_turn).or_else(|| within().find(fits)),
        Trigger::Tokens | Trigger::Messages => {
            recent.filter(fits).or_else(|| last_turn.filter(fits)).or_else(|| within().find(fits))
        }
    };
    let place = place.or_else(|| (1..tail.len()).rev().find(|k| free[*k]))?;
    let place = readable(tail, &free, place);
    Some(Cut { last: tail[place - 1].id, quoted: quoted(tail, place), kept: kept[place] })
}

/// The last free place up to `place` whose messages one checkpoint can read; the first free one if none can be.
fn readable(tail: &[TailItem], free: &[bool], place: usize) -> usize {
    let mut bytes = 0_u64;
    let mut best = None;
    for k in 1..=place {
        bytes = bytes.saturating_add(tail[k - 1].bytes);
        if free[k] && (best.is_none() || bytes <= CHECKPOINT_BYTES) {
            best = Some(k);
        }
    }
    best.unwrap_or(place)
}

/// What may stay at most.
struct Room {
    tokens: Tokens,
    messages: usize,
}

impl Room {
    fn of(tail: &[TailItem], policy: &Policy, trigger: Trigger) -> Self {
        if trigger == Trigger::Manual {
            let all: Tokens = tail.iter().map(|item| item.tokens).sum();
            return Self { tokens: Tokens::new(all.get() / 2), messages: tail.len() };
        }
        let messages = match policy.max_message_count {
            0 => usize::MAX,
            most => most as usize / 2,
        };
        Self { tokens: Tokens::new(policy.token_threshold.get() / 2), messages }
    }
}

/// For every place `k` (the first `k` messages go): may one cut there? Never between a call and its results, and never
/// after a call of the newest turn that still waits for its result. An unanswered call of an older turn is given up:
/// it must not stop compaction for ever.
fn free_places(tail: &[TailItem]) -> Vec<bool> {
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
