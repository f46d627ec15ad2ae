//! How a call ended, and how breakers and metrics record that end.

use anneal_core::admission::CallPurpose;
use anneal_llm::{provider::CallFailure, provider_error::Confidence};
use anneal_store::{ModelFault, Verdict};

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd<'a> {
    /// The model has answered.
    Answered,
    /// The call has failed, or its answer cannot be used.
    Failed(&'a CallFailure),
    /// The caller of the call gave up: it disconnected, or its deadline ended. Breakers do not count
    /// it, unless the provider had sent nothing for too long (`provider_calls.rs`).
    GivenUp,
    /// The call was ended before its answer, or its answer was lost, for a reason outside of the
    /// model. Breakers do not count it.
    Abandoned,
    /// A caller has stopped the turn. Breakers do not count it.
    Stopped,
}

impl<'a> CallEnd<'a> {
    /// The end of a call with this result.
    pub const fn of<T>(result: &'a Result<T, CallFailure>) -> Self {
        match result {
            Ok(_) => Self::Answered,
            Err(failure) => Self::Failed(failure),
        }
    }

    /// The value of the metrics' label `outcome`, in which a call without an end is `cancelled`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Failed(failure) => failure.name(),
            Self::GivenUp | Self::Abandoned | Self::Stopped => "cancelled",
        }
    }

    /// The verdict on the call that the breakers record.
    pub(crate) fn verdict(self, purpose: CallPurpose) -> Verdict {
        let failure = match self {
            Self::Answered => return Verdict::Answers,
            Self::Failed(failure) => failure,
            Self::GivenUp | Self::Abandoned | Self::Stopped => return Verdict::Nothing,
        };
        let says_nothing = match failure {
            _ if failure.is_model_wide() => return Verdict::Fails(fault(failure)),
            // A likely overflow may be another refusal.
            CallFailure::Overflow { confidence, .. } => {
                purpose != CallPurpose::Summary || *confidence == Confidence::Certain
            }
            // A turn's caller chooses the request, and its next one may be accepted. A summary's
            // request is made of stored content and would be refused again.
            CallFailure::Refused { .. } => purpose != CallPurpose::Summary,
            _ => false,
        };
        if says_nothing {
            Verdict::Nothing
        } else {
            Verdict::FailsConversation(failure.to_string())
        }
    }
}

/// The failure as the store records and logs it.
fn fault(failure: &CallFailure) -> ModelFault {
    ModelFault {
        kind: failure.name(),
        status: failure.status(),
        text: failure.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PURPOSES: [CallPurpose; 2] = [CallPurpose::Turn, CallPurpose::Summary];

    /// The verdict on a turn, and the verdict on a summary.
    fn verdicts(end: CallEnd<'_>) -> [Verdict; 2] {
        PURPOSES.map(|purpose| end.verdict(purpose))
    }

    #[test]
    fn a_failure_of_the_provider_counts_against_the_model() {
        let unavailable = CallFailure::Unavailable {
            what: "status 500".into(),
            status: Some(500),
            was_worked_on: true,
            retry_after: None,
        };
        let limited = CallFailure::Limited {
            status: 429,
            retry_after: None,
        };
        for failure in [unavailable, limited, CallFailure::Refused { status: 401 }] {
            for verdict in verdicts(CallEnd::Failed(&failure)) {
                let Verdict::Fails(fault) = verdict else {
                    panic!("{failure}: {verdict:?}")
                };
                assert_eq!(fault.text, failure.to_string());
                assert_eq!(
                    (fault.kind, fault.status),
                    (failure.name(), failure.status())
                );
            }
        }
    }

    #[test]
    fn an_answer_that_cannot_be_used_counts_against_the_conversation() {
        let broken = CallFailure::Broken("the answer is empty");
        for verdict in verdicts(CallEnd::Failed(&broken)) {
            assert_eq!(verdict, Verdict::FailsConversation(broken.to_string()));
        }
    }

    #[test]
    fn a_refused_request_counts_against_the_conversation_only_if_it_is_for_a_summary() {
        let refused = CallFailure::Refused { status: 400 };
        assert_eq!(
            verdicts(CallEnd::Failed(&refused)),
            [
                Verdict::Nothing,
                Verdict::FailsConversation(refused.to_string())
            ]
        );
    }

    fn overflow(confidence: Confidence) -> CallFailure {
        CallFailure::Overflow {
            window: None,
            prompt: None,
            read: None,
            rule: "a rule",
            confidence,
            status: Some(400),
            wording: None,
        }
    }

    #[test]
    fn a_likely_overflow_counts_against_the_conversation_only_if_it_is_of_a_summary() {
        let likely = overflow(Confidence::Likely);
        assert_eq!(
            verdicts(CallEnd::Failed(&likely)),
            [
                Verdict::Nothing,
                Verdict::FailsConversation(likely.to_string())
            ]
        );
    }

    #[test]
    fn an_answer_counts_but_a_context_that_is_too_long_and_an_abandoned_call_do_not() {
        let overflow = overflow(Confidence::Certain);
        let ends = [
            CallEnd::Failed(&overflow),
            CallEnd::GivenUp,
            CallEnd::Abandoned,
            CallEnd::Stopped,
        ];
        for end in ends {
            assert_eq!(verdicts(end), [Verdict::Nothing, Verdict::Nothing]);
        }
        assert_eq!(
            verdicts(CallEnd::Answered),
            [Verdict::Answers, Verdict::Answers]
        );
    }
}
