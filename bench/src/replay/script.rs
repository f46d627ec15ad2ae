//! A conversation as numbers: what a rule may know of it, and the contexts that a rule makes of it.

#[cfg(feature = "replay")]
use std::collections::BTreeMap;

use anneal_core::{
    message::Role,
    tokens::{Encoding, FRAMING_PER_MESSAGE, count_message},
    turn,
};
use anneal_transcripts::{Chat, parsed};

use super::meter::Piece;

/// One message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said {
    pub(crate) tokens: u64,
    pub(crate) turn: i32,
    /// Whether the model said it: a call was made for it, with everything before it as context.
    pub(crate) is_answer: bool,
    /// Tokens of its summary, where it has a real one.
    pub(crate) summary: Option<u64>,
}

/// A conversation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script {
    /// Tokens of its system prompt, framing included.
    pub(crate) system: u64,
    pub(crate) said: Vec<Said>,
}

/// What is large, and when it has cooled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Zone {
    /// A message of more tokens is large.
    pub(crate) threshold: u64,
    /// A message is cool when it is more turns old …
    pub(crate) turns: i32,
    /// … or more calls of the model.
    pub(crate) calls: u64,
}

/// Most tokens of a summary, and of its source the share that it takes: one in ten.
const SUMMARY_TOKENS: u64 = 500;
const SUMMARY_SHARE: u64 = 10;

/// A large message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Large {
    /// Its place in the conversation.
    pub(crate) index: usize,
    /// Tokens that its summary takes less.
    pub(crate) saved: u64,
    /// The first call at which it is cool; the number of calls if it never is.
    pub(crate) cool_from: usize,
}

/// A call of the model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// Messages before it.
    pub(crate) messages: usize,
    /// How many of the large messages, from the first on, are cool. Coolness never skips one: what is older is cooler.
    pub(crate) cool: usize,
}

/// A conversation under a zone. A rule's answer is, for each call, how many of the large messages are swapped.
#[derive(Debug, Clone)]
pub(crate) struct Play {
    system: u64,
    /// Tokens of the messages before each, and of all; framing included.
    before: Vec<u64>,
    pub(crate) large: Vec<Large>,
    /// Saved by the first so many large messages.
    saved: Vec<u64>,
    pub(crate) calls: Vec<Call>,
}

impl Script {
    /// The chat, counted exactly. `system` stands for a system prompt that the chat does not tell.
    pub(crate) fn of(chat: &Chat, system: u64) -> Self {
        let encoding = Encoding::O200kBase;
        let mut said = Vec::new();
        let (mut now, mut predecessor) = (0, None);
        for message in chat.messages.iter().map(parsed) {
            now = turn::after(now, predecessor, [message.role]);
            predecessor = Some(message.role);
            let tokens = count_message(encoding, &message).get();
            said.push(Said { tokens, turn: now, is_answer: message.role == Role::Assistant, summary: None });
        }
        let system = match encoding.counter().count(&chat.system_prompt).get() {
            0 => system,
            prompt => prompt + FRAMING_PER_MESSAGE.get(),
        };
        Self { system, said }
    }

    /// The same with real summaries, by message id.
    #[cfg(feature = "replay")]
    pub(crate) fn with_summaries(mut self, tokens: &BTreeMap<i64, u64>) -> Self {
        for (said, id) in self.said.iter_mut().zip(1..) {
            said.summary = tokens.get(&id).copied();
        }
        self
    }

    /// The conversation under a zone.
    pub(crate) fn under(&self, zone: Zone) -> Play {
        let large = self.said.iter().enumerate().filter(|(_, said)| said.tokens > zone.threshold);
        let mut large: Vec<Large> = large
            .map(|(index, said)| {
                let summary = said.summary.unwrap_or(SUMMARY_TOKENS.min(said.tokens / SUMMARY_SHARE));
                Large { index, saved: said.tokens.saturating_sub(summary), cool_from: usize::MAX }
            })
            .collect();
        let answers = running(self.said.iter().map(|said| u64::from(said.is_answer)));
        let mut calls = Vec::new();
        let mut cool = 0;
        for messages in (0..self.said.len()).filter(|index| self.said[*index].is_answer) {
            let turn = messages.checked_sub(1).map_or(0, |last| self.said[last].turn);
            while let Some(next) = large.get_mut(cool).filter(|next| next.index < messages) {
                let calls_old = answers[messages] - answers[next.index + 1];
                if calls_old <= zone.calls && turn - self.said[next.index].turn <= zone.turns {
                    break;
                }
                next.cool_from = calls.len();
                cool += 1;
            }
            calls.push(Call { messages, cool });
        }
        for never in &mut large[cool..] {
            never.cool_from = calls.len();
        }
        Play {
            system: self.system,
            before: running(self.said.iter().map(|said| said.tokens + FRAMING_PER_MESSAGE.get())),
            saved: running(large.iter().map(|large| large.saved)),
            large,
            calls,
        }
    }
}

/// Sums of the numbers before each, and of all.
fn running(numbers: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut sum = 0;
    let rest = numbers.map(|number| {
        sum += number;
        sum
    });
    std::iter::once(0).chain(rest).collect()
}

impl Play {
    /// Tokens of a call's context with so many large messages swapped.
    pub(crate) fn sent(&self, call: usize, swapped: usize) -> u64 {
        self.system + self.before[self.calls[call].messages] - self.saved[swapped]
    }

    /// Of this context, the tokens that stand before the first large message that is not swapped, if the call before
    /// sent that message.
    pub(crate) fn kept_by_swap(&self, swapped: usize) -> u64 {
        self.system + self.before[self.large[swapped].index] - self.saved[swapped]
    }

    /// For each call with something before it: the shares of tokens and of messages that are sent as they were said.
    pub(crate) fn raw_shares(&self, schedule: &[usize]) -> Vec<(f64, f64)> {
        let calls = self.calls.iter().zip(schedule).filter(|(call, _)| self.before[call.messages] > 0);
        calls
            .map(|(call, swapped)| {
                let swapped_from = self.large[..*swapped].iter().map(|large| large.index);
                let gone: u64 = swapped_from.map(|index| self.before[index + 1] - self.before[index]).sum();
                let (tokens, messages) = (self.before[call.messages] as f64, call.messages as f64);
                (1.0 - gone as f64 / tokens, 1.0 - *swapped as f64 / messages)
            })
            .collect()
    }

    /// Tokens that stand behind the first large message that is not swapped, once all cool ones are, in what the call
    /// before sent.
    pub(crate) fn behind_swap(&self, call: usize, swapped: usize) -> u64 {
        let Some(last) = call.checked_sub(1) else { return 0 };
        let oldest = self.large[swapped];
        let others = self.saved[self.calls[call].cool] - self.saved[swapped + 1];
        let front = self.system + self.before[oldest.index + 1] - self.saved[swapped];
        self.sent(last, swapped).saturating_sub(front + others)
    }

    /// The call's context, piece by piece.
    pub(crate) fn context(&self, call: usize, swapped: usize) -> Vec<Piece> {
        let mut pieces = vec![Piece { identity: u64::MAX, tokens: self.system }];
        let messages = 0..self.calls[call].messages;
        pieces.extend(
            messages
                .map(|index| Piece { identity: 2 * index as u64, tokens: self.before[index + 1] - self.before[index] }),
        );
        for large in &self.large[..swapped] {
            let piece = &mut pieces[large.index + 1];
            *piece = Piece { identity: piece.identity + 1, tokens: piece.tokens - large.saved };
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(said: &[(u64, i32, bool)]) -> Script {
        let said = said.iter().map(|(tokens, turn, is_answer)| Said {
            tokens: *tokens,
            turn: *turn,
            is_answer: *is_answer,
            summary: None,
        });
        Script { system: 3, said: said.collect() }
    }

    #[test]
    fn a_message_cools_when_it_is_more_calls_or_more_turns_old_than_the_zone() {
        // A large user message, then answers alone: the turn stands still, the calls do not.
        let run: Vec<_> = std::iter::once((100, 1, false)).chain([(1, 1, true); 5]).collect();
        let by_calls = script(&run).under(Zone { threshold: 99, turns: 9, calls: 2 });
        assert_eq!(by_calls.calls.iter().map(|call| call.cool).collect::<Vec<_>>(), [0, 0, 0, 1, 1]);
        assert_eq!(by_calls.large[0].cool_from, 3);
        let talk: Vec<_> = (1..=5).flat_map(|turn| [(100, turn, false), (1, turn, true)]).collect();
        let by_turns = script(&talk).under(Zone { threshold: 99, turns: 2, calls: 9 });
        assert_eq!(by_turns.calls.iter().map(|call| call.cool).collect::<Vec<_>>(), [0, 0, 0, 1, 2]);
        assert_eq!(by_turns.large[4].cool_from, 5, "never");
    }

    #[test]
    fn a_context_counts_what_its_pieces_count() {
        let said = script(&[(100, 1, false), (7, 1, true), (200, 2, false), (9, 2, true), (1, 3, false), (2, 3, true)]);
        let play = said.under(Zone { threshold: 99, turns: 0, calls: 99 });
        assert_eq!(play.large.len(), 2);
        let tokens = |pieces: &[Piece]| pieces.iter().map(|piece| piece.tokens).sum::<u64>();
        for call in 0..3 {
            for swapped in 0..=call {
                assert_eq!(tokens(&play.context(call, swapped)), play.sent(call, swapped));
            }
        }
        assert_eq!(play.sent(2, 2), 3 + 10 + 7 + 20 + 9 + 1 + 5 * 4);
        assert_eq!(play.kept_by_swap(1), tokens(&play.context(2, 1)[..3]));
        assert_eq!(play.behind_swap(2, 0), tokens(&play.context(2, 2)[2..4]), "what was sent, the other swapped, too");
        let play = said.under(Zone { threshold: 99, turns: 1, calls: 99 });
        assert_eq!(play.behind_swap(2, 0), tokens(&play.context(1, 0)[2..]), "the other is not cool");
    }
}
