//! Judges an error by the sense of its words, where neither a code nor a known wording decides. The
//! verdict is only likely: it never names a window or a count, so that nothing is learnt from it.
//!
//! An overflow is accepted if what was sent is the larger side of a comparison of tokens, and
//! - two numbers show it ("the prompt has 9,000 tokens, the limit is 8,192"), or
//! - the smaller side is named as a window ("the prompt does not fit into the context window"), or
//! - the window is said to be full, or to have no room, or
//! - the message begins with nothing else ("the conversation is too long").
//!
//! Errors about rates, credentials, bytes, images or a parameter are refused first.
//!
//! - `blank`: removes quotations, cuts sentences; `languages`: translates terms into English.
//! - `tokens`: the words, numbers and signs of a text.
//! - `words`: the lists of words.
//! - `reading`: what the words and numbers of a message stand for; `relation`: its comparisons.

mod blank;
mod languages;
mod reading;
mod relation;
mod tokens;
mod words;

use anneal_core::digest;

use super::{OverflowKind, RequestSize, figures::words_of};
use reading::{Measure, Reading, Relation, Role, Unit};
use tokens::Token;

/// The smallest number that is taken for a window. No model has a smaller one.
const MIN_WINDOW: u64 = 512;
/// Most words after a comparison in which its object may stand.
const OBJECT_WORDS: usize = 7;
/// Most bytes of a code that is read as words.
const MAX_CODE_BYTES: usize = 64;
/// Words for a context, which may be the window or what was sent.
const CONTEXTS: &[&str] = &["context", "ctx"];

/// A message that is likely an overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sense {
    pub(super) kind: OverflowKind,
    /// `sense`, or `sense-measured` if the tokens that were sent confirm the message: by the count
    /// that it names, or by the model's window.
    pub(super) rule: &'static str,
    /// The first 64 bits of a digest of the wording: of the message without quotations and numbers.
    /// It tells two wordings apart without their content.
    pub(super) wording: u64,
}

/// Judges an error's message; None if it is not likely an overflow.
pub(super) fn judge(message: &str, size: RequestSize) -> Option<Sense> {
    let text = blank::prepare(message);
    let (kind, rule) = decide(&Reading::of(&text), size)?;
    Some(Sense {
        kind,
        rule,
        wording: wording(&text),
    })
}

/// Judges an error's code by its words: `ContextWindowOverflow` is "context window overflow".
pub(super) fn judge_code(code: &str, size: RequestSize) -> Option<Sense> {
    let code = Some(code).filter(|code| code.len() <= MAX_CODE_BYTES)?;
    judge(&words_of(code), size)
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

fn decide(reading: &Reading<'_>, size: RequestSize) -> Option<(OverflowKind, &'static str)> {
    if reading.is_about_something_else() || is_about_a_parameter(reading) {
        return None;
    }
    let kind = if reading.outputs.is_empty() && !reading.has_sum {
        OverflowKind::Input
    } else {
        OverflowKind::InputPlusOutput
    };
    let mut values: Vec<u64> = reading.measures.iter().map(|found| found.value).collect();
    values.sort_unstable();
    values.dedup();
    let is_about_tokens =
        reading.has_tokens || !reading.windows.is_empty() || reading.has_context_words();
    let has_sent_side =
        reading.has_tokens || !reading.inputs.is_empty() || reading.says_window_overflows();
    if values.len() >= 2 && is_about_tokens && has_sent_side {
        let compared = compare_numbers(reading, &values);
        if let Some((limit, sent)) = compared.or_else(|| sent_number_exceeds(reading)) {
            return confirm(limit, Some(sent), size).map(|rule| (kind, rule));
        }
        // Numbers may leave out the output that was asked for: the verb counts more.
        let is_said = says_that_window_is_exceeded(reading) && values[0] >= MIN_WINDOW;
        let rule = is_said.then(|| confirm(0, None, size)).flatten();
        return rule.map(|rule| (kind, rule));
    }
    let mut limits = reading.measures.iter().filter(|found| is_limit(found));
    if limits.clone().any(|found| found.value < MIN_WINDOW) {
        return None;
    }
    let limit = limits.next().map(|found| found.value);
    let limit = limit.filter(|_| reading.has_tokens);
    if !names_a_window(reading, limit.is_some()) {
        return None;
    }
    confirm(limit.unwrap_or(0), None, size).map(|rule| (kind, rule))
}

/// Whether the sent side of the message is only a limit of output, a setting of a window, or a
/// use of tokens that may be one over time.
fn is_about_a_parameter(reading: &Reading<'_>) -> bool {
    let end = reading.sent_side_end();
    let has_text = reading.texts().next().is_some();
    // "The prompt and max_tokens exceed …" is about the prompt, too.
    if reading.outputs.iter().any(|at| *at < end) {
        if !reading.texts().any(|at| at < end) {
            return true;
        }
    } else if !reading.outputs.is_empty() && !has_text {
        return true;
    }
    if !has_text && reading.is_about_one_request() {
        return true;
    }
    if !reading.inputs.is_empty() {
        return false;
    }
    let is_setting =
        reading.windows.iter().any(|at| *at < end) || (0..end).any(|at| reading.is_max_tokens(at));
    let says_more = reading.exceeded_window().is_some()
        || reading.says_window_overflows()
        || matches!(reading.relations[..], [(Relation::Full, _), ..]);
    (reading.says_too_large() && !says_more && is_setting) || reading.is_about_use()
}

/// The limit and the larger number of a message that compares them; None if the message does not
/// say that what was sent is larger. `values`: the numbers in order, each once; at least two.
fn compare_numbers(reading: &Reading<'_>, values: &[u64]) -> Option<(u64, u64)> {
    let largest = *values.last()?;
    let limits: Vec<u64> = reading
        .measures
        .iter()
        .filter(|found| {
            let is_context = found.role == Some(Role::Context) && found.value < largest;
            is_limit(found) || (is_context && found.unit != Unit::Output)
        })
        .map(|found| found.value)
        .collect();
    let has_output = !reading.outputs.is_empty() || reading.has_sum;
    let smaller_limit = limits
        .iter()
        .copied()
        .filter(|limit| *limit < largest)
        .max();
    // "A capacity of 9000 tokens exceeds 8192 available" is about no text.
    let says_of_sent = reading.says_too_large()
        && (!reading.inputs.is_empty()
            || reading.is_compared_by_sign()
            || reading.exceeded_window().is_some());
    let limit = match smaller_limit {
        // The words say which number is the limit. If they say it of both, a comparison decides.
        Some(limit) if says_of_sent || !limits.contains(&largest) => limit,
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
    let largest_was_sent = largest_measures().any(|found| found.role == Some(Role::Sent));
    // Without a comparison, the words must say of it that it was sent.
    let is_compared = reading.says_too_large()
        || limit == largest
        || largest_is_of_tokens
        || largest_was_sent
        || largest_measures().any(|found| found.role == Some(Role::Context));
    let has_owner = !reading.inputs.is_empty()
        || largest_is_of_tokens
        || (reading.has_tokens && largest_was_sent)
        || reading.exceeded_window().is_some()
        || reading.says_window_overflows()
        || reading.is_compared_by_sign();
    let is_overflow = is_exceeded && is_compared && has_owner && !is_output_alone;
    (is_overflow && limit >= MIN_WINDOW).then_some((limit, most))
}

/// The limit and the number that was sent, where a message names several limits: one of the input,
/// and one of the whole context.
fn sent_number_exceeds(reading: &Reading<'_>) -> Option<(u64, u64)> {
    let limits = reading.measures.iter().filter(|found| is_limit(found));
    let limit = limits.map(|found| found.value).min()?;
    let was_sent = |found: &&Measure| {
        found.unit == Unit::Tokens && matches!(found.role, None | Some(Role::Sent))
    };
    let sent = reading.measures.iter().filter(was_sent);
    let sent = sent.map(|found| found.value).max()?;
    let has_text = reading.texts().next().is_some();
    (has_text && limit >= MIN_WINDOW && sent > limit).then_some((limit, sent))
}

/// Whether the message says in so many words that what was sent exceeds the window.
fn says_that_window_is_exceeded(reading: &Reading<'_>) -> bool {
    reading.relations.iter().any(|(_, at)| {
        let mut windows = reading.windows.iter().filter(|window| **window > *at);
        reading.word(*at).starts_with("exceed")
            && reading.word_before(*at, 1) != "to"
            && reading.outputs.is_empty()
            && reading.inputs.iter().any(|input| input < at)
            && windows.any(|window| reading.is_context_window(*window))
    })
}

/// Whether a number is a limit, and not one of output.
fn is_limit(found: &Measure) -> bool {
    found.role == Some(Role::Limit) && found.unit != Unit::Output
}

/// Whether the message says without a comparison of numbers that what was sent does not fit a
/// window, which it names, or whose tokens it gives (`has_limit`).
fn names_a_window(reading: &Reading<'_>, has_limit: bool) -> bool {
    let has_context = || {
        let is_context = |at: &usize| reading.is_context_window(*at);
        reading.windows.iter().any(is_context) || reading.has_word(CONTEXTS)
    };
    let mut relations = reading.relations.iter().copied();
    relations.any(|(relation, at)| match relation {
        Relation::TooLarge | Relation::DoesNotFit => {
            exceeds_window(reading, at, has_limit)
                || reaches_window(reading, at)
                || (relation == Relation::DoesNotFit && holds_too_little(reading, at))
                || is_exceeded_window(reading, at)
                || has_too_many_tokens(reading, at)
                || is_input_too_long(reading, at)
        }
        Relation::TooSmall => {
            reading.windows.iter().any(|found| *found < at)
                && reading.inputs.iter().any(|found| *found > at)
        }
        Relation::NoRoom => {
            has_context() && (reading.has_tokens || reading.texts().next().is_some())
        }
        Relation::Full => {
            let is_text = |at| !CONTEXTS.contains(&reading.word(at));
            let is_context = |at: &usize| reading.is_context_window(*at);
            reading.windows.iter().any(is_context)
                || reading.has_tokens
                || reading.texts().any(is_text)
        }
    })
}

/// "You reached the context limit of this conversation", "could not fit the prompt into the context
/// window".
fn reaches_window(reading: &Reading<'_>, at: usize) -> bool {
    let mut windows = reading.windows.iter().filter(|found| **found > at);
    let is_text = |found: usize| !CONTEXTS.contains(&reading.word(found));
    let has_text = match reading.word(at) {
        "reached" | "reaches" | "hit" | "hits" => reading.texts().any(is_text),
        "fit" | "fits" | "accommodate" => reading.texts().any(|found| found > at),
        _ => false,
    };
    has_text && windows.any(|found| reading.is_context_window(*found))
}

/// Whether what was sent stands before the comparison at this place, and a window after it.
fn exceeds_window(reading: &Reading<'_>, at: usize, has_limit: bool) -> bool {
    let is_context_after = || {
        let mut windows = reading.windows.iter().filter(|found| **found > at);
        windows.any(|found| reading.is_context_window(*found))
    };
    let has_window_after = reading.windows.iter().any(|found| *found > at);
    if (has_limit || has_window_after) && reading.inputs.iter().any(|found| *found < at) {
        return true;
    }
    // "Total tokens exceed the context window."
    let counts_tokens = |place: usize| {
        let is_limit = place > 0 && reading.is_max_tokens(place - 1);
        words::is_token_unit(reading.word(place)) && !is_limit && !reading.is_window(place + 1)
    };
    if is_context_after() && (0..at).any(counts_tokens) {
        return true;
    }
    // "Tokens in the request exceed max tokens", "the prompt exceeds the maximum of tokens".
    let has_input = reading.inputs.iter().any(|found| *found < at);
    let has_text = reading.texts().any(|found| found < at);
    let has_limit_of_tokens = (at + 1..=at + OBJECT_WORDS).any(|at| reading.is_max_tokens(at));
    let is_of_tokens = has_input && (0..at).any(counts_tokens);
    if has_limit_of_tokens && (is_of_tokens || (has_text && reading.outputs.is_empty())) {
        return true;
    }
    // "Exceeds the context window": the subject is the request.
    let has_no_subject = matches!(reading.token_before(at), None | Some(Token::Sign(':')));
    let is_verb = reading.word(at).starts_with("exceed");
    if is_verb && has_no_subject && reading.outputs.is_empty() && is_context_after() {
        return true;
    }
    // "Does not fit into the context", "longer than the model can handle".
    let mut texts = reading.texts().filter(|found| *found < at);
    match find_object(reading, at) {
        Some("model") => {
            let may_be_of_model = matches!(
                reading.word(at),
                "too" | "more" | "longer" | "larger" | "bigger" | "fit" | "fits"
            );
            may_be_of_model && texts.next().is_some()
        }
        Some(_) => texts.any(|found| !CONTEXTS.contains(&reading.word(found))),
        None => false,
    }
}

/// The context, or else the model, that is the smaller side of the comparison at this place.
fn find_object<'t>(reading: &Reading<'t>, at: usize) -> Option<&'t str> {
    let mut object = None;
    for place in at + 1..=at + OBJECT_WORDS {
        let word = reading.word(place);
        if CONTEXTS.contains(&word) && reading.word_before(place, 1) != "this" {
            return Some(word);
        }
        if !reading.is_number(place) && !words::BEFORE_OBJECTS.contains(&word) {
            break;
        }
        if word == "model" {
            object = Some(word);
        }
    }
    object
}

/// "The context window cannot fit the prompt."
fn holds_too_little(reading: &Reading<'_>, at: usize) -> bool {
    let mut windows = reading.windows.iter().filter(|found| **found < at);
    windows.any(|found| reading.is_context_window(*found))
        && reading.texts().any(|found| found > at)
}

/// "Token limit exceeded by the prompt", "the context window has been exceeded", "context
/// overflow".
fn is_exceeded_window(reading: &Reading<'_>, at: usize) -> bool {
    let has_text_after = reading.inputs.iter().any(|found| *found > at);
    let is_exceeded_by = [at, at + 1].iter().any(|at| reading.word(*at) == "by");
    if is_exceeded_by && has_text_after && reading.windows.iter().any(|found| *found < at) {
        return true;
    }
    let word = reading.word(at);
    let is_exceeded = words::EXCEEDED.contains(&word);
    let exceeded = reading.exceeded_window().filter(|_| is_exceeded);
    if let Some(window) = exceeded
        && ((reading.is_context_window(window) && reading.word_before(window, 1) != "sequence")
            || (has_text_after && reading.asks_to_shorten()))
    {
        return true;
    }
    let is_of_context = CONTEXTS.contains(&reading.word_before(at, 1))
        || (at > 0 && reading.is_context_window(at - 1));
    word.starts_with("overflow")
        && is_of_context
        && reading.inputs.iter().any(|input| input + 1 != at)
}

/// "Too many tokens in the prompt."
fn has_too_many_tokens(reading: &Reading<'_>, at: usize) -> bool {
    let counts_tokens = || (at + 2..at + 5).any(|at| words::is_token_unit(reading.word(at)));
    reading.word(at) == "too"
        && reading.word(at + 1) == "many"
        && counts_tokens()
        && reading.texts().next().is_some()
        && !reading.is_about_use()
}

/// Whether the message says of what was sent only that it is too long: "Your prompt is too long."
/// It must begin with that, because the words are short enough for a user's.
fn is_input_too_long(reading: &Reading<'_>, at: usize) -> bool {
    let is_long = matches!(reading.word(at + 1), "long" | "lengthy");
    let is_large = is_long || matches!(reading.word(at + 1), "large" | "big");
    let counts_other =
        reading.counts_other() || (!reading.measures.is_empty() && !reading.has_tokens);
    if reading.word(at) != "too" || !is_large || counts_other || !reading.starts_plainly {
        return false;
    }
    let is_filler = |at: &usize| words::FILLERS.contains(&reading.word(*at));
    let Some(subject) = (0..at).rev().find(|at| !is_filler(at)) else {
        return false;
    };
    let input = reading.word(subject);
    let is_about_tokens = reading.has_tokens || !reading.outputs.is_empty();
    let is_input = words::WHOLE_INPUTS.contains(&input)
        || (is_long && words::LONG_INPUTS.contains(&input))
        || (is_long && is_about_tokens && words::LONG_INPUTS_OF_TOKENS.contains(&input));
    let mut before = (0..subject)
        .rev()
        .take_while(|at| reading.tokens[*at] != Token::Sign('.'));
    let is_alone = before.all(|at| words::DETERMINERS.contains(&reading.word(at)));
    let is_end = match reading.tokens.get(at + 2) {
        Some(Token::Sign(sign)) => matches!(sign, '.' | ',' | ';' | '(' | '!'),
        Some(Token::Word(word)) => matches!(*word, "for" | "even"),
        _ => false,
    };
    is_input && is_alone && is_end
}

/// The rule of a likely overflow; None if far fewer tokens were sent than the message names as the
/// limit, or than the model's window holds. `named`: the count of what was sent, in the message.
fn confirm(limit: u64, named: Option<u64>, size: RequestSize) -> Option<&'static str> {
    let Some(sent) = size.sent else {
        return Some("sense");
    };
    if sent.saturating_mul(2) < limit.max(size.window.unwrap_or(0)) {
        return None;
    }
    // Two tokenizers differ by at most two fifths on the same text.
    let is_near = |named: u64| sent.abs_diff(named).saturating_mul(5) <= named.saturating_mul(2);
    let is_above = |window: u64| sent > window || is_near(window);
    Some(
        if named.is_some_and(is_near) || size.window.is_some_and(is_above) {
            "sense-measured"
        } else {
            "sense"
        },
    )
}

#[cfg(test)]
mod tests;
