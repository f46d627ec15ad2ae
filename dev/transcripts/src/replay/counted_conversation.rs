//! Conversations reduced to token counts: the input of the swapping rules, and the contexts that
//! result from a rule.

use std::collections::BTreeMap;

use anneal_core::{
    context::SwappedMessage,
    message::{MessageId, Role, outline, plain_text_bytes},
    tokens::{Encoding, FRAMING_PER_MESSAGE, count_message},
    turn,
};

use super::meter::Piece;
use crate::{Chat, parsed};

/// One message.
#[derive(Debug, Clone, Copy)]
pub struct CountedMessage {
    /// Without framing.
    pub tokens: u64,
    /// Tokens beside the framing that the provider's format adds to the message and to its summary.
    pub added: u64,
    /// Its turn.
    pub turn: i32,
    /// Whether the model wrote the message. Then a call was made, with everything before the
    /// message as its context.
    pub is_answer: bool,
    /// Tokens of its summary, if it has a real one.
    pub summary: Option<u64>,
}

/// A conversation as token counts.
#[derive(Debug, Clone, Default)]
pub struct CountedConversation {
    /// Tokens of its system prompt, including framing.
    pub system: u64,
    /// Its messages, in order.
    pub messages: Vec<CountedMessage>,
}

/// When a message is large and when it has cooled.
#[derive(Debug, Clone, Copy)]
pub struct CoolingZone {
    /// Messages with more tokens are large.
    pub threshold: u64,
    /// A message that is older than this many turns is cool.
    pub turns: i32,
    /// A message that is older than this many calls of the model is cool, too.
    pub calls: u64,
}

/// Most tokens of a summary whose real size is not known.
const MAX_ASSUMED_SUMMARY_TOKENS: u64 = 500;
/// A summary whose real size is not known is assumed to have one tenth of its message's tokens.
const TOKENS_PER_SUMMARY_TOKEN: u64 = 10;

/// A large message.
#[derive(Debug, Clone, Copy)]
pub struct Large {
    /// Its index in the conversation.
    pub index: usize,
    /// How many tokens fewer its summary has.
    pub saved: u64,
    /// The first call at which it is cool; the number of calls if it never is.
    pub cool_from: usize,
}

/// A call of the model.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// Number of messages before it.
    pub messages: usize,
    /// How many of the large messages, counted from the first, are cool. The cool messages are
    /// always the oldest ones.
    pub cool_count: usize,
}

/// How much of what precedes a call is sent raw, that is, in its original form.
#[derive(Debug, Clone, Copy)]
pub struct RawShares {
    /// The share of the tokens.
    pub tokens: f64,
    /// The share of the messages.
    pub messages: f64,
}

/// A conversation with the large messages and calls of one zone. A rule decides, for each call, how
/// many of the large messages are swapped.
#[derive(Debug, Clone)]
pub struct CooledConversation {
    system: u64,
    /// By index of a message: the tokens of all messages before it, including framing. The last
    /// entry is the sum of all messages.
    tokens_before: Vec<u64>,
    /// The large messages, in order.
    pub large: Vec<Large>,
    /// By number: the tokens that are saved if so many large messages, from the first on, are
    /// swapped.
    saved_by_first: Vec<u64>,
    /// The calls, in order.
    pub calls: Vec<Call>,
}

impl CountedConversation {
    /// Counts the tokens of a chat exactly. If the chat's file has no system prompt, `system` is
    /// used as its size.
    pub fn of(chat: &Chat, system: u64) -> Self {
        let encoding = Encoding::O200kBase;
        let mut messages = Vec::new();
        let (mut current_turn, mut predecessor) = (0, None);
        for message in chat.messages.iter().map(parsed) {
            current_turn = turn::after(current_turn, predecessor, [message.role]);
            predecessor = Some(message.role);
            let tokens = count_message(encoding, &message).get();
            messages.push(CountedMessage {
                tokens,
                added: 0,
                turn: current_turn,
                is_answer: message.role == Role::Assistant,
                summary: None,
            });
        }
        let system = match encoding.counter().count(&chat.system_prompt).get() {
            0 => system,
            prompt => prompt + FRAMING_PER_MESSAGE.get(),
        };
        Self { system, messages }
    }

    /// Uses the sizes of real summaries, by message id.
    #[must_use]
    pub fn with_summaries(mut self, tokens: &BTreeMap<i64, u64>) -> Self {
        for (message, id) in self.messages.iter_mut().zip(1..) {
            message.summary = tokens.get(&id).copied();
        }
        self
    }

    /// Finds the large messages and the calls of the conversation, and when each large message is
    /// cool.
    pub fn in_zone(&self, zone: CoolingZone) -> CooledConversation {
        let large = self
            .messages
            .iter()
            .enumerate()
            .filter(|(_, message)| message.tokens > zone.threshold);
        let mut large: Vec<Large> = large
            .map(|(index, message)| {
                let summary = message.summary.unwrap_or(
                    MAX_ASSUMED_SUMMARY_TOKENS.min(message.tokens / TOKENS_PER_SUMMARY_TOKEN),
                );
                Large {
                    index,
                    saved: message.tokens.saturating_sub(summary),
                    cool_from: usize::MAX,
                }
            })
            .collect();
        let answers = running_sums(
            self.messages
                .iter()
                .map(|message| u64::from(message.is_answer)),
        );
        let mut calls = Vec::new();
        let mut cool_count = 0;
        // The index of an answer is the number of messages before its call.
        for messages in (0..self.messages.len()).filter(|index| self.messages[*index].is_answer) {
            let turn = messages
                .checked_sub(1)
                .map_or(0, |last| self.messages[last].turn);
            while let Some(next) = large
                .get_mut(cool_count)
                .filter(|next| next.index < messages)
            {
                // The answers between the large message and this call.
                let age_in_calls = answers[messages] - answers[next.index + 1];
                if age_in_calls <= zone.calls && turn - self.messages[next.index].turn <= zone.turns
                {
                    break;
                }
                next.cool_from = calls.len();
                cool_count += 1;
            }
            calls.push(Call {
                messages,
                cool_count,
            });
        }
        for never_cool in &mut large[cool_count..] {
            never_cool.cool_from = calls.len();
        }
        CooledConversation {
            system: self.system,
            tokens_before: running_sums(
                self.messages
                    .iter()
                    .map(|message| message.tokens + message.added + FRAMING_PER_MESSAGE.get()),
            ),
            saved_by_first: running_sums(large.iter().map(|large| large.saved)),
            large,
            calls,
        }
    }
}

/// The tokens that are sent for summaries of a chat's messages, by message id. `stored`: the tokens
/// of the summaries alone.
pub fn sent_summaries(chat: &Chat, stored: &BTreeMap<i64, u64>) -> BTreeMap<i64, u64> {
    let around = |id: i64| {
        let message = parsed(&chat.messages[id as usize - 1]);
        let swapped = SwappedMessage {
            id: MessageId(id),
            role: message.role,
            original_bytes: plain_text_bytes(&message.parts) as u64,
            outline: outline(&message.parts),
        };
        swapped.overhead_tokens(Encoding::O200kBase).get()
    };
    let sent = stored.iter();
    sent.map(|(id, tokens)| (*id, tokens + around(*id)))
        .collect()
}

/// The sum of the numbers before each number, and the sum of all.
fn running_sums(numbers: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut sum = 0;
    let rest = numbers.map(|number| {
        sum += number;
        sum
    });
    std::iter::once(0).chain(rest).collect()
}

impl CooledConversation {
    /// Tokens of a call's context when this many large messages are swapped.
    pub fn sent(&self, call: usize, swapped: usize) -> u64 {
        self.system + self.tokens_before[self.calls[call].messages] - self.saved_by_first[swapped]
    }

    /// Tokens before the first large message that is not swapped. They stay in the cache when that
    /// message is swapped.
    pub fn kept_by_swap(&self, swapped: usize) -> u64 {
        self.system + self.tokens_before[self.large[swapped].index] - self.saved_by_first[swapped]
    }

    /// The shares for each call with at least one message before it.
    pub fn raw_shares(&self, schedule: &[usize]) -> Vec<RawShares> {
        let calls = self
            .calls
            .iter()
            .zip(schedule)
            .filter(|(call, _)| self.tokens_before[call.messages] > 0);
        calls
            .map(|(call, swapped)| {
                let swapped_indices = self.large[..*swapped].iter().map(|large| large.index);
                let swapped_tokens: u64 = swapped_indices
                    .map(|index| self.tokens_before[index + 1] - self.tokens_before[index])
                    .sum();
                let all_tokens = self.tokens_before[call.messages];
                RawShares {
                    tokens: 1.0 - swapped_tokens as f64 / all_tokens as f64,
                    messages: 1.0 - *swapped as f64 / call.messages as f64,
                }
            })
            .collect()
    }

    /// Tokens of the previous call's context that follow the first large message that was not
    /// swapped, assuming that all cool messages are swapped now.
    pub fn behind_swap(&self, call: usize, swapped: usize) -> u64 {
        let Some(previous_call) = call.checked_sub(1) else {
            return 0;
        };
        let first_unswapped = self.large[swapped];
        let up_to_first = self.system + self.tokens_before[first_unswapped.index + 1]
            - self.saved_by_first[swapped];
        // The other messages that are swapped now are written as their summaries.
        let saved_by_others =
            self.saved_by_first[self.calls[call].cool_count] - self.saved_by_first[swapped + 1];
        self.sent(previous_call, swapped)
            .saturating_sub(up_to_first + saved_by_others)
    }

    /// The call's context in pieces, the first of which is the system prompt. A message has an even
    /// identity in its original form, and an odd one as its summary.
    pub fn context(&self, call: usize, swapped: usize) -> Vec<Piece> {
        let mut pieces = vec![Piece {
            identity: u64::MAX,
            tokens: self.system,
        }];
        let messages = 0..self.calls[call].messages;
        pieces.extend(messages.map(|index| Piece {
            identity: 2 * index as u64,
            tokens: self.tokens_before[index + 1] - self.tokens_before[index],
        }));
        for large in &self.large[..swapped] {
            let piece = &mut pieces[large.index + 1];
            *piece = Piece {
                identity: piece.identity + 1,
                tokens: piece.tokens - large.saved,
            };
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A conversation of messages with these tokens and turns. The flag says whether the message is
    /// an answer of the model.
    fn counted(said: &[(u64, i32, bool)]) -> CountedConversation {
        let messages = said.iter().map(|(tokens, turn, is_answer)| CountedMessage {
            tokens: *tokens,
            added: 0,
            turn: *turn,
            is_answer: *is_answer,
            summary: None,
        });
        CountedConversation {
            system: 3,
            messages: messages.collect(),
        }
    }

    #[test]
    fn a_message_is_cool_when_older_than_the_zone_in_calls_or_turns() {
        // A large user message followed only by answers: the number of turns stays the same while
        // the calls increase.
        let run: Vec<_> = std::iter::once((100, 1, false))
            .chain([(1, 1, true); 5])
            .collect();
        let by_calls = counted(&run).in_zone(CoolingZone {
            threshold: 99,
            turns: 9,
            calls: 2,
        });
        assert_eq!(
            by_calls
                .calls
                .iter()
                .map(|call| call.cool_count)
                .collect::<Vec<_>>(),
            [0, 0, 0, 1, 1]
        );
        assert_eq!(by_calls.large[0].cool_from, 3);
        let conversation: Vec<_> = (1..=5)
            .flat_map(|turn| [(100, turn, false), (1, turn, true)])
            .collect();
        let by_turns = counted(&conversation).in_zone(CoolingZone {
            threshold: 99,
            turns: 2,
            calls: 9,
        });
        assert_eq!(
            by_turns
                .calls
                .iter()
                .map(|call| call.cool_count)
                .collect::<Vec<_>>(),
            [0, 0, 0, 1, 2]
        );
        assert_eq!(by_turns.large[4].cool_from, 5, "never");
    }

    #[test]
    fn sizes_of_a_context_and_its_beginning_and_end_are_sums_of_pieces() {
        let conversation = counted(&[
            (100, 1, false),
            (7, 1, true),
            (200, 2, false),
            (9, 2, true),
            (1, 3, false),
            (2, 3, true),
        ]);
        let cooled = conversation.in_zone(CoolingZone {
            threshold: 99,
            turns: 0,
            calls: 99,
        });
        assert_eq!(cooled.large.len(), 2);
        let tokens = |pieces: &[Piece]| pieces.iter().map(|piece| piece.tokens).sum::<u64>();
        for call in 0..3 {
            for swapped in 0..=call {
                assert_eq!(
                    tokens(&cooled.context(call, swapped)),
                    cooled.sent(call, swapped)
                );
            }
        }
        // The system prompt, five messages (10 and 20 are the summaries of the large ones), and
        // their framing of 4 tokens each.
        assert_eq!(cooled.sent(2, 2), 3 + 10 + 7 + 20 + 9 + 1 + 5 * 4);
        assert_eq!(cooled.kept_by_swap(1), tokens(&cooled.context(2, 1)[..3]));
        assert_eq!(
            cooled.behind_swap(2, 0),
            tokens(&cooled.context(2, 2)[2..4]),
            "all that was sent after the first large message, with the second one swapped as well"
        );
        let cooled = conversation.in_zone(CoolingZone {
            threshold: 99,
            turns: 1,
            calls: 99,
        });
        assert_eq!(
            cooled.behind_swap(2, 0),
            tokens(&cooled.context(1, 0)[2..]),
            "the second large message is not cool"
        );
    }
}
