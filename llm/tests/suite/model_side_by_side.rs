//! Parts that are written side by side: their order, how many there are at a time, and what a
//! failure of one leaves of the others.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::{
    pin::pin,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use anneal_core::digest::Digest;
use anneal_llm::{
    BoxFuture, ModelSummarizer, Purpose, Summary, SummaryAsk, SummaryCalls, SummaryFailure,
    provider::{Answer, Call, CallFailure, Model},
};

use serde_json::Value;

use crate::{
    fixtures::{ask, talk},
    scripted_model::{ScriptedCalls, model, model_with_calls, overflow, summarize},
};

/// Waits until it is polled once more than this number of times.
async fn wait_for_polls(mut polls: usize) {
    std::future::poll_fn(move |context| {
        if polls == 0 {
            return Poll::Ready(());
        }
        polls -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Valid reports that take a while. Calls that begin together end in another order.
struct SlowCalls {
    /// Its prompts are in the order in which the calls end.
    inner: ScriptedCalls,
    /// For each call: how many calls had ended when it began, and how many were then under way,
    /// itself among them.
    begun: Mutex<Vec<(usize, usize)>>,
    ended: AtomicUsize,
    /// The call with this number fails, before the others that have begun with it end.
    failing: Option<(usize, fn() -> SummaryFailure)>,
}

impl SlowCalls {
    fn new() -> Self {
        Self {
            inner: ScriptedCalls::reporting(),
            begun: Mutex::default(),
            ended: AtomicUsize::new(0),
            failing: None,
        }
    }

    /// Calls of which the one with this number, from 0, fails.
    fn failing(number: usize, failure: fn() -> SummaryFailure) -> Self {
        Self {
            failing: Some((number, failure)),
            ..Self::new()
        }
    }

    fn begun(&self) -> Vec<(usize, usize)> {
        self.begun.lock().unwrap().clone()
    }

    fn stored_parts(&self) -> usize {
        self.inner.parts.lock().unwrap().len()
    }
}

impl SummaryCalls for SlowCalls {
    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, Result<Answer, SummaryFailure>> {
        Box::pin(async move {
            let number = {
                let mut begun = self.begun.lock().unwrap();
                let ended = self.ended.load(Ordering::Relaxed);
                let number = begun.len();
                begun.push((ended, number + 1 - ended));
                number
            };
            let failure = self.failing.filter(|(failing, _)| *failing == number);
            let polls = if failure.is_some() {
                5
            } else {
                10 + 10 * (4 - number % 4)
            };
            wait_for_polls(polls).await;
            self.ended.fetch_add(1, Ordering::Relaxed);
            match failure {
                Some((_, failure)) => Err(failure()),
                None => self.inner.call(call).await,
            }
        })
    }

    fn load_part<'a>(&'a self, part: &'a Digest) -> BoxFuture<'a, Option<String>> {
        self.inner.load_part(part)
    }

    fn store_part<'a>(&'a self, part: &'a Digest, text: &'a str) -> BoxFuture<'a, ()> {
        self.inner.store_part(part, text)
    }
}

/// The summary, polled until it is there.
fn summarize_slowly(
    model: &Model,
    calls: &SlowCalls,
    ask: &SummaryAsk<'_>,
) -> Result<Summary, SummaryFailure> {
    let summarizer = ModelSummarizer::new(model, calls);
    let mut future = pin!(summarizer.summarize(ask));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..100_000 {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
    }
    panic!("the summary never ends")
}

#[test]
fn parts_keep_the_order_of_their_chunks_in_whatever_order_they_end() {
    let sources = talk(2_000);
    let ask = ask(Purpose::Range, &sources, 500);
    let one_by_one = ScriptedCalls::reporting();
    let expected = summarize(&model(8_192), &one_by_one, &ask).unwrap();
    let slow = SlowCalls::new();
    assert_eq!(
        summarize_slowly(&model(8_192), &slow, &ask).unwrap(),
        expected
    );
    let texts = |calls: &ScriptedCalls| -> Vec<String> {
        let prompts = calls.prompts();
        prompts
            .iter()
            .map(|prompt| prompt.texts().concat())
            .collect()
    };
    let (ordered, ended) = (texts(&one_by_one), texts(&slow.inner));
    assert_eq!(ordered.len(), ended.len());
    assert_ne!(ordered, ended, "the calls have ended in another order");
    assert_eq!(
        ordered.last(),
        ended.last(),
        "the merge reads the same parts"
    );
}

#[test]
fn at_most_four_parts_are_written_at_a_time_and_no_more_than_the_model_allows() {
    let sources = talk(2_000);
    let ask = ask(Purpose::Range, &sources, 500);
    for (limit, most) in [(None, 4), (Some(2), 2), (Some(1), 1), (Some(9), 4)] {
        let slow = SlowCalls::new();
        summarize_slowly(&model_with_calls(8_192, limit), &slow, &ask).unwrap();
        let begun = slow.begun();
        let under_way = begun.iter().map(|(_, under_way)| *under_way).max();
        assert_eq!(under_way, Some(most), "{limit:?}: {begun:?}");
        assert_eq!(begun[1].0, 1, "the first call is answered alone: {begun:?}");
    }
}

#[test]
fn after_a_failure_the_parts_under_way_are_stored_and_none_begins() {
    let sources = talk(2_000);
    let ask = ask(Purpose::Range, &sources, 500);
    // Call 0 is alone. Calls 1 to 4 begin together.
    let slow = SlowCalls::failing(3, || CallFailure::Broken("test").into());
    let failure = summarize_slowly(&model(8_192), &slow, &ask).unwrap_err();
    assert!(
        matches!(failure, SummaryFailure::Call(CallFailure::Broken(_))),
        "{failure:?}"
    );
    assert_eq!((slow.begun().len(), slow.stored_parts()), (5, 4));
}

#[test]
fn a_chunk_that_is_too_long_is_cut_again_and_so_are_the_chunks_after_it() {
    let sources = talk(2_000);
    let ask = ask(Purpose::Range, &sources, 500);
    let slow = SlowCalls::failing(3, || overflow(None));
    summarize_slowly(&model(8_192), &slow, &ask).unwrap();
    let prompts = slow.inner.prompts();
    let merge = prompts.last().unwrap();
    assert!(merge.is_whole());
    // A part stands for messages from the first number to the second. A message that two chunks
    // share is in both.
    let mut last = 0;
    for line in &merge.lines {
        let number = |value: &Value| value.as_i64().unwrap();
        let (first, end) = match &line["messages"] {
            Value::Array(range) => (number(&range[0]), number(&range[1])),
            _ => (number(&line["message"]), number(&line["message"])),
        };
        assert!(
            first == last || first == last + 1,
            "messages {first} to {end} follow message {last}"
        );
        last = end;
    }
    assert_eq!(last, 2_000);
}
