//! What the words and numbers of a message stand for: the sent text, the output, the window, and
//! the role and the unit of each number.

use std::ops::Range;

use super::{
    blank::first_sentences,
    tokens::{self, Token},
    words,
};

/// Most words before a number that may give it its role.
const ROLE_WORDS: usize = 6;
/// Most words after a number in which its unit may stand.
const UNIT_WORDS: usize = 4;
/// Most words after a number of which one may make it a limit.
const LIMIT_WORDS: usize = 3;
/// Most words after a number of which one may say that it was sent.
const SENT_WORDS: usize = 5;
/// Most words and signs before the colon of a lead-in.
const LEAD_IN_WORDS: usize = 6;
/// The smallest number that counts if no word gives its role or unit: smaller ones are statuses,
/// and parts of names.
const MIN_UNNAMED: u64 = 512;

/// A comparison that a message makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    /// The sent text is the larger side, or must be the smaller one.
    TooLarge,
    /// It does not fit, or must fit.
    DoesNotFit,
    /// The window is the smaller side.
    TooSmall,
    /// Something has no room.
    NoRoom,
    /// A context is full.
    Full,
}

/// What a number is, by the words around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Limit,
    Sent,
    /// A context: the window, or what was sent.
    Context,
}

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Tokens,
    /// Tokens of output.
    Output,
    /// Something else than tokens.
    Other,
    /// The words beside the number do not say.
    Unnamed,
}

/// A number that may count tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Measure {
    pub(super) value: u64,
    pub(super) role: Option<Role>,
    pub(super) unit: Unit,
}

/// A message as it was read. Places are indices of its tokens.
#[derive(Debug)]
pub(super) struct Reading<'t> {
    pub(super) tokens: Vec<Token<'t>>,
    /// Whether it begins with a letter or a digit: no list mark, no markup.
    pub(super) starts_plainly: bool,
    /// Sentences that advise what to do.
    advice: Vec<Range<usize>>,
    /// The place where a lead-in such as "Batch generation failed:" ends; 0 without one.
    lead_in: usize,
    /// Places of words for what was sent.
    pub(super) inputs: Vec<usize>,
    /// Places of words for what the model writes.
    pub(super) outputs: Vec<usize>,
    /// Places where a window is named.
    pub(super) windows: Vec<usize>,
    /// Whether it speaks of tokens.
    pub(super) has_tokens: bool,
    /// Whether it adds two numbers.
    pub(super) has_sum: bool,
    /// The comparisons and their places, in order.
    pub(super) relations: Vec<(Relation, usize)>,
    /// Its numbers, in order.
    pub(super) measures: Vec<Measure>,
}

impl<'t> Reading<'t> {
    /// Reads a text that `blank` has prepared.
    pub(super) fn of(text: &'t str) -> Self {
        let mut reading = Self {
            tokens: Vec::new(),
            starts_plainly: text.trim_start().starts_with(char::is_alphanumeric),
            advice: Vec::new(),
            lead_in: 0,
            inputs: Vec::new(),
            outputs: Vec::new(),
            windows: Vec::new(),
            has_tokens: false,
            has_sum: false,
            relations: Vec::new(),
            measures: Vec::new(),
        };
        for sentence in first_sentences(text) {
            let start = reading.tokens.len();
            reading.tokens.extend(tokens::read(sentence));
            if start > 0 && words::ADVICE.contains(&reading.word(start)) {
                reading.advice.push(start..reading.tokens.len());
            }
            reading.tokens.push(Token::Sign('.'));
        }
        reading.lead_in = reading.find_lead_in();
        reading.windows = reading.places(|at| reading.is_window(at));
        reading.inputs = reading.places(|at| {
            words::INPUTS.contains(&reading.word(at))
                && !reading.is_window(at)
                && !reading.is_window(at + 1)
                && reading.word_before(at, 1) != "per"
        });
        reading.outputs = reading
            .places(|at| at >= reading.lead_in && words::OUTPUTS.contains(&reading.word(at)));
        reading.has_tokens =
            (0..reading.tokens.len()).any(|at| words::is_token_unit(reading.word(at)));
        reading.has_sum = (0..reading.tokens.len()).any(|at| reading.is_sum(at));
        reading.relations = (0..reading.tokens.len())
            .filter_map(|at| reading.relation_at(at).map(|relation| (relation, at)))
            .collect();
        reading.measures = (0..reading.tokens.len())
            .filter_map(|at| reading.measure(at))
            .collect();
        reading
    }

    fn places(&self, is_one: impl Fn(usize) -> bool) -> Vec<usize> {
        (0..self.tokens.len()).filter(|at| is_one(*at)).collect()
    }

    /// The word at a place; empty for a number, a sign and a place outside of the text.
    pub(super) fn word(&self, at: usize) -> &'t str {
        match self.tokens.get(at).copied() {
            Some(Token::Word(word)) => word,
            _ => "",
        }
    }

    /// The word so many places before.
    pub(super) fn word_before(&self, at: usize, places: usize) -> &'t str {
        at.checked_sub(places).map_or("", |at| self.word(at))
    }

    /// The token before a place.
    pub(super) fn token_before(&self, at: usize) -> Option<Token<'t>> {
        at.checked_sub(1).map(|at| self.tokens[at])
    }

    pub(super) fn is_number(&self, at: usize) -> bool {
        matches!(self.tokens.get(at), Some(Token::Number(_)))
    }

    pub(super) fn has_word(&self, list: &[&str]) -> bool {
        (0..self.tokens.len()).any(|at| list.contains(&self.word(at)))
    }

    /// The place where a lead-in ends that says that something failed. Its words do not name what
    /// was too long.
    fn find_lead_in(&self) -> usize {
        let begin = &self.tokens[..self.tokens.len().min(LEAD_IN_WORDS)];
        let first = |sign: char| begin.iter().position(|token| *token == Token::Sign(sign));
        let names_none = |end: &usize| self.names_no_parameter(*end);
        if let Some(end) = [first(':'), first(',')]
            .into_iter()
            .flatten()
            .find(names_none)
        {
            return end;
        }
        let Some(end) = first(':') else {
            return 0;
        };
        let says_failed = matches!(
            self.word_before(end, 1),
            "failed" | "rejected" | "refused" | "aborted"
        );
        let is_upload =
            (0..end).any(|at| matches!(self.word(at), "file" | "image" | "images" | "audio"));
        if says_failed && !is_upload { end } else { 0 }
    }

    /// "Invalid parameter": the words before this place name none.
    fn names_no_parameter(&self, end: usize) -> bool {
        let is_kind = |word: &str| {
            matches!(
                word,
                "invalid" | "api" | "request" | "parameter" | "parameters"
            )
        };
        self.word(0) == "invalid" && (0..end).all(|at| is_kind(self.word(at)))
    }

    /// Whether numbers stand on both sides of a plus.
    fn is_sum(&self, at: usize) -> bool {
        self.tokens[at] == Token::Sign('+')
            && (at.saturating_sub(4)..at).any(|at| self.is_number(at))
            && (at + 1..at + 3).any(|at| self.is_number(at))
    }

    /// The places of texts that were sent. "The request" alone may be the one in which a parameter
    /// stands.
    pub(super) fn texts(&self) -> impl Iterator<Item = usize> {
        let inputs = self.inputs.iter().copied();
        inputs.filter(move |at| self.word(*at) != "request")
    }

    /// The place of the first comparison; without one, the end of the text.
    pub(super) fn sent_side_end(&self) -> usize {
        self.relations
            .first()
            .map_or(self.tokens.len(), |(_, at)| *at)
    }

    /// Whether a word of the message asks for a shorter text.
    pub(super) fn asks_to_shorten(&self) -> bool {
        self.has_word(words::SHORTEN)
    }

    /// Whether the message is about tokens that were used, or about tools.
    pub(super) fn is_about_use(&self) -> bool {
        self.has_word(words::USES)
    }

    /// Whether the limit is one of a request that may hold many texts, as a batch does.
    pub(super) fn is_about_one_request(&self) -> bool {
        (0..self.tokens.len()).any(|at| {
            self.word(at) == "per" && matches!(self.word(at + 1), "request" | "call" | "batch")
        })
    }

    /// Whether a word shows that its numbers count tokens, though it does not say so.
    pub(super) fn has_context_words(&self) -> bool {
        self.has_word(&["sequence", "context", "ctx", "input_ids", "token_ids"])
    }

    /// Whether this is the first word of "max tokens" or "maximum number of tokens".
    pub(super) fn is_max_tokens(&self, at: usize) -> bool {
        let is_number =
            matches!(self.word(at + 1), "number" | "count") && self.word(at + 2) == "of";
        let unit = at + if is_number { 3 } else { 1 };
        matches!(self.word(at), "max" | "maximum") && words::is_token_unit(self.word(unit))
    }

    /// Whether a word shows that the error is not about the length of a context.
    pub(super) fn is_about_something_else(&self) -> bool {
        let compares_tokens = self.compares_tokens();
        (0..self.tokens.len()).any(|at| {
            let (word, next) = (self.word(at), self.word(at + 1));
            // "The context budget is exhausted" is about no money.
            let is_of_context = || {
                word == "budget"
                    && matches!(self.word_before(at, 1), "context" | "prompt" | "input")
            };
            (words::UNRELATED.contains(&word) && !is_of_context())
                || (!compares_tokens && self.is_about_setup(at))
                || (words::OTHER_LIMITS.contains(&word)
                    && self.states(at)
                    && !(compares_tokens && self.is_beside(at)))
                || words::UNRELATED_PAIRS.contains(&(word, next))
                || self.counts_tools(at)
                || self.demands_more(at)
        })
    }

    /// Whether the word at this place says what is wrong: it is part of no advice, no lead-in and
    /// no "max_tokens parameter".
    fn states(&self, at: usize) -> bool {
        let names_parameter =
            self.word(at) == "parameter" && words::OUTPUTS.contains(&self.word_before(at, 1));
        at >= self.lead_in
            && !names_parameter
            && !self.advice.iter().any(|advice| advice.contains(&at))
    }

    /// Whether the word at this place says how the server is set up, in a message that names no
    /// text which may have been too long for it.
    fn is_about_setup(&self, at: usize) -> bool {
        let is_setup = words::SETUP.contains(&self.word(at)) && self.states(at);
        let is_text = |word: &str| !matches!(word, "context" | "ctx" | "sequence" | "chat");
        is_setup
            && !self
                .texts()
                .any(|text| is_text(self.word(text)) && text + 1 != at)
    }

    /// Whether the word at this place is the unit of a number of tools.
    fn counts_tools(&self, at: usize) -> bool {
        matches!(self.word(at), "tool" | "tools" | "function" | "functions")
            && at > 0
            && self.is_number(at - 1)
    }

    /// Whether a value must be larger: "must be at least", "should be greater".
    fn demands_more(&self, at: usize) -> bool {
        let is_demand = matches!(self.word(at), "must" | "should") && self.word(at + 1) == "be";
        is_demand
            && match self.word(at + 2) {
                "greater" => true,
                "at" => self.word(at + 3) == "least",
                _ => false,
            }
    }

    /// Whether a window is named at this place.
    pub(super) fn is_window(&self, at: usize) -> bool {
        let word = self.word(at);
        let (before, earlier) = (self.word_before(at, 1), self.word_before(at, 2));
        let is_context_of_model =
            word == "context" && matches!(before, "model's" | "model" | "its" | "max" | "maximum");
        let has_size = self.is_number(at + 1)
            || (self.is_number(at + 2) && matches!(self.tokens[at + 1], Token::Sign(':' | '=')));
        let is_sized = word == "window" && has_size;
        // "The model's max input tokens"
        let is_most_input = words::is_token_unit(word)
            && matches!(before, "input" | "prompt" | "context")
            && matches!(earlier, "max" | "maximum");
        if is_context_of_model || is_sized || is_most_input || words::is_window_name(word) {
            return true;
        }
        if !words::WINDOW_NOUNS.contains(&word) {
            return false;
        }
        if at > 0 && self.is_number(at - 1) {
            let owners = ["model's", "model", "its", "the", "a", "context"];
            return word == "window" && owners.contains(&earlier);
        }
        match before {
            "context" | "ctx" => true,
            // "The sequence length" may be that of the prompt.
            "sequence" | "seq" => matches!(
                earlier,
                "max" | "maximum" | "model" | "model's" | "allowed" | "supported" | "specified"
            ),
            "prompt" | "input" => matches!(
                earlier,
                "max" | "maximum" | "maximal" | "allowed" | "model" | "model's" | "its"
            ),
            "token" | "tokens" => matches!(word, "limit" | "limits" | "capacity"),
            "model" | "model's" => matches!(
                word,
                "window" | "length" | "len" | "limit" | "limits" | "capacity" | "maximum"
            ),
            "kv" => word == "size",
            "its" | "the" | "a" => word == "window",
            _ => false,
        }
    }

    /// Whether the window at this place is one of a context: a limit of tokens may be a quota.
    pub(super) fn is_context_window(&self, at: usize) -> bool {
        self.is_window(at) && !matches!(self.word_before(at, 1), "token" | "tokens")
    }

    /// Whether a number counts something else than tokens, such as messages.
    pub(super) fn counts_other(&self) -> bool {
        (0..self.tokens.len()).any(|at| self.is_number(at) && self.is_other_number(at))
    }

    /// The number at this place; None if it is none, or counts something else than tokens.
    fn measure(&self, at: usize) -> Option<Measure> {
        let Token::Number(value) = self.tokens[at] else {
            return None;
        };
        // "Exceeded by 300 tokens" gives a difference, "after 300 tokens" a place.
        let is_before = matches!(self.word_before(at, 1), "by" | "after");
        if is_before || self.is_difference(at) {
            return None;
        }
        let (unit, role) = (self.unit(at), self.role(at));
        let is_unknown =
            value < MIN_UNNAMED && unit == Unit::Unnamed && role.is_none() && !self.has_sum;
        (unit != Unit::Other && !is_unknown).then_some(Measure { value, role, unit })
    }

    /// "33 more than", "700 tokens fewer than": the number at this place is a difference.
    pub(super) fn is_difference(&self, at: usize) -> bool {
        let is_counted = words::is_token_unit(self.word(at + 1));
        let word = at + 1 + usize::from(is_counted);
        matches!(self.word(word), "more" | "fewer" | "less") && self.word(word + 1) == "than"
    }

    /// Whether the number at this place counts something else than tokens, by its unit or because no
    /// limit of tokens is so small.
    fn is_other_number(&self, at: usize) -> bool {
        let is_small = matches!(self.tokens[at], Token::Number(value) if value < MIN_UNNAMED);
        match self.unit(at) {
            Unit::Other => true,
            Unit::Unnamed => is_small && self.role(at) == Some(Role::Limit),
            Unit::Tokens | Unit::Output => false,
        }
    }

    /// What the number at this place counts, by the words beside it.
    fn unit(&self, at: usize) -> Unit {
        let is_joint = |token: &Token<'_>| matches!(token, Token::Sign('(' | ':' | '='));
        let owner = self.tokens[..at].iter().rposition(|token| !is_joint(token));
        if let Some(owner) = owner {
            // "At token 512" gives a place.
            let is_place = owner + 1 == at
                && self.word(owner) == "token"
                && !matches!(self.word_before(owner, 1), "max" | "maximum");
            if is_place {
                return Unit::Other;
            }
            for places in 0..UNIT_WORDS {
                let word = self.word_before(owner, places);
                if words::is_token_unit(word) {
                    return Unit::Tokens;
                }
                if !words::BEFORE_NUMBERS.contains(&word) {
                    break;
                }
            }
        }
        for place in at + 1..=at + UNIT_WORDS {
            let word = self.word(place);
            if words::is_token_unit(word) || word == "ids" {
                return Unit::Tokens;
            }
            if words::OUTPUT_UNITS.contains(&word) {
                return Unit::Output;
            }
            let counts_other =
                words::OTHER_UNITS.contains(&word) && !words::is_token_unit(self.word(place + 1));
            if counts_other && place == at + 1 {
                return Unit::Other;
            }
            if !words::BEFORE_UNITS.contains(&word) {
                break;
            }
        }
        Unit::Unnamed
    }

    /// The role of the number at this place.
    fn role(&self, at: usize) -> Option<Role> {
        self.role_by_words_after(at).or_else(|| {
            if self.is_whole_of_part(at) {
                Some(Role::Limit)
            } else if self.tokens.get(at + 1) == Some(&Token::Sign('/'))
                && self.is_number(at + 2)
                && self.is_whole_of_part(at + 2)
            {
                Some(Role::Sent)
            } else {
                self.role_by_words_before(at)
            }
        })
    }

    fn role_by_words_after(&self, at: usize) -> Option<Role> {
        for place in at + 1..=at + LIMIT_WORDS {
            let (word, next) = (self.word(place), self.word(place + 1));
            // "9000 tokens of context" and "9000 context tokens" may have been sent.
            let is_context =
                word == "context" && self.word(place - 1) != "of" && !words::is_token_unit(next);
            let is_at_most = word == "at" && next == "most";
            if is_at_most || is_context || words::LIMITS_AFTER.contains(&word) {
                return Some(Role::Limit);
            }
            if !words::is_token_unit(word) && !words::BEFORE_UNITS.contains(&word) {
                break;
            }
        }
        for place in at + 1..=at + SENT_WORDS {
            let word = self.word(place);
            if words::SENT_AFTER.contains(&word) {
                return Some(Role::Sent);
            }
            let may_go_on = words::is_token_unit(word)
                || words::BEFORE_UNITS.contains(&word)
                || words::AUXILIARIES.contains(&word);
            if !may_go_on {
                break;
            }
        }
        None
    }

    /// Whether the number at this place is the smaller one of "9000/8192" or "9000 of 8192".
    fn is_whole_of_part(&self, at: usize) -> bool {
        let Some(mut place) = at.checked_sub(1) else {
            return false;
        };
        let is_joint =
            self.tokens[place] == Token::Sign('/') || matches!(self.word(place), "of" | "vs");
        if !is_joint {
            return false;
        }
        let mut skip = |is_one: &dyn Fn(usize) -> bool| {
            if place > 0 && is_one(place - 1) {
                place -= 1;
            }
        };
        skip(&|at| self.word(at) == "out");
        skip(&|at| words::is_token_unit(self.word(at)));
        match (self.token_before(place), self.tokens[at]) {
            (Some(Token::Number(part)), Token::Number(whole)) => part > whole,
            _ => false,
        }
    }

    fn role_by_words_before(&self, at: usize) -> Option<Role> {
        let mut role = None;
        let mut words_left = ROLE_WORDS;
        for place in (0..at).rev() {
            match self.tokens[place] {
                Token::Number(_) | Token::Sign(';' | '.' | '!' | '?' | ',') => break,
                Token::Sign('<' | '>') => return Some(Role::Limit),
                // "The limit was reached with 9000 tokens" names no limit after its verb.
                Token::Sign(':') | Token::Word("reached" | "exceeded") if role.is_some() => break,
                Token::Sign(_) => {}
                Token::Word(word) => {
                    // "Your request will take 9000 tokens" says that they were sent.
                    let is_future = matches!(self.word_before(place, 1), "will" | "would");
                    // "Your messages add up to 9000 tokens", and so do these.
                    let verb = self.word_before(place, 1);
                    let is_addition = word == "up"
                        && (matches!(verb, "add" | "adds" | "sum" | "sums")
                            || (words::FILLS.contains(&verb) && self.word(place + 1) != "to"));
                    // "None has a context window large enough for 9000 tokens", too.
                    let is_enough = word == "enough" && self.word(place + 1) == "for";
                    // "The model cannot process 9000 tokens", either.
                    let is_refused = words::TAKES.contains(&word)
                        && self.is_denied(place)
                        && (word != "fit" || place + 1 == at);
                    // "The model has 8192 tokens" gives a limit, "the prompt takes 9000" none.
                    let owner = self.word_before(place, 1);
                    let is_of_model = matches!(word, "has" | "have") && owner == "model";
                    if is_of_model && role.is_none() {
                        return Some(Role::Limit);
                    }
                    let is_of_text = matches!(word, "takes" | "take")
                        && words::INPUTS.contains(&owner)
                        && !matches!(owner, "context" | "ctx");
                    if (is_addition || is_enough || is_refused || is_of_text) && role.is_none() {
                        return Some(Role::Sent);
                    }
                    let is_limit = !is_future
                        && (words::LIMITS.contains(&word)
                            || word.starts_with("max_")
                            || self.is_window(place));
                    if words::STRONG_LIMITS.contains(&word) || (role.is_none() && is_limit) {
                        return Some(Role::Limit);
                    }
                    let needs = matches!(word, "take" | "hold" | "need" | "use" | "require" | "be");
                    role = role.or(match word {
                        "context" | "ctx" => Some(Role::Context),
                        word if words::SENT.contains(&word) => Some(Role::Sent),
                        _ => (is_future && needs).then_some(Role::Sent),
                    });
                    words_left -= 1;
                    if words_left == 0 {
                        break;
                    }
                }
            }
        }
        role
    }
}
