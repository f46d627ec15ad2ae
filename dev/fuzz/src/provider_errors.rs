//! Fuzzes the classification of providers' error answers: the result must be consistent, whatever
//! the answer contains.

use anneal_llm::provider_error::{
    Confidence, Delivery,
    OverflowKind::{Input, InputPlusOutput, OutputTruncated},
    ProviderAnswer, classify,
};
use arbitrary::{Arbitrary as _, Unstructured};

fn check_case(from: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let status = *from.choose(&[
        0, 200, 200, 204, 302, 400, 400, 400, 413, 422, 429, 500, 503,
    ])?;
    let delivery = *from.choose(&[Delivery::Whole, Delivery::Streamed])?;
    let sent_tokens = <Option<u32>>::arbitrary(from)?.map(u64::from);
    let header = if from.ratio(1, 8)? {
        Some(<(String, String)>::arbitrary(from)?)
    } else {
        None
    };
    let headers: Vec<_> = header.into_iter().collect();
    let body = from.bytes(from.len())?;
    let answer = ProviderAnswer {
        status,
        headers: &headers,
        body,
        delivery,
        sent_tokens,
        window_tokens: None,
    };
    let verdict = classify(&answer);
    assert_eq!(
        verdict.is_overflow(),
        matches!(verdict.kind, Input | InputPlusOutput),
        "{verdict:?}"
    );
    let may_name_limits = verdict.is_overflow() || verdict.kind == OutputTruncated;
    assert!(
        may_name_limits || (verdict.limit_tokens, verdict.prompt_tokens) == (None, None),
        "{verdict:?}"
    );
    assert!(verdict.limit_tokens != Some(0), "{verdict:?}");
    let is_likely = verdict.confidence == Confidence::Likely;
    assert_eq!(is_likely, verdict.wording.is_some(), "{verdict:?}");
    assert!(
        !is_likely || (verdict.limit_tokens, verdict.prompt_tokens) == (None, None),
        "{verdict:?}"
    );
    assert_eq!(
        format!("{:?}", classify(&answer)),
        format!("{verdict:?}"),
        "two classifications of one answer differ"
    );
    Ok(())
}

/// The first bytes select the status, how the answer arrived, the number of sent tokens and a
/// header. The rest is the body.
pub fn check(data: &[u8]) {
    // If there are too few bytes, there is nothing to check.
    let _ = check_case(&mut Unstructured::new(data));
}
