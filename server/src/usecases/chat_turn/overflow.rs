//! Decides what is tried next when a context is too long for its model. Pure: no I/O.
//!
//! A turn makes at most four attempts:
//! 1. with the whole context;
//! 2. with tool results truncated;
//! 3. compacted to 95 % of what the answer leaves of the window;
//! 4. compacted to 75 % of what the answer leaves, if a refusal has brought new information.
//!
//! After a refusal that is only likely about the length, tool results are truncated once. Nothing
//! is compacted and nothing is learnt: if that does not help, the refusal is what the caller gets.
//!
//! If the caller has asked that nothing of the context is reduced, the first attempt is the only
//! one.

use anneal_core::{context::Pressure, tokens::Tokens};
use anneal_llm::provider_error::Confidence;

use crate::usecases::model_calibration::MIN_WINDOW;

/// Least tokens for the answer where the window seems full. The provider's count may be lower than
/// ours.
const MIN_ANSWER_TOKENS: Tokens = Tokens::new(256);

/// The part of the window, less the answer, that a compacted context may take, in percent. An
/// estimate is at most 5 % below the count.
const FITTING_PERCENT: u64 = 95;
/// The same part after a refusal has shown that the window is smaller or our count too low, in
/// percent.
const SMALLER_PERCENT: u64 = 75;

/// The treatment of a context that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OnOverflow {
    /// It is reduced, and the model is called again.
    #[default]
    Reduce,
    /// The turn fails.
    Fail,
}

/// The attempts, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Whole,
    TruncatedResults,
    /// Compacted to [`FITTING_PERCENT`].
    Compacted,
    /// Compacted to [`SMALLER_PERCENT`].
    Smaller,
}

/// The state of a turn's attempts. Tokens are those that the model's provider counts, unless a
/// comment says that they are counted here.
#[derive(Debug, Clone)]
pub(super) struct OverflowGuard {
    stage: Stage,
    on_overflow: OnOverflow,
    /// The configured window.
    window: Tokens,
    /// The window that the provider has named in an error.
    learnt_window: Option<Tokens>,
    /// The stored ratio: the model's tokens per token counted here.
    ratio: Option<f64>,
    /// The ratio that an error of this turn has shown.
    refusal_ratio: Option<f64>,
    /// Most tokens that the model writes.
    output: Tokens,
    /// Most tokens of the answer that the caller asks for.
    requested_output: Option<Tokens>,
    /// Tokens of the tools' descriptions, counted here.
    tools: Tokens,
    /// Tokens of the newest context and the tools' descriptions; zero before the first context.
    context: Tokens,
    /// Tokens of the newest context that the provider has read, if it has cut that context without
    /// an error.
    read: Option<Tokens>,
    /// The newest refusal, if it is only likely that the context was too long for the model.
    likely_refusal: Option<LikelyRefusal>,
}

/// A refusal that is only likely about the length of the context.
#[derive(Debug, Clone, Copy)]
struct LikelyRefusal {
    /// HTTP status of the refusal.
    status: u16,
    /// Tokens of the context that was refused, and of the tools' descriptions.
    context: Tokens,
}

impl OverflowGuard {
    /// The guard before the first attempt.
    pub(super) const fn new(
        window: Tokens,
        output: Tokens,
        requested_output: Option<Tokens>,
        tools: Tokens,
    ) -> Self {
        Self {
            stage: Stage::Whole,
            on_overflow: OnOverflow::Reduce,
            window,
            learnt_window: None,
            ratio: None,
            refusal_ratio: None,
            output,
            requested_output,
            tools,
            context: Tokens::ZERO,
            read: None,
            likely_refusal: None,
        }
    }

    /// The same guard, for a caller that has asked for this.
    pub(super) const fn with_on_overflow(mut self, on_overflow: OnOverflow) -> Self {
        self.on_overflow = on_overflow;
        self
    }

    /// Applies what is stored about the model: the policy's window, the window that its provider
    /// has named, and the ratio.
    pub(super) fn apply_stored_limits(
        &mut self,
        window: Option<Tokens>,
        learnt_window: Option<Tokens>,
        ratio: Option<f64>,
    ) {
        self.window = self.window.min(window.unwrap_or(self.window));
        self.learnt_window = self.learnt_window.into_iter().chain(learnt_window).min();
        self.ratio = ratio;
    }

    /// Records the newest context, of `own` tokens (counted here).
    pub(super) fn record_context(&mut self, own: Tokens) {
        self.context = self.call_tokens(own);
        self.read = None;
    }

    /// Tokens of the newest context and the tools' descriptions; zero before the first context.
    pub(super) const fn context(&self) -> Tokens {
        self.context
    }

    /// Records how much of the newest context the provider has read; None: it has reported the
    /// overflow.
    pub(super) const fn record_read(&mut self, read: Option<Tokens>) {
        self.read = read;
    }

    /// Tokens of the newest context that the provider has read, if it has cut that context without
    /// an error.
    pub(super) const fn read(&self) -> Option<Tokens> {
        self.read
    }

    /// Records how certain the newest refusal is about the length of the context, and its status.
    pub(super) fn record_confidence(&mut self, confidence: Confidence, status: Option<u16>) {
        const BAD_REQUEST: u16 = 400;
        self.likely_refusal = (confidence == Confidence::Likely).then(|| LikelyRefusal {
            // An error within an answer may come with the status of a success.
            status: status
                .filter(|status| *status >= BAD_REQUEST)
                .unwrap_or(BAD_REQUEST),
            context: self.context,
        });
    }

    /// How certain it is that the newest context that was not accepted was too long. Contexts that
    /// are not sent are certainly too long.
    pub(super) const fn confidence(&self) -> Confidence {
        if self.likely_refusal.is_some() {
            Confidence::Likely
        } else {
            Confidence::Certain
        }
    }

    /// The status of the newest refusal, if it is only likely that the context was too long.
    pub(super) fn likely_status(&self) -> Option<u16> {
        self.likely_refusal.map(|refusal| refusal.status)
    }

    /// Whether the newest context is as long as the one that was likely too long: there was nothing
    /// to truncate, so the provider would refuse it again.
    pub(super) fn is_unchanged(&self) -> bool {
        self.likely_refusal
            .is_some_and(|refusal| refusal.context == self.context)
    }

    /// Applies what an overflow error says: the window and the ratio.
    pub(super) fn apply_refusal(&mut self, window: Option<Tokens>, ratio: Option<f64>) {
        let window = window.filter(|window| *window >= MIN_WINDOW);
        self.learnt_window = self.learnt_window.into_iter().chain(window).min();
        self.refusal_ratio = ratio.or(self.refusal_ratio);
    }

    /// The ratio for the next context; None: the stored one.
    pub(super) const fn refusal_ratio(&self) -> Option<f64> {
        self.refusal_ratio
    }

    /// The pressure on the next context.
    pub(super) const fn pressure(&self) -> Pressure {
        match self.stage {
            Stage::Whole => Pressure::None,
            Stage::TruncatedResults => Pressure::TruncateToolResults,
            Stage::Compacted | Stage::Smaller => Pressure::Compact,
        }
    }

    /// Most tokens of the next context; None: unlimited. Only the compacted attempts have a budget,
    /// so that the first ones leave out as little as possible.
    pub(super) fn budget(&self) -> Option<Tokens> {
        let percent = match self.stage {
            Stage::Whole | Stage::TruncatedResults => return None,
            Stage::Compacted => FITTING_PERCENT,
            Stage::Smaller => SMALLER_PERCENT,
        };
        Some(
            self.compacted_limit(percent)
                .less(self.model_tokens(self.tools)),
        )
    }

    /// This percentage of what the answer leaves of the window: the limit of a compacted context
    /// together with the tools' descriptions.
    fn compacted_limit(&self, percent: u64) -> Tokens {
        Tokens::new(self.window().less(self.answer_tokens()).get() * percent / 100)
    }

    /// Tokens of a call: a context of `own` tokens (counted here) and the tools' descriptions.
    fn call_tokens(&self, own: Tokens) -> Tokens {
        self.model_tokens(own) + self.model_tokens(self.tools)
    }

    /// Tokens of a call, counted here: a context of `own` tokens and the tools' descriptions.
    pub(super) fn own_tokens(&self, own: Tokens) -> Tokens {
        own + self.tools
    }

    /// Whether to skip a call of this size, because the provider is known to refuse it. A
    /// configured window does not prove that; a window that the provider has named does. Calls with
    /// a compacted context are never skipped.
    pub(super) fn will_be_refused(&self, sent: Tokens) -> bool {
        let may_skip = matches!(self.stage, Stage::Whole | Stage::TruncatedResults);
        may_skip
            && self
                .learnt_window
                .is_some_and(|window| sent + self.answer_tokens() > window)
    }

    /// Tokens reserved for the answer: what the caller asks for, else a quarter of the window. At
    /// most what the model can write, and half of the window, so that half is left for the context.
    pub(super) fn answer_tokens(&self) -> Tokens {
        let window = self.window().get();
        let most = self
            .requested_output
            .unwrap_or(Tokens::new(window / 4))
            .min(self.output);
        most.min(Tokens::new(window / 2)).max(Tokens::new(1))
    }

    /// Tokens for the answer beside a context of this size.
    pub(super) fn answer_tokens_beside(&self, sent: Tokens) -> Tokens {
        self.answer_tokens()
            .min(self.window().less(sent).max(MIN_ANSWER_TOKENS))
    }

    /// The smaller of the configured window and the one that the provider has named.
    pub(super) fn window(&self) -> Tokens {
        self.learnt_window
            .map_or(self.window, |learnt_window| learnt_window.min(self.window))
    }

    /// Moves to the next attempt after a context of `own` tokens (counted here) was too long.
    /// False: no attempt is left, or the compacted context was refused without new information, or
    /// it is only likely that the truncated one was too long, or the context must not be reduced.
    pub(super) fn advance_after(&mut self, own: Tokens, confidence: Confidence) -> bool {
        if self.on_overflow == OnOverflow::Fail {
            return false;
        }
        if confidence == Confidence::Likely && self.stage != Stage::Whole {
            return false;
        }
        let ratio = self.refusal_ratio.or(self.ratio);
        let sent = Self {
            ratio,
            ..self.clone()
        }
        .call_tokens(own);
        self.stage = match self.stage {
            Stage::Whole => Stage::TruncatedResults,
            Stage::TruncatedResults => Stage::Compacted,
            // The refused context fitted the window and the ratio that were known then. A smaller
            // one is tried only if the refusal has changed them.
            Stage::Compacted if sent > self.compacted_limit(FITTING_PERCENT) => Stage::Smaller,
            Stage::Compacted | Stage::Smaller => return false,
        };
        true
    }

    /// The number of this attempt; 0 for the first.
    pub(super) const fn attempt(&self) -> i32 {
        match self.stage {
            Stage::Whole => 0,
            Stage::TruncatedResults => 1,
            Stage::Compacted => 2,
            Stage::Smaller => 3,
        }
    }

    /// Whether this is the extra attempt after a refusal with new information.
    pub(super) const fn is_extra(&self) -> bool {
        matches!(self.stage, Stage::Smaller)
    }

    /// Converts tokens counted here to the model's.
    fn model_tokens(&self, own: Tokens) -> Tokens {
        Tokens::new((own.get() as f64 * self.ratio.unwrap_or(1.0)).ceil() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTAIN: Confidence = Confidence::Certain;

    fn tokens(n: u64) -> Tokens {
        Tokens::new(n)
    }

    fn guard(window: u64) -> OverflowGuard {
        OverflowGuard::new(tokens(window), tokens(100_000), None, Tokens::ZERO)
    }

    #[test]
    fn a_model_that_refuses_without_figures_is_tried_three_times() {
        let mut guard = guard(8_000);
        let mut tried = Vec::new();
        loop {
            tried.push((guard.attempt(), guard.pressure(), guard.budget()));
            if !guard.advance_after(guard.budget().unwrap_or(tokens(9_000)), CERTAIN) {
                break;
            }
        }
        // 95 % of the 6,000 tokens that an answer of 2,000 leaves.
        let last = (2, Pressure::Compact, Some(tokens(5_700)));
        assert_eq!(
            tried,
            [
                (0, Pressure::None, None),
                (1, Pressure::TruncateToolResults, None),
                last
            ]
        );
    }

    #[test]
    fn a_context_that_must_not_be_reduced_is_tried_once() {
        for confidence in [CERTAIN, Confidence::Likely] {
            let mut guard = guard(8_000).with_on_overflow(OnOverflow::Fail);
            guard.record_context(tokens(9_000));
            guard.apply_refusal(Some(tokens(4_000)), Some(1.5));
            assert!(!guard.advance_after(tokens(9_000), confidence));
            assert_eq!(
                (guard.attempt(), guard.pressure(), guard.budget()),
                (0, Pressure::None, None)
            );
            let mut reduced = guard.with_on_overflow(OnOverflow::Reduce);
            assert!(reduced.advance_after(tokens(9_000), confidence));
        }
    }

    #[test]
    fn a_refusal_that_names_a_smaller_window_gives_one_more_attempt() {
        let mut guard = guard(8_000);
        assert!(
            guard.advance_after(tokens(9_000), CERTAIN)
                && guard.advance_after(tokens(9_000), CERTAIN)
        );
        guard.apply_refusal(Some(tokens(4_000)), None);
        assert!(guard.advance_after(tokens(6_000), CERTAIN));
        assert_eq!(
            (guard.attempt(), guard.budget()),
            (3, Some(tokens(2_250))),
            "three quarters of the 3,000 that an answer of 1,000 leaves"
        );
        guard.apply_refusal(Some(tokens(1_000)), None);
        assert!(
            !guard.advance_after(tokens(2_250), CERTAIN),
            "no attempt is left"
        );
    }

    #[test]
    fn a_refusal_with_a_higher_count_gives_one_more_attempt() {
        let mut guard = guard(8_000);
        assert!(
            guard.advance_after(tokens(9_000), CERTAIN)
                && guard.advance_after(tokens(9_000), CERTAIN)
        );
        guard.apply_refusal(None, Some(1.5));
        assert_eq!(guard.refusal_ratio(), Some(1.5));
        assert!(
            guard.advance_after(tokens(6_000), CERTAIN),
            "9,000 tokens of the model, more than the 5,700 of a compacted context"
        );
    }

    #[test]
    fn only_a_window_named_by_the_provider_rules_out_a_context() {
        let mut guard = guard(8_000);
        assert!(!guard.will_be_refused(tokens(9_000)));
        guard.apply_stored_limits(None, Some(tokens(8_000)), None);
        // 2,000 tokens are for the answer.
        assert!(!guard.will_be_refused(tokens(6_000)) && guard.will_be_refused(tokens(6_001)));
        guard.advance_after(Tokens::ZERO, CERTAIN);
        guard.advance_after(Tokens::ZERO, CERTAIN);
        assert!(
            !guard.will_be_refused(tokens(9_000)),
            "a compacted context is sent in any case"
        );
    }

    #[test]
    fn a_limit_below_every_window_is_ignored() {
        let mut guard = guard(8_000);
        guard.apply_refusal(Some(tokens(511)), None);
        assert_eq!(guard.window(), tokens(8_000));
        guard.apply_refusal(Some(tokens(512)), None);
        assert_eq!(
            (guard.window(), guard.answer_tokens()),
            (tokens(512), tokens(128)),
            "a quarter of the window is for the answer"
        );
    }

    #[test]
    fn the_answer_gets_the_requested_tokens_within_the_model_and_its_window() {
        let guard_for = |output, requested_output: Option<u64>| {
            OverflowGuard::new(
                tokens(8_000),
                tokens(output),
                requested_output.map(tokens),
                Tokens::ZERO,
            )
        };
        assert_eq!(guard_for(100_000, None).answer_tokens(), tokens(2_000));
        assert_eq!(guard_for(1_000, None).answer_tokens(), tokens(1_000));
        assert_eq!(
            guard_for(100_000, Some(3_000)).answer_tokens(),
            tokens(3_000)
        );
        assert_eq!(
            guard_for(100_000, Some(7_000)).answer_tokens(),
            tokens(4_000),
            "half of the window"
        );
        assert_eq!(
            guard_for(100_000, None).answer_tokens_beside(tokens(7_000)),
            tokens(1_000)
        );
        assert_eq!(
            guard_for(100_000, None).answer_tokens_beside(tokens(9_000)),
            MIN_ANSWER_TOKENS
        );
    }

    #[test]
    fn tools_reduce_the_budget() {
        let mut guard = OverflowGuard::new(tokens(8_000), tokens(100_000), None, tokens(500));
        guard.apply_stored_limits(None, None, Some(2.0));
        assert!(
            guard.advance_after(Tokens::ZERO, CERTAIN)
                && guard.advance_after(Tokens::ZERO, CERTAIN)
        );
        // The tools have 2 * 500 tokens of the model. They leave 4,700 of the 5,700 tokens of a
        // compacted context.
        assert_eq!(guard.budget(), Some(tokens(4_700)));
        // A context of 2,500 tokens counted here has 5,000 of the model.
        assert_eq!(guard.call_tokens(tokens(2_500)), tokens(6_000));
    }

    #[test]
    fn a_likely_overflow_truncates_tool_results_once() {
        const LIKELY: Confidence = Confidence::Likely;
        let mut guard = guard(8_000);
        guard.record_context(tokens(9_000));
        guard.record_confidence(LIKELY, Some(422));
        assert_eq!(
            (guard.confidence(), guard.likely_status()),
            (LIKELY, Some(422))
        );
        assert!(guard.advance_after(tokens(9_000), LIKELY));
        assert_eq!(guard.pressure(), Pressure::TruncateToolResults);
        guard.record_context(tokens(7_000));
        assert!(!guard.is_unchanged());
        guard.record_confidence(LIKELY, Some(200));
        assert_eq!(
            guard.likely_status(),
            Some(400),
            "an error within an answer"
        );
        assert!(!guard.advance_after(tokens(7_000), LIKELY));
        guard.record_confidence(CERTAIN, Some(400));
        assert_eq!(guard.likely_status(), None);
        assert!(guard.advance_after(tokens(7_000), CERTAIN));
        assert_eq!(guard.pressure(), Pressure::Compact);
        guard.record_confidence(LIKELY, Some(400));
        assert!(!guard.advance_after(tokens(5_000), LIKELY));
    }

    #[test]
    fn a_context_without_anything_to_truncate_stays_refused() {
        let mut guard = guard(8_000);
        guard.record_context(tokens(9_000));
        assert!(!guard.is_unchanged());
        guard.record_confidence(Confidence::Likely, None);
        assert!(guard.advance_after(tokens(9_000), Confidence::Likely));
        guard.record_context(tokens(9_000));
        assert!(guard.is_unchanged());
    }
}
