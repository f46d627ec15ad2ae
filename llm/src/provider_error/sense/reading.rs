//! What the words and numbers of a message stand for: the sent text, the output, the window, the
//! comparison between them, and the role and the unit of each number.

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

/// A comparison that a message makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    /// What was sent is the larger side: it exceeds something, or does not fit.
    TooLarge,
    /// The window is the smaller side.
    TooSmall,
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
    tokens: Vec<Token<'t>>,
    /// The end of the first sentence.
    first_sentence: usize,
    /// Places of words for what was sent.
    pub(super) inputs: Vec<usize>,
    /// Places of words for what the model writes.
    pub(super) outputs: Vec<usize>,
    /// Places where a window is named.
    pub(super) windows: Vec<usize>,
    /// Whether it speaks of tokens.
    pub(super) has_tokens: bool,
    /// The first comparison, and its place.
    pub(super) relation: Option<(Relation, usize)>,
    /// Its numbers, in order.
    pub(super) measures: Vec<Measure>,
}

impl<'t> Reading<'t> {
    /// Reads a text that `blank` has prepared.
    pub(super) fn of(text: &'t str) -> Self {
        let [first, second] = first_sentences(text);
        let mut tokens = tokens::read(first);
        let first_sentence = tokens.len();
        tokens.push(Token::Sign('.'));
        tokens.extend(tokens::read(second));
        let mut reading = Self {
            tokens,
            first_sentence,
            inputs: Vec::new(),
            outputs: Vec::new(),
            windows: Vec::new(),
            has_tokens: false,
            relation: None,
            measures: Vec::new(),
        };
        reading.inputs = reading.places(|at| {
            words::INPUTS.contains(&reading.word(at))
                && !reading.is_window(at)
                && !reading.is_window(at + 1)
        });
        reading.outputs = reading.places(|at| words::OUTPUTS.contains(&reading.word(at)));
        reading.windows = reading.places(|at| reading.is_window(at));
        reading.has_tokens =
            (0..reading.tokens.len()).any(|at| words::is_token_unit(reading.word(at)));
        reading.relation = (0..reading.tokens.len())
            .find_map(|at| reading.relation_at(at).map(|relation| (relation, at)));
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
    fn word_before(&self, at: usize, places: usize) -> &'t str {
        at.checked_sub(places).map_or("", |at| self.word(at))
    }

    /// The place of the comparison; without one, the end of the text.
    pub(super) fn sent_side_end(&self) -> usize {
        self.relation.map_or(self.tokens.len(), |(_, at)| at)
    }

    pub(super) fn says_too_large(&self) -> bool {
        matches!(self.relation, Some((Relation::TooLarge, _)))
    }

    /// Whether the comparison is a sign, as in `9000 > 8192`.
    pub(super) fn is_compared_by_sign(&self) -> bool {
        self.relation
            .is_some_and(|(_, at)| self.tokens[at] == Token::Sign('>'))
    }

    /// Whether a window is exceeded, in the passive voice: "token limit exceeded".
    pub(super) fn is_passive(&self) -> bool {
        self.relation
            .is_some_and(|(_, at)| self.word(at) == "exceeded" && at > 0 && self.is_window(at - 1))
    }

    /// Whether the message says "context overflow", and names what was sent.
    pub(super) fn is_context_overflow(&self) -> bool {
        self.relation.is_some_and(|(_, at)| {
            self.word(at).starts_with("overflow")
                && self.word_before(at, 1) == "context"
                && self.inputs.iter().any(|input| input + 1 != at)
        })
    }

    /// Whether a word of the message asks for a shorter text.
    pub(super) fn asks_to_shorten(&self) -> bool {
        self.has_word(words::SHORTEN)
    }

    /// Whether the message is about tokens that were used, or about tools.
    pub(super) fn is_about_use(&self) -> bool {
        self.has_word(words::USES)
    }

    fn has_word(&self, list: &[&str]) -> bool {
        (0..self.tokens.len()).any(|at| list.contains(&self.word(at)))
    }

    /// Whether this is the first word of "max tokens".
    pub(super) fn is_max_tokens(&self, at: usize) -> bool {
        matches!(self.word(at), "max" | "maximum") && words::is_token_unit(self.word(at + 1))
    }

    /// Whether a word shows that the error is not about the length of a context.
    pub(super) fn is_about_something_else(&self) -> bool {
        (0..self.tokens.len()).any(|at| {
            let (word, next) = (self.word(at), self.word(at + 1));
            words::UNRELATED.contains(&word)
                || (at < self.first_sentence && words::OTHER_LIMITS.contains(&word))
                || words::UNRELATED_PAIRS.contains(&(word, next))
                || self.demands_more(at)
        })
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
    fn is_window(&self, at: usize) -> bool {
        let word = self.word(at);
        let is_context_of_model =
            word == "context" && matches!(self.word_before(at, 1), "model's" | "model" | "its");
        if is_context_of_model || words::WINDOW_NAMES.contains(&word) {
            return true;
        }
        if !words::WINDOW_NOUNS.contains(&word) {
            return false;
        }
        let before = self.word_before(at, 2);
        match self.word_before(at, 1) {
            "context" | "ctx" => true,
            // "The sequence length" may be that of the prompt.
            "sequence" | "seq" => matches!(
                before,
                "max" | "maximum" | "model" | "model's" | "allowed" | "supported" | "specified"
            ),
            "prompt" | "input" => matches!(before, "max" | "maximum" | "maximal" | "allowed"),
            "token" | "tokens" => matches!(word, "limit" | "limits" | "capacity"),
            "model" => matches!(word, "window" | "length" | "len" | "limit"),
            "kv" => word == "size",
            "model's" | "its" | "the" | "a" => word == "window",
            _ => false,
        }
    }

    /// The comparison at this place.
    fn relation_at(&self, at: usize) -> Option<Relation> {
        use Relation::{TooLarge, TooSmall};
        if self.tokens[at] == Token::Sign('>') {
            return Some(TooLarge);
        }
        let next = self.word(at + 1);
        let is_denied = || (1..=3).any(|places| words::NOT.contains(&self.word_before(at, places)));
        match self.word(at) {
            "beyond" | "above" | "over" => Some(TooLarge),
            "greater" | "longer" | "larger" | "bigger" | "higher" | "more" if next == "than" => {
                Some(TooLarge)
            }
            "too" if matches!(next, "long" | "large" | "big" | "many" | "much") => Some(TooLarge),
            "too" if next == "small" => Some(TooSmall),
            "smaller" | "shorter" if next == "than" && self.word_before(at, 1) != "be" => {
                Some(TooSmall)
            }
            "fit" | "fits" if is_denied() => Some(TooLarge),
            word => ["exceed", "surpass", "overflow", "overrun"]
                .iter()
                .any(|stem| word.starts_with(stem))
                .then_some(TooLarge),
        }
    }

    /// The number at this place; None if it is none, or counts something else than tokens.
    fn measure(&self, at: usize) -> Option<Measure> {
        let Token::Number(value) = self.tokens[at] else {
            return None;
        };
        let unit = self.unit(at);
        (unit != Unit::Other).then(|| Measure {
            value,
            role: self.role(at),
            unit,
        })
    }

    /// What the number at this place counts, by the words beside it.
    fn unit(&self, at: usize) -> Unit {
        let is_joint = |token: &&Token<'_>| matches!(token, Token::Sign('(' | ':' | '='));
        let owner = self.tokens[..at]
            .iter()
            .rev()
            .find(|token| !is_joint(token));
        if matches!(owner, Some(Token::Word(word)) if words::is_token_unit(word)) {
            return Unit::Tokens;
        }
        for place in at + 1..=at + UNIT_WORDS {
            let word = self.word(place);
            if words::is_token_unit(word) {
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
        for place in at + 1..=at + LIMIT_WORDS {
            let word = self.word(place);
            let is_at_most = word == "at" && self.word(place + 1) == "most";
            if is_at_most || words::LIMITS_AFTER.contains(&word) {
                return Some(Role::Limit);
            }
            if !words::is_token_unit(word) && !words::BEFORE_UNITS.contains(&word) {
                break;
            }
        }
        let mut role = None;
        let mut words_left = ROLE_WORDS;
        for place in (0..at).rev() {
            match self.tokens[place] {
                Token::Number(_) | Token::Sign(';' | '.' | '!' | '?' | ',') => break,
                Token::Sign('<' | '>') => return Some(Role::Limit),
                Token::Sign(_) => {}
                Token::Word(word) => {
                    let is_limit = words::LIMITS.contains(&word)
                        || word.starts_with("max_")
                        || self.is_window(place);
                    if words::STRONG_LIMITS.contains(&word) || (role.is_none() && is_limit) {
                        return Some(Role::Limit);
                    }
                    role = role.or(match word {
                        "context" => Some(Role::Context),
                        word => words::SENT.contains(&word).then_some(Role::Sent),
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
