//! Token arithmetic of a model's window: how much a call may read, how much it may answer, and how
//! long a partial summary may be.

use anneal_core::tokens::Tokens;

use crate::provider::Model;

/// Percentage by which the model's own tokenizer may count more tokens than the conversation's
/// encoding. In English and code, Claude and Llama count 5 to 15 % more than `o200k_base`. If a
/// model counts still more, the provider's refusal shrinks the budget.
const MARGIN_PERCENT: u64 = 15;

/// Fewest source tokens of a call. With fewer, the instructions would be most of the cost, and
/// parts would hold almost nothing.
pub(super) const MIN_INPUT_TOKENS: u64 = 768;

/// Fewest tokens of a part's target.
pub(super) const MIN_PART_TOKENS: u64 = 64;

/// A chunk of at most this many tokens goes into the merge unchanged: a part would hardly be
/// shorter.
pub(super) const MAX_CARRIED_TOKENS: u64 = 2 * MIN_PART_TOKENS;

/// A part's target is its chunk's tokens divided by this.
const PART_RATIO: u64 = 8;

/// A part's target is at most a twelfth of a merge call's input. So at least eight parts fit a
/// merge call, each a quarter longer than its target, and with the fields of its line. This is the
/// divisor.
const PART_TARGET_DIVISOR: u64 = 12;

/// Most tokens of a part, unless the summary itself may be longer.
const MAX_PART_TOKENS: u64 = 400;

/// Most tokens of the strings that a text must keep: five long ones.
pub(super) const MUST_KEEP_TOKENS: u64 = 200;

/// Tokens of a call beside instructions and sources: feedback on a refused answer (40), roles and
/// delimiters (10), and a random string in the lines BEGIN and END that has more tokens than the
/// fixed one with which the instructions were counted (30).
pub(super) const OTHER_PROMPT_TOKENS: u64 = 80;

/// Tokens of an answer's JSON syntax, field names and headings.
const JSON_TOKENS: u64 = 128;

/// Tokens of source lines, in the conversation's encoding, that a model's window leaves for each
/// kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenBudget {
    /// Most source tokens of the call that writes the whole summary.
    pub(super) whole: u64,
    /// Most source tokens of a call that writes a part.
    pub(super) chunk: u64,
    /// Largest target of a part, in tokens.
    longest_part: u64,
}

impl TokenBudget {
    /// The budget that `window` leaves beside instructions of `overhead` tokens, for a summary of
    /// `target` tokens. At most `cap`; None if it is below [`MIN_INPUT_TOKENS`].
    pub(super) fn of(
        model: &Model,
        window: Tokens,
        overhead: u64,
        target: u64,
        cap: u64,
    ) -> Option<Self> {
        let input = |target| {
            let read = window
                .get()
                .saturating_sub(answer_tokens(model, window, target));
            (read.saturating_mul(100) / (100 + MARGIN_PERCENT))
                .saturating_sub(overhead)
                .min(cap)
        };
        let whole = input(target);
        let longest_part = target
            .max(MAX_PART_TOKENS)
            .min(whole / PART_TARGET_DIVISOR)
            .max(MIN_PART_TOKENS);
        let chunk = input(longest_part);
        (whole.min(chunk) >= MIN_INPUT_TOKENS).then_some(Self {
            whole,
            chunk,
            longest_part,
        })
    }

    /// The target of a part whose chunk has `tokens`.
    pub(super) fn part_target(self, tokens: u64) -> u64 {
        (tokens / PART_RATIO).clamp(MIN_PART_TOKENS, self.longest_part)
    }
}

/// The output limit of a call whose text may have `target` tokens: half as many again, because the
/// model may have another tokenizer, and the JSON around the text. At most a third of the window,
/// and at most the model's own limit.
pub(super) fn answer_tokens(model: &Model, window: Tokens, target: u64) -> u64 {
    (target.saturating_mul(3) / 2 + JSON_TOKENS)
        .min(window.get() / 3)
        .min(model.output().get())
}

/// The tokens that the model is asked for if `target` tokens are allowed: four fifths of them, so
/// that a model that counts badly still stays within the target, and at most the text that fits the
/// call's output limit.
pub(super) fn requested_tokens(target: u64, output: u64) -> u64 {
    (target - target / 5)
        .min(output.saturating_sub(JSON_TOKENS).max(output / 2) * 2 / 3)
        .max(1)
}

/// The fewest tokens that the model's tokenizer is expected to count in a prompt of `sent` tokens:
/// ten thirteenths of `sent`, minus 15 %. A provider that counts less than three fifths of this,
/// which is 39 % of `sent`, has truncated the prompt. So a count of half of `sent` passes, because
/// tokenizers differ that much, and a count of a third does not.
pub(super) fn least_provider_count(sent: u64) -> u64 {
    (sent.saturating_mul(10) / 13).saturating_mul(85) / 100
}

/// The output limit of a second call, after the first answer was cut off at `before` tokens: four
/// times as many if the model and the window allow it, because reasoning models spend part of their
/// output on thoughts. `sent` is the tokens of the prompt.
pub(super) fn enlarged_answer_tokens(model: &Model, window: Tokens, before: u64, sent: u64) -> u64 {
    let left = window
        .get()
        .saturating_sub(sent.saturating_mul(100 + MARGIN_PERCENT) / 100);
    before
        .saturating_mul(4)
        .min(model.output().get())
        .min(left)
        .max(before)
}

#[cfg(test)]
mod tests {
    use super::least_provider_count;
    use crate::provider_error::is_prompt_truncated;

    #[test]
    fn a_prompt_is_truncated_if_the_provider_counts_a_third_of_it_but_not_if_it_counts_half() {
        for sent in [4_000, 30_000, 1_000_000] {
            let least = Some(least_provider_count(sent));
            assert!(
                !is_prompt_truncated(sent, least) && !is_prompt_truncated(sent / 2, least),
                "{sent}"
            );
            assert!(is_prompt_truncated(sent / 3, least), "{sent}");
        }
        assert!(least_provider_count(u64::MAX) < u64::MAX);
    }
}
