//! Reads the figures of the X-ray and of what-if from their HTML, and compares them with those of the
//! RPCs.

use std::collections::BTreeMap;

use anneal_testkit::{TestConversation, pb};

/// Most runs that the strip draws one by one.
const MOST_RUNS: usize = 400;

/// The elements of the page with this attribute: their attributes, without `data-`.
pub(super) fn elements(page: &str, marked: &str) -> Vec<BTreeMap<String, String>> {
    let tags = page.split('<').filter_map(|tag| tag.split_once('>'));
    let found = tags.filter(|(tag, _)| {
        let mut names = tag.split([' ', '=']);
        names.any(|name| name == marked)
    });
    let attributes = found.map(|(tag, _)| {
        let pairs = tag.split(" data-").skip(1).filter_map(|pair| {
            let (name, value) = pair.split_once("=\"")?;
            Some((name.to_owned(), value.split('"').next()?.to_owned()))
        });
        pairs.collect()
    });
    attributes.collect()
}

/// A number of an element.
#[track_caller]
pub(super) fn number(element: &BTreeMap<String, String>, name: &str) -> u64 {
    let value = element.get(name).unwrap_or_else(|| panic!("no {name}"));
    value.parse().unwrap_or_else(|_| panic!("{name}: {value}"))
}

/// The first element with this attribute.
#[track_caller]
pub(super) fn element(page: &str, marked: &str) -> BTreeMap<String, String> {
    let found = elements(page, marked).into_iter().next();
    found.unwrap_or_else(|| panic!("no element has {marked}"))
}

/// Whether a context did not read these messages, because it begins after them.
pub(super) fn is_unread(entry: &pb::ManifestEntry) -> bool {
    let before_boundary = [
        pb::Representation::Checkpoint,
        pb::Representation::BeforeSeparator,
    ];
    before_boundary.contains(&entry.representation())
}

/// Checks the sums of a strip, in its head and of its runs. `stored`: tokens of all messages that
/// stand.
pub(super) fn check_sums(page: &str, manifest: &[pb::ManifestEntry], stored: u64, name: &str) {
    let sent: u64 = manifest.iter().map(|entry| entry.tokens).sum();
    let original = if manifest.iter().any(is_unread) {
        stored
    } else {
        manifest.iter().map(|entry| entry.original_tokens).sum()
    };
    let strip = element(page, "data-original-tokens");
    for (figure, expected) in [("tokens", sent), ("original-tokens", original)] {
        assert_eq!(number(&strip, figure), expected, "{name}: {figure}");
        let runs = elements(page, "data-first");
        let drawn: u64 = runs.iter().map(|run| number(run, figure)).sum();
        assert_eq!(drawn, expected, "{name}: {figure} of the runs");
    }
}

/// Checks the strip of a page against the manifest.
pub(super) fn check_strip(page: &str, manifest: &[pb::ManifestEntry], stored: u64, name: &str) {
    check_sums(page, manifest, stored, name);
    let runs = elements(page, "data-first");
    let mut next = 1;
    for run in &runs {
        assert_eq!(number(run, "first"), next, "{name}");
        next = number(run, "last") + 1;
    }
    let last = manifest.last().map_or(0, |entry| entry.last_message_id);
    assert_eq!(next, last.unsigned_abs() + 1, "{name}");
    if manifest.len() > MOST_RUNS {
        assert!(runs.len() <= MOST_RUNS, "{name}: {} runs", runs.len());
        return;
    }
    assert_eq!(runs.len(), manifest.len(), "{name}");
    for (run, entry) in runs.iter().zip(manifest) {
        let figures = [
            number(run, "first"),
            number(run, "last"),
            number(run, "tokens"),
        ];
        let expected = [
            entry.first_message_id.unsigned_abs(),
            entry.last_message_id.unsigned_abs(),
            entry.tokens,
        ];
        assert_eq!(figures, expected, "{name}");
        if entry.original_tokens > 0 {
            let original = number(run, "original-tokens");
            assert_eq!(original, entry.original_tokens, "{name}");
        }
        let state = match entry.representation() {
            pb::Representation::Summary => "summary",
            pb::Representation::Checkpoint => "checkpoint",
            pb::Representation::BeforeSeparator => "separated",
            pb::Representation::Clipped => "clipped",
            pb::Representation::Dropped => "dropped",
            pb::Representation::Repaired => "repaired",
            pb::Representation::Withdrawn => "withdrawn",
            _ => "original",
        };
        assert_eq!(run["state"], state, "{name}");
    }
}

/// Checks the window and the costs of a page against the figures of the RPC.
pub(super) fn check_usage(page: &str, usage: &pb::GetContextUsageResponse, name: &str) {
    let window = element(page, "data-total");
    let figures = ["total", "window", "saved", "pending-saved"].map(|it| number(&window, it));
    let expected = [
        usage.total_tokens,
        usage.model_window_tokens,
        usage.saved_tokens,
        usage.pending_saved_tokens,
    ];
    assert_eq!(figures, expected, "{name}");
    let thresholds = elements(page, "data-threshold");
    let before_tail = usage
        .segments
        .iter()
        .filter(|it| it.segment() != pb::Segment::Tail);
    let before_tail: u64 = before_tail.map(|it| it.tokens).sum();
    assert_eq!(
        number(&thresholds[0], "threshold"),
        before_tail.saturating_add(usage.token_threshold),
        "{name}"
    );
    if usage.model_window_tokens > 0 {
        let last = thresholds.last().expect("a mark");
        assert_eq!(
            number(last, "threshold"),
            usage.model_window_tokens,
            "{name}"
        );
    }
    if usage.max_message_count > 0 {
        let messages = element(page, "data-max-messages");
        let figures = ["tail-messages", "max-messages"].map(|it| number(&messages, it));
        let expected = [
            usage.tail_messages.unsigned_abs(),
            usage.max_message_count.into(),
        ];
        assert_eq!(figures, expected, "{name}");
    }
    let segments = elements(page, "data-segment");
    let tokens: Vec<u64> = segments.iter().map(|it| number(it, "tokens")).collect();
    let expected: Vec<u64> = usage.segments.iter().map(|it| it.tokens).collect();
    assert_eq!(tokens, expected, "{name}");
    let economics = usage.economics.expect("economics");
    let bills = elements(page, "data-bill");
    let expected = [economics.none, economics.strict, economics.stepped];
    assert_eq!(bills.len(), 3, "{name}");
    for (bill, expected) in bills.iter().zip(expected) {
        let expected = expected.expect("a bill");
        let figures = ["sent", "cached", "breaks"].map(|it| number(bill, it));
        let breaks = expected.cache_breaks.unsigned_abs();
        let expected_figures = [expected.sent_tokens, expected.cached_tokens, breaks];
        assert_eq!(figures, expected_figures, "{name}");
        let units: f64 = bill["units"].parse().expect("a number");
        assert!((units - expected.billed_units).abs() < 1e-6, "{name}");
    }
    let spend = economics.summarizer.unwrap_or_default();
    let summaries = element(page, "data-summary-read");
    let figures = [
        "summaries",
        "checkpoints",
        "summary-read",
        "summary-written",
    ];
    let expected = [
        spend.summaries.unsigned_abs(),
        spend.checkpoints.unsigned_abs(),
        spend.model_read_tokens,
        spend.model_written_tokens,
    ];
    assert_eq!(figures.map(|it| number(&summaries, it)), expected, "{name}");
}

/// Tokens of the messages that stand.
pub(super) async fn stored_tokens(conversation: &TestConversation<'_>) -> u64 {
    let total = conversation.conversation().await.token_total;
    total.expect("a total").tokens
}
