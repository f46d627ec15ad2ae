//! Arithmetic of a window: what a call may be told, what it may answer, how long a part may be.

use anneal_core::tokens::Tokens;

use crate::provider::Model;

/// The model's own tokenizer may count so many hundredths more than the ask's measure: Claude and Llama count English
/// and code 5 to 15 % higher than `o200k_base`. Where it is more, the provider's refusal shrinks the room.
const MARGIN_PERCENT: u64 = 15;

/// Fewest tokens that a call is told: below it, instructions are most of what is paid for, and parts say nothing.
pub(super) const LEAST_INPUT: u64 = 768;

/// Shortest part.
pub(super) const LEAST_PART: u64 = 64;

/// A piece that counts no more than this goes into the merge as it is: a part of it would hardly be shorter.
pub(super) const CARRIED: u64 = 2 * LEAST_PART;

/// A part is this many times shorter than its piece.
const PART_SHRINKS: u64 = 8;

/// A part counts at most one in so many of the room, so that at least eight parts (with a quarter more than they were
/// asked for, and the marks around them) fit the room of the call that merges them.
const PARTS_IN_ROOM: u64 = 12;

/// The longest part, unless the summary itself may be longer.
const LONGEST_PART: u64 = 400;

/// The most tokens of strings that a text is told to keep: five long ones.
pub(super) const MUST_KEEP: u64 = 200;

/// What else a call may say: what was wrong with an answer before (40), roles and delimiters (10), another random string
/// that counts more (30).
pub(super) const ASIDE: u64 = 80;

/// What JSON, field names and headings take of an answer.
const JSON_TOKENS: u64 = 128;

/// What a model's window leaves for a run of calls, in tokens of source lines by the ask's measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// What the call that writes the whole summary is told at most.
    pub(super) whole: u64,
    /// What a call that writes a part is told at most.
    pub(super) piece: u64,
    longest_part: u64,
}

impl Room {
    /// The room that `window` leaves beside instructions of `overhead` tokens, for a summary of `target` tokens; at most
    /// `cap`. None when that is too little to work with.
    pub(super) fn of(model: &Model, window: Tokens, overhead: u64, target: u64, cap: u64) -> Option<Self> {
        let told = |target| {
            let read = window.get().saturating_sub(output(model, window, target));
            (read.saturating_mul(100) / (100 + MARGIN_PERCENT)).saturating_sub(overhead).min(cap)
        };
        let whole = told(target);
        let longest_part = target.max(LONGEST_PART).min(whole / PARTS_IN_ROOM).max(LEAST_PART);
        let piece = told(longest_part);
        (whole.min(piece) >= LEAST_INPUT).then_some(Self { whole, piece, longest_part })
    }

    /// How long the part of a piece of `tokens` may be.
    pub(super) fn part(self, tokens: u64) -> u64 {
        (tokens / PART_SHRINKS).clamp(LEAST_PART, self.longest_part)
    }
}

/// The room for an answer of `target` tokens: half as much again for a model that counts otherwise, and the JSON around
/// it; never more than a third of the window, nor than the model may write.
pub(super) fn output(model: &Model, window: Tokens, target: u64) -> u64 {
    (target.saturating_mul(3) / 2 + JSON_TOKENS).min(window.get() / 3).min(model.output().get())
}

/// What a model is asked to write where `target` tokens are allowed: four fifths of it, so that a model that counts
/// badly still keeps the limit, and what its output has room for.
pub(super) fn wanted(target: u64, output: u64) -> u64 {
    (target - target / 5).min(output.saturating_sub(JSON_TOKENS).max(output / 2) * 2 / 3).max(1)
}

/// What another tokenizer surely counts where the ask's measure counts `sent`: ten thirteenths, and 15 % less again. Two
/// tokenizers may differ by half; a provider that counts less than three fifths of this has cut the prompt short.
pub(super) fn at_least(sent: u64) -> u64 {
    (sent.saturating_mul(10) / 13).saturating_mul(85) / 100
}

/// The room for a second answer where the first was cut off: models that think aloud spend it on thoughts.
pub(super) fn more_output(model: &Model, window: Tokens, before: u64, sent: u64) -> u64 {
    let left = window.get().saturating_sub(sent.saturating_mul(100 + MARGIN_PERCENT) / 100);
    before.saturating_mul(4).min(model.output().get()).min(left).max(before)
}

#[cfg(test)]
mod tests {
    use super::at_least;
    use crate::provider_error::is_cut_short;

    #[test]
    fn a_model_that_counts_half_has_read_everything_and_one_that_counts_a_third_has_not() {
        for sent in [4_000, 30_000, 1_000_000] {
            let surely = Some(at_least(sent));
            assert!(!is_cut_short(sent, surely) && !is_cut_short(sent / 2, surely), "{sent}");
            assert!(is_cut_short(sent / 3, surely), "{sent}");
        }
        assert!(at_least(u64::MAX) < u64::MAX);
    }
}
