//! The overflow guard, decided: what is tried next when a context is too long for its model. No step waits for anything.

use anneal_core::{context::Pressure, tokens::Tokens};

use crate::learning::LEAST_WINDOW;

/// The least room for an answer where a window seems full: what is counted here is not what the provider counts.
const LEAST_ROOM: Tokens = Tokens::new(256);

/// What of the window, less the answer, a context may take that is to fit: an estimate is short of a count by 5 % at most.
const FITTING_PERCENT: u64 = 95;
/// The same after a refusal has shown that the counting is off.
const SMALLER_PERCENT: u64 = 75;

/// What has been done to a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Whole,
    TruncatedResults,
    /// And within the window.
    Compacted,
    /// Well within it.
    Smaller,
}

/// Where a turn stands. Tokens are the model's, except where it says otherwise.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    stage: Stage,
    /// The model's window, as configured.
    window: Tokens,
    /// The window that its provider has named.
    learnt: Option<Tokens>,
    /// The model's tokens for each counted here.
    ratio: Option<f64>,
    /// What an error of this turn says of it.
    measured: Option<f64>,
    /// Most that the model writes.
    output: Tokens,
    /// Room for the answer that the caller asks for.
    asked: Option<Tokens>,
    /// Description of tools, counted here.
    tools: Tokens,
}

impl Guard {
    /// Before the first attempt.
    pub(super) const fn new(window: Tokens, output: Tokens, asked: Option<Tokens>, tools: Tokens) -> Self {
        Self { stage: Stage::Whole, window, learnt: None, ratio: None, measured: None, output, asked, tools }
    }

    /// Takes in what is stored of the model: the policy's window, the window that its provider has named, how it counts.
    pub(super) fn knows(&mut self, window: Option<Tokens>, learnt: Option<Tokens>, ratio: Option<f64>) {
        self.window = self.window.min(window.unwrap_or(self.window));
        self.learnt = self.learnt.into_iter().chain(learnt).min();
        self.ratio = ratio;
    }

    /// Takes in what an overflow error says: the window, and how the model counts.
    pub(super) fn is_told(&mut self, window: Option<Tokens>, ratio: Option<f64>) {
        let window = window.filter(|window| *window >= LEAST_WINDOW);
        self.learnt = self.learnt.into_iter().chain(window).min();
        self.measured = ratio.or(self.measured);
    }

    /// How the next context is to be counted, where this turn knows better than what is stored.
    pub(super) const fn measured(&self) -> Option<f64> {
        self.measured
    }

    /// How hard the next context is pressed.
    pub(super) const fn pressure(&self) -> Pressure {
        match self.stage {
            Stage::Whole => Pressure::None,
            Stage::TruncatedResults => Pressure::TruncateToolResults,
            Stage::Compacted | Stage::Smaller => Pressure::Compact,
        }
    }

    /// What the next context may count; None: as much as it likes. Only the last ones are sure to fit: until then as
    /// little as possible is left out.
    pub(super) fn budget(&self) -> Option<Tokens> {
        let percent = match self.stage {
            Stage::Whole | Stage::TruncatedResults => return None,
            Stage::Compacted => FITTING_PERCENT,
            Stage::Smaller => SMALLER_PERCENT,
        };
        Some(self.left(percent).less(self.counted(self.tools)))
    }

    /// This share of what the answer leaves of the window.
    fn left(&self, percent: u64) -> Tokens {
        Tokens::new(self.window().less(self.room()).get() * percent / 100)
    }

    /// What a context of `own` tokens counted here sends, the tools' description included.
    pub(super) fn sent(&self, own: Tokens) -> Tokens {
        self.counted(own) + self.counted(self.tools)
    }

    /// The same, counted here.
    pub(super) fn own(&self, own: Tokens) -> Tokens {
        own + self.tools
    }

    /// Whether it is known that the provider will refuse a context that sends so much. A window that is only configured
    /// proves nothing.
    pub(super) fn is_doomed(&self, sent: Tokens) -> bool {
        let proven = matches!(self.stage, Stage::Whole | Stage::TruncatedResults);
        proven && self.learnt.is_some_and(|window| sent + self.room() > window)
    }

    /// Room for the answer: what is asked for, or else a quarter of the window; never above what the model writes, nor
    /// above half of the window.
    pub(super) fn room(&self) -> Tokens {
        let window = self.window().get();
        let most = self.asked.unwrap_or(Tokens::new(window / 4)).min(self.output);
        most.min(Tokens::new(window / 2)).max(Tokens::new(1))
    }

    /// Room beside a context that sends so much.
    pub(super) fn room_beside(&self, sent: Tokens) -> Tokens {
        self.room().min(self.window().less(sent).max(LEAST_ROOM))
    }

    /// The model's window, as far as known.
    pub(super) fn window(&self) -> Tokens {
        self.learnt.map_or(self.window, |learnt| learnt.min(self.window))
    }

    /// Goes on after a context of `own` tokens would not do. False: nothing is left to try.
    pub(super) fn next(&mut self, own: Tokens) -> bool {
        let ratio = self.measured.or(self.ratio);
        let sent = Self { ratio, ..self.clone() }.sent(own);
        self.stage = match self.stage {
            Stage::Whole => Stage::TruncatedResults,
            Stage::TruncatedResults => Stage::Compacted,
            // It was cut to what was known then; only what is known since then gives it another try.
            Stage::Compacted if sent > self.left(FITTING_PERCENT) => Stage::Smaller,
            Stage::Compacted | Stage::Smaller => return false,
        };
        true
    }

    /// Which attempt this is: 0 for the first.
    pub(super) const fn attempt(&self) -> i32 {
        match self.stage {
            Stage::Whole => 0,
            Stage::TruncatedResults => 1,
            Stage::Compacted => 2,
            Stage::Smaller => 3,
        }
    }

    /// Whether this attempt is the one that only new knowledge allows.
    pub(super) const fn is_extra(&self) -> bool {
        matches!(self.stage, Stage::Smaller)
    }

    fn counted(&self, own: Tokens) -> Tokens {
        Tokens::new((own.get() as f64 * self.ratio.unwrap_or(1.0)).ceil() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(n: u64) -> Tokens {
        Tokens::new(n)
    }

    fn guard(window: u64) -> Guard {
        Guard::new(tokens(window), tokens(100_000), None, Tokens::ZERO)
    }

    #[test]
    fn a_model_that_refuses_everything_and_says_nothing_is_asked_three_times() {
        let mut guard = guard(8_000);
        let mut tried = Vec::new();
        loop {
            tried.push((guard.attempt(), guard.pressure(), guard.budget()));
            if !guard.next(guard.budget().unwrap_or(tokens(9_000))) {
                break;
            }
        }
        let last = (2, Pressure::Compact, Some(tokens(5_700)));
        assert_eq!(tried, [(0, Pressure::None, None), (1, Pressure::TruncateToolResults, None), last]);
    }

    #[test]
    fn a_refusal_that_names_a_smaller_window_than_the_context_was_cut_to_gives_one_more_try() {
        let mut guard = guard(8_000);
        assert!(guard.next(tokens(9_000)) && guard.next(tokens(9_000)));
        guard.is_told(Some(tokens(4_000)), None);
        assert!(guard.next(tokens(6_000)));
        assert_eq!(
            (guard.attempt(), guard.budget()),
            (3, Some(tokens(2_250))),
            "three quarters of what the answer leaves"
        );
        guard.is_told(Some(tokens(1_000)), None);
        assert!(!guard.next(tokens(2_250)), "and no other");
    }

    #[test]
    fn a_refusal_that_counts_more_than_we_do_gives_one_more_try() {
        let mut guard = guard(8_000);
        assert!(guard.next(tokens(9_000)) && guard.next(tokens(9_000)));
        guard.is_told(None, Some(1.5));
        assert_eq!(guard.measured(), Some(1.5));
        assert!(guard.next(tokens(6_000)));
    }

    #[test]
    fn only_a_window_that_the_provider_has_named_dooms_a_context() {
        let mut guard = guard(8_000);
        assert!(!guard.is_doomed(tokens(9_000)));
        guard.knows(None, Some(tokens(8_000)), None);
        assert!(!guard.is_doomed(tokens(6_000)) && guard.is_doomed(tokens(6_001)));
        guard.next(Tokens::ZERO);
        guard.next(Tokens::ZERO);
        assert!(!guard.is_doomed(tokens(9_000)), "the last attempt is made in any case");
    }

    #[test]
    fn a_limit_below_every_window_teaches_nothing() {
        let mut guard = guard(8_000);
        guard.is_told(Some(tokens(511)), None);
        assert_eq!(guard.window(), tokens(8_000));
        guard.is_told(Some(tokens(512)), None);
        assert_eq!((guard.window(), guard.room()), (tokens(512), tokens(128)));
    }

    #[test]
    fn the_answer_gets_what_it_asks_for_within_the_model_and_its_window() {
        let room =
            |output, asked: Option<u64>| Guard::new(tokens(8_000), tokens(output), asked.map(tokens), Tokens::ZERO);
        assert_eq!(room(100_000, None).room(), tokens(2_000));
        assert_eq!(room(1_000, None).room(), tokens(1_000));
        assert_eq!(room(100_000, Some(3_000)).room(), tokens(3_000));
        assert_eq!(room(100_000, Some(7_000)).room(), tokens(4_000));
        assert_eq!(room(100_000, None).room_beside(tokens(7_000)), tokens(1_000));
        assert_eq!(room(100_000, None).room_beside(tokens(9_000)), LEAST_ROOM);
    }

    #[test]
    fn tools_take_their_share_of_the_budget() {
        let mut guard = Guard::new(tokens(8_000), tokens(100_000), None, tokens(500));
        guard.knows(None, None, Some(2.0));
        assert!(guard.next(Tokens::ZERO) && guard.next(Tokens::ZERO));
        assert_eq!(guard.budget(), Some(tokens(4_700)));
        assert_eq!(guard.sent(tokens(2_500)), tokens(6_000));
    }
}
