//! The comparisons that a message makes.

use super::{
    reading::{Measure, Reading, Relation, Role, Unit},
    tokens::Token,
    words,
};

/// Most words before a verb that may deny it.
const DENIAL_WORDS: usize = 3;
/// Most words before a comparison that may demand it.
const DEMAND_WORDS: usize = 4;
/// Most words after a verb in which its context may stand.
const OBJECT_WORDS: usize = 6;

impl Reading<'_> {
    /// Whether a comparison says that what was sent is the larger side.
    pub(super) fn says_too_large(&self) -> bool {
        self.relations
            .iter()
            .any(|(relation, _)| *relation != Relation::TooSmall)
    }

    /// Whether a comparison is a sign, as in `9000 > 8192`.
    pub(super) fn is_compared_by_sign(&self) -> bool {
        self.relations
            .iter()
            .any(|(_, at)| self.tokens[*at] == Token::Sign('>'))
    }

    /// Whether the message gives the tokens of a text that was sent, and a smaller number as a limit:
    /// then a word about something else may stand beside them.
    pub(super) fn compares_tokens(&self) -> bool {
        let measures = self.measures.iter();
        let sent = measures
            .clone()
            .filter(|found| found.unit == Unit::Tokens && found.role != Some(Role::Limit))
            .map(|found| found.value)
            .max();
        let is_smaller_limit = |found: &Measure| {
            found.role == Some(Role::Limit)
                && found.unit != Unit::Output
                && sent.is_some_and(|sent| found.value < sent)
        };
        let is_text = |word: &str| !matches!(word, "context" | "ctx" | "sequence");
        self.texts().any(|at| is_text(self.word(at)))
            && self.outputs.is_empty()
            && measures.clone().any(is_smaller_limit)
    }

    /// Whether the word at this place is one that a message about tokens may have beside them: a
    /// thing that was sent or is configured, and no unit of a number.
    pub(super) fn is_beside(&self, at: usize) -> bool {
        let is_unit = (1..=2).any(|places| at >= places && self.is_number(at - places));
        !is_unit && words::BESIDE.contains(&self.word(at))
    }

    /// The place of the window that is exceeded, in the passive voice: "token limit exceeded",
    /// "context window of 8192 tokens has been exceeded".
    pub(super) fn exceeded_window(&self) -> Option<usize> {
        let verbs = self.relations.iter().map(|(_, at)| *at);
        verbs
            .filter(|at| words::EXCEEDED.contains(&self.word(*at)))
            .find_map(|at| self.subject(at).filter(|subject| self.is_window(*subject)))
    }

    /// Whether a window is said to overflow: "context window overflow".
    pub(super) fn says_window_overflows(&self) -> bool {
        self.relations.iter().any(|(_, at)| {
            let is_context = |place: usize| {
                self.is_context_window(place) || matches!(self.word(place), "context" | "ctx")
            };
            let word = self.word(*at);
            let is_overflow = ["overflow", "overrun"]
                .iter()
                .any(|stem| word.starts_with(stem));
            is_overflow && *at > 0 && is_context(at - 1)
        })
    }

    /// The word before a verb, without auxiliaries and a measure between them.
    fn subject(&self, verb: usize) -> Option<usize> {
        (0..verb).rev().find(|at| match self.tokens[*at] {
            Token::Number(_) | Token::Sign('(' | ')') => false,
            Token::Sign(_) => true,
            Token::Word(word) => {
                let is_unit = words::is_token_unit(word) && !self.is_window(*at);
                !is_unit && !words::AUXILIARIES.contains(&word)
            }
        })
    }

    pub(super) fn is_denied(&self, at: usize) -> bool {
        (1..=DENIAL_WORDS).any(|places| {
            let word = self.word_before(at, places);
            words::NOT.contains(&word) || word.ends_with("n't") || word.ends_with("n\u{2019}t")
        })
    }

    /// Whether the subject of the sentence denies the verb at this place: "no model can take".
    fn is_denied_by_subject(&self, at: usize) -> bool {
        let begin = (0..at)
            .rev()
            .find(|place| self.tokens[*place] == Token::Sign('.'))
            .map_or(0, |end| end + 1);
        let is_able = ["can", "could", "has", "have", "offers"].contains(&self.word_before(at, 1));
        is_able && words::NO_SUBJECTS.contains(&self.word(begin))
    }

    /// Whether the words before this place demand it: "must be", "has to be".
    fn is_demanded(&self, at: usize) -> bool {
        (1..=DEMAND_WORDS).any(|places| match self.word_before(at, places) {
            "must" | "should" | "shall" => true,
            "has" | "have" | "need" | "needs" => self.word_before(at, places - 1) == "to",
            _ => false,
        })
    }

    /// The comparison at this place.
    pub(super) fn relation_at(&self, at: usize) -> Option<Relation> {
        if self.tokens[at] == Token::Sign('>') {
            return Some(Relation::TooLarge);
        }
        self.comparison_of_sizes(at)
            .or_else(|| self.comparison_of_room(at))
    }

    fn comparison_of_sizes(&self, at: usize) -> Option<Relation> {
        use Relation::{TooLarge, TooSmall};
        let next = self.word(at + 1);
        let is_too_large = match self.word(at) {
            "beyond" | "above" | "over" => true,
            "greater" | "longer" | "larger" | "bigger" | "higher" | "more" => next == "than",
            "excess" => next == "of",
            "within" | "below" | "under" => self.is_demanded(at),
            "less" | "fewer" | "smaller" | "shorter" | "lower" if next == "than" => {
                if self.is_demanded(at) {
                    return Some(TooLarge);
                }
                let is_difference = [1, 2]
                    .iter()
                    .any(|places| at >= *places && self.is_number(at - places));
                let is_smaller =
                    is_difference || (self.word(at) != "fewer" && self.word_before(at, 1) != "be");
                return is_smaller.then_some(TooSmall);
            }
            "at" => next == "most" && self.is_demanded(at),
            "too" if next == "small" => return Some(TooSmall),
            "too" => matches!(next, "long" | "large" | "big" | "many" | "much" | "lengthy"),
            "reached" | "reaches" | "hit" | "hits" => {
                (at + 1..at + OBJECT_WORDS).any(|at| self.is_context_window(at))
            }
            "past" => {
                let is_gone = matches!(
                    self.word_before(at, 1),
                    "go" | "goes"
                        | "going"
                        | "gone"
                        | "went"
                        | "grown"
                        | "grew"
                        | "run"
                        | "runs"
                        | "ran"
                        | "is"
                );
                is_gone || (at + 1..at + OBJECT_WORDS).any(|at| self.is_context_window(at))
            }
            word => [
                "exceed",
                "surpass",
                "overflow",
                "overrun",
                "overshoot",
                "outgr",
                "breach",
            ]
            .iter()
            .any(|stem| word.starts_with(stem)),
        };
        is_too_large.then_some(TooLarge)
    }

    fn comparison_of_room(&self, at: usize) -> Option<Relation> {
        use Relation::{DoesNotFit, Full, NoRoom, TooSmall};
        let word = self.word(at);
        match word {
            "fit" | "fits" | "accommodate" | "accommodated" => {
                let is_denied = self.is_denied(at) || self.is_denied_by_subject(at);
                (is_denied || self.is_demanded(at)).then_some(DoesNotFit)
            }
            "process" | "handle" | "accept" | "read" | "take" | "hold"
                if self.is_denied_by_subject(at) =>
            {
                Some(DoesNotFit)
            }
            "enough" if self.is_missing_size(at) => Some(TooSmall),
            "room" | "space" => {
                let is_missing = (1..=DENIAL_WORDS)
                    .any(|places| words::LACKS.contains(&self.word_before(at, places)));
                (is_missing && self.is_room_for_text(at)).then_some(NoRoom)
            }
            "out" => {
                let is_running =
                    matches!(self.word_before(at, 1), "ran" | "run" | "runs" | "running");
                let is_of_context = self.word(at + 1) == "of"
                    && [at + 2, at + 3]
                        .iter()
                        .any(|at| self.word(*at) == "context");
                (is_running && is_of_context).then_some(Full)
            }
            _ => {
                let is_full_context = matches!(
                    word,
                    "full" | "exhausted" | "filled" | "depleted" | "reached"
                ) && self.subject(at).is_some_and(|subject| {
                    self.word(subject) == "context" || self.is_context_window(subject)
                });
                (is_full_context || self.fills_context(at)).then_some(Full)
            }
        }
    }

    /// "None has a context window large enough", "no window is big enough".
    fn is_missing_size(&self, at: usize) -> bool {
        let is_size = matches!(self.word_before(at, 1), "large" | "big" | "long" | "wide");
        let mut before = (0..at).map(|place| self.word(place));
        is_size && before.any(|word| words::NO_SUBJECTS.contains(&word))
    }

    /// Whether the room at this place is one for a text, as far as the message says what for.
    fn is_room_for_text(&self, at: usize) -> bool {
        let is_text = |word: &str| {
            words::INPUTS.contains(&word)
                || words::OUTPUTS.contains(&word)
                || words::is_token_unit(word)
        };
        self.word(at + 1) != "for" || (at + 2..at + 5).any(|at| is_text(self.word(at)))
    }

    /// Whether a text fills all of a context: "uses all 8192 tokens of the context".
    fn fills_context(&self, at: usize) -> bool {
        if !words::FILLS.contains(&self.word(at)) {
            return false;
        }
        let mut object = at + 1;
        for optional in [&["up", "already"][..], &["the"][..]] {
            object += usize::from(optional.contains(&self.word(object)));
        }
        matches!(
            self.word(object),
            "all" | "whole" | "entire" | "full" | "every"
        ) && (object + 1..=object + OBJECT_WORDS)
            .any(|at| matches!(self.word(at), "context" | "ctx" | "window"))
    }
}
