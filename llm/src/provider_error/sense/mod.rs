//! Judges an error by the sense of its words, where neither a code nor a known wording decides. The
//! verdict is only likely: it never names a window or a count, so that nothing is learnt from it.
//!
//! An overflow is accepted if what was sent is the larger side of a comparison of tokens, and
//! - two numbers show it ("the prompt has 9,000 tokens, the limit is 8,192"), or
//! - the smaller side is named as a window ("the prompt does not fit into the context window").
//!
//! Errors about rates, credentials, bytes, images or a parameter are refused first.
//!
//! - `blank`: removes quotations, translates Chinese terms, cuts sentences.
//! - `tokens`: the words, numbers and signs of a text.
//! - `words`: the lists of words.
//! - `reading`: what the words and numbers of a message stand for.

mod blank;
mod reading;
mod tokens;
mod words;

use anneal_core::digest;

use super::OverflowKind;
use reading::{Measure, Reading, Relation, Role, Unit};

/// The smallest number that is taken for a window. No model has a smaller one.
const MIN_WINDOW: u64 = 512;

/// A message that is likely an overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sense {
    pub(super) kind: OverflowKind,
    /// `sense`, or `sense-measured` if the tokens that were sent confirm the message.
    pub(super) rule: &'static str,
    /// The first 64 bits of a digest of the wording: of the message without quotations and numbers.
    /// It tells two wordings apart without their content.
    pub(super) wording: u64,
}

/// Judges an error's message; None if it is not likely an overflow. `sent_tokens`: as in
/// [`ProviderAnswer`](super::ProviderAnswer).
pub(super) fn judge(message: &str, sent_tokens: Option<u64>) -> Option<Sense> {
    let text = blank::prepare(message);
    let (kind, rule) = decide(&Reading::of(&text), sent_tokens)?;
    Some(Sense {
        kind,
        rule,
        wording: wording(&text),
    })
}

/// The first 64 bits of the SHA-256 digest of the text without its digits.
fn wording(text: &str) -> u64 {
    let words = text.replace(|next: char| next.is_ascii_digit(), "");
    let digest = digest::of_content(&words);
    digest
        .iter()
        .take(8)
        .fold(0, |bits, byte| (bits << 8) | u64::from(*byte))
}

fn decide(reading: &Reading<'_>, sent_tokens: Option<u64>) -> Option<(OverflowKind, &'static str)> {
    if reading.is_about_something_else() || is_about_a_parameter(reading) {
        return None;
    }
    let kind = if reading.outputs.is_empty() {
        OverflowKind::Input
    } else {
        OverflowKind::InputPlusOutput
    };
    let mut values: Vec<u64> = reading.measures.iter().map(|found| found.value).collect();
    values.sort_unstable();
    values.dedup();
    let is_about_tokens = reading.has_tokens || !reading.windows.is_empty();
    let has_sent_side = reading.has_tokens || !reading.inputs.is_empty();
    if values.len() >= 2 && is_about_tokens && has_sent_side {
        let (limit, sent) = compare_numbers(reading, &values)?;
        return confirm(limit, Some(sent), sent_tokens).map(|rule| (kind, rule));
    }
    let limit = reading.measures.iter().find_map(named_limit);
    let limit = limit.filter(|_| reading.has_tokens);
    if !names_a_window(reading, limit.is_some()) {
        return None;
    }
    confirm(limit.unwrap_or(0), None, sent_tokens).map(|rule| (kind, rule))
}

/// Whether the sent side of the message is only a limit of output, a setting of a window, or a
/// use of tokens that may be one over time.
fn is_about_a_parameter(reading: &Reading<'_>) -> bool {
    let end = reading.sent_side_end();
    // "The prompt and max_tokens exceed …" is about the prompt, too. "The request" alone may be the
    // one in which the parameter stands.
    let mut texts = reading
        .inputs
        .iter()
        .filter(|at| reading.word(**at) != "request");
    if reading.outputs.iter().any(|at| *at < end) {
        if !texts.any(|at| *at < end) {
            return true;
        }
    } else if !reading.outputs.is_empty() && texts.next().is_none() {
        return true;
    }
    if !reading.inputs.is_empty() {
        return false;
    }
    let is_setting =
        reading.windows.iter().any(|at| *at < end) || (0..end).any(|at| reading.is_max_tokens(at));
    (reading.says_too_large() && !reading.is_passive() && is_setting) || reading.is_about_use()
}

/// The limit and the larger number of a message that compares them; None if the message does not
/// say that what was sent is larger. `values`: the numbers in order, each once; at least two.
fn compare_numbers(reading: &Reading<'_>, values: &[u64]) -> Option<(u64, u64)> {
    let largest = *values.last()?;
    let is_limit = |found: &&Measure| {
        let is_smaller = found.value < largest;
        let is_named =
            found.role == Some(Role::Limit) || (found.role == Some(Role::Context) && is_smaller);
        is_named && found.unit != Unit::Output
    };
    let limits: Vec<u64> = reading
        .measures
        .iter()
        .filter(is_limit)
        .map(|found| found.value)
        .collect();
    let has_output = !reading.outputs.is_empty();
    let smaller_limit = limits
        .iter()
        .copied()
        .filter(|limit| *limit < largest)
        .max();
    let limit = match smaller_limit {
        // The words say which number is the limit. If they say it of both, a comparison decides.
        Some(limit) if reading.says_too_large() || !limits.contains(&largest) => limit,
        // Prompt and output exceed the limit only together.
        None if has_output && !limits.is_empty() => largest,
        None if limits.is_empty() && reading.says_too_large() => values[values.len() - 2],
        _ => return None,
    };
    let others = || {
        let others = reading.measures.iter();
        others.filter(move |found| found.value != limit)
    };
    let sum = others().fold(0, |sum: u64, found| sum.saturating_add(found.value));
    let most = others().map(|found| found.value).max()?;
    let is_exceeded = most > limit || (has_output && sum > limit);
    let is_output_alone = others().all(|found| found.unit == Unit::Output);
    let largest_measures = || {
        let measures = reading.measures.iter();
        measures.filter(move |found| found.value == largest)
    };
    // Without a word for what was sent, the number itself must be one of tokens.
    let largest_is_of_tokens = largest_measures().any(|found| found.unit == Unit::Tokens);
    // Without a comparison, the words must say of it that it was sent.
    let is_compared = reading.says_too_large()
        || limit == largest
        || largest_is_of_tokens
        || largest_measures().any(|found| matches!(found.role, Some(Role::Sent | Role::Context)));
    let has_owner = !reading.inputs.is_empty()
        || largest_is_of_tokens
        || reading.is_passive()
        || reading.is_compared_by_sign();
    let is_overflow = is_exceeded && is_compared && has_owner && !is_output_alone;
    (is_overflow && limit >= MIN_WINDOW).then_some((limit, most))
}

/// The value of a number that is a limit of tokens.
fn named_limit(found: &Measure) -> Option<u64> {
    let is_limit = found.role == Some(Role::Limit) && found.unit != Unit::Output;
    (is_limit && found.value >= MIN_WINDOW).then_some(found.value)
}

/// Whether the message says without a comparison of numbers that what was sent does not fit a
/// window, which it names, or whose tokens it gives (`has_limit`).
fn names_a_window(reading: &Reading<'_>, has_limit: bool) -> bool {
    let Some((relation, at)) = reading.relation else {
        return false;
    };
    let before = |list: &[usize]| list.iter().any(|found| *found < at);
    let after = |list: &[usize]| list.iter().any(|found| *found > at);
    let (inputs, windows) = (&reading.inputs[..], &reading.windows[..]);
    match relation {
        Relation::TooLarge => {
            let is_exceeded_by = [at, at + 1].iter().any(|at| reading.word(*at) == "by");
            (before(inputs) && (has_limit || after(windows)))
                || (before(windows) && after(inputs) && is_exceeded_by)
                || (reading.is_passive() && after(inputs) && reading.asks_to_shorten())
                || reading.is_context_overflow()
        }
        Relation::TooSmall => before(windows) && after(inputs),
    }
}

/// The rule of a likely overflow; None if far fewer tokens were sent than the limit.
fn confirm(limit: u64, named: Option<u64>, sent_tokens: Option<u64>) -> Option<&'static str> {
    if sent_tokens.is_some_and(|sent| sent.saturating_mul(2) < limit) {
        return None;
    }
    // Two tokenizers differ by at most two fifths on the same text.
    let is_near = |(sent, named): (u64, u64)| {
        sent.abs_diff(named).saturating_mul(5) <= named.saturating_mul(2)
    };
    Some(if sent_tokens.zip(named).is_some_and(is_near) {
        "sense-measured"
    } else {
        "sense"
    })
}
