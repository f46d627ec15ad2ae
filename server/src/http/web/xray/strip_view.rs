//! The strip of messages: runs of equal state, as wide as their tokens.

use std::fmt::Write as _;

use anneal_proto::v1 as pb;
use anneal_web::xray::{Run, Strip};

use super::{controls::ControlFields, words};
use crate::http::web::conversations::paths;

/// Most runs of a strip. A browser draws each as a rectangle.
const MOST_RUNS: usize = 400;

/// Least share of a run in the strip, in thousandths, so that a pointer can hit it.
const LEAST_WIDTH: f64 = 1.5;

/// Where the parts of a strip lead.
pub(super) struct StripPaths {
    /// The conversation's X-ray.
    base: String,
    /// The whole strip, under the settings that it shows.
    strip: String,
}

impl StripPaths {
    /// The paths of a strip under these settings.
    pub(super) fn of(id: &str, fields: &ControlFields) -> Self {
        let base = paths::xray(id);
        Self {
            strip: format!("{base}/strip{}", paths::query(&fields.tried())),
            base,
        }
    }

    fn message(&self, id: i64) -> String {
        format!("{}/messages/{id}", self.base)
    }

    /// The strip of these messages.
    fn range(&self, first: i64, last: i64) -> String {
        let separator = if self.strip.contains('?') { '&' } else { '?' };
        format!("{}{separator}first={first}&last={last}", self.strip)
    }
}

/// The strip of a context. `unread`: the tokens of the messages that the context did not read, one
/// number for each entry of them ([`is_unread`]). `has_detail`: whether these messages can be seen
/// one by one.
pub(super) fn strip(
    manifest: &[pb::ManifestEntry],
    paths: &StripPaths,
    unread: &[u64],
    has_detail: bool,
) -> Strip {
    let mut unread = unread.iter();
    let runs = manifest.iter().map(|entry| {
        let mut run = run(entry, paths);
        if is_unread(entry) {
            run.original_tokens = unread.next().copied().unwrap_or_default();
            run.has_strip = run.first < run.last;
            if run.has_strip {
                run.url = paths.range(run.first, run.last);
            }
        }
        run
    });
    let runs = runs.collect();
    Strip {
        detail_url: if has_detail {
            paths.strip.clone()
        } else {
            String::new()
        },
        ..finish(runs, paths)
    }
}

/// The strip of the messages of a range, in which those that the context did not read have the
/// lengths of these runs. No run belongs to two entries of the manifest.
pub(super) fn detailed_strip(
    manifest: &[pb::ManifestEntry],
    paths: &StripPaths,
    token_runs: &[pb::TokenRun],
    (first, last): (i64, i64),
) -> Strip {
    let mut runs = Vec::new();
    for entry in manifest {
        if entry.last_message_id < first || entry.first_message_id > last {
            continue;
        }
        if !is_unread(entry) {
            runs.push(run(entry, paths));
            continue;
        }
        let inside = token_runs.iter().filter(|it| {
            it.first_message_id >= entry.first_message_id
                && it.last_message_id <= entry.last_message_id
        });
        let mut pieces: Vec<Run> = inside.map(|it| unread_run(entry, it, paths)).collect();
        // The summary is sent once. It stands where its messages end.
        let has_end = pieces.last().map(|run| run.last) == Some(entry.last_message_id);
        let standing = pieces.iter().rposition(|run| run.state != "withdrawn");
        let place = standing.unwrap_or(pieces.len().saturating_sub(1));
        if has_end && let Some(newest) = pieces.get_mut(place) {
            newest.tokens = entry.tokens;
        }
        runs.extend(pieces);
    }
    finish(runs, paths)
}

/// Whether a context did not read these messages, because it begins after them.
pub(super) fn is_unread(entry: &pb::ManifestEntry) -> bool {
    let is_before_boundary = matches!(
        entry.representation(),
        pb::Representation::Checkpoint | pb::Representation::BeforeSeparator
    );
    is_before_boundary && entry.original_tokens == 0
}

/// Messages that a context did not read, without the summary that stands for them.
fn unread_run(entry: &pb::ManifestEntry, tokens: &pb::TokenRun, paths: &StripPaths) -> Run {
    let (first, last) = (tokens.first_message_id, tokens.last_message_id);
    let whole = run(entry, paths);
    let (state, reason) = match tokens.withdrawn_messages {
        0 => (whole.state, whole.reason),
        all if all > last - first => ("withdrawn", "withdrawn".to_owned()),
        some => (
            whole.state,
            format!("{}; {some} of them are withdrawn", whole.reason),
        ),
    };
    let has_strip = first < last;
    Run {
        first,
        last,
        state,
        reason,
        tokens: 0,
        original_tokens: tokens.tokens,
        cool: false,
        x: 0.0,
        width: 0.0,
        url: if has_strip {
            paths.range(first, last)
        } else {
            paths.message(first)
        },
        has_strip,
    }
}

/// The runs of messages as they are stored, with large ones among them that a context had as their
/// summaries: message, its tokens, those of its summary.
pub(super) fn stored_runs(
    token_runs: &[pb::TokenRun],
    summarized: &[(i64, u64, u64)],
    paths: &StripPaths,
) -> Vec<Run> {
    let runs = token_runs.iter().map(|it| {
        let (first, last) = (it.first_message_id, it.last_message_id);
        let inside = summarized
            .iter()
            .filter(|(id, ..)| (first..=last).contains(id));
        let inside: Vec<_> = inside.collect();
        let saved: u64 = inside
            .iter()
            .map(|(_, original, summary)| original.saturating_sub(*summary))
            .sum();
        let (state, reason) = match inside.len() {
            0 if it.withdrawn_messages > last - first => ("withdrawn", "withdrawn".to_owned()),
            0 => ("original", String::new()),
            1 if first == last => ("summary", words::reason(pb::Reason::Cool).to_owned()),
            count => ("summary", format!("{count} of them as their summaries")),
        };
        Run {
            first,
            last,
            state,
            reason,
            tokens: it.tokens.saturating_sub(saved),
            original_tokens: it.tokens,
            cool: false,
            x: 0.0,
            width: 0.0,
            url: paths.message(it.largest_message_id.max(first)),
            has_strip: false,
        }
    });
    place(runs.collect())
}

/// A part of the manifest.
fn run(entry: &pb::ManifestEntry, paths: &StripPaths) -> Run {
    let mut url = paths.message(entry.first_message_id);
    for (index, clip) in entry.clipped.iter().enumerate() {
        let separator = if index == 0 { "?clipped=" } else { "," };
        write!(url, "{separator}{}-{}", clip.offset, clip.length)
            .expect("a string can be written to");
    }
    Run {
        first: entry.first_message_id,
        last: entry.last_message_id,
        state: words::state(entry.representation()),
        reason: words::reason(entry.reason()).to_owned(),
        tokens: entry.tokens,
        original_tokens: entry.original_tokens,
        cool: entry.cool,
        x: 0.0,
        width: 0.0,
        url,
        has_strip: false,
    }
}

/// The strip of these runs.
fn finish(runs: Vec<Run>, paths: &StripPaths) -> Strip {
    let runs = place(merge(runs, paths));
    Strip {
        tokens: runs.iter().map(|run| run.tokens).sum(),
        original_tokens: runs.iter().map(|run| run.original_tokens).sum(),
        runs,
        url: paths.strip.clone(),
        range: None,
        detail_url: String::new(),
    }
}

/// Tokens that decide the width of a run.
fn length(run: &Run) -> u64 {
    run.original_tokens.max(run.tokens)
}

/// Merges neighbors until there are at most [`MOST_RUNS`]. A merged run has the state of its
/// longest part, and its own strip shows the parts.
fn merge(runs: Vec<Run>, paths: &StripPaths) -> Vec<Run> {
    if runs.len() <= MOST_RUNS {
        return runs;
    }
    let total: u64 = runs.iter().map(length).sum();
    // Two neighbors are together longer than a step, or one has the most parts. So at most half of
    // the runs end by their length, and a quarter by their parts.
    let step = (total / (MOST_RUNS as u64 / 4)).max(1);
    let at_most = runs.len().div_ceil(MOST_RUNS / 4);
    let mut merged: Vec<(Run, u64, usize)> = Vec::new();
    for run in runs {
        let run_length = length(&run);
        match merged.last_mut() {
            Some((last, longest, parts))
                if length(last) + run_length <= step && *parts < at_most =>
            {
                last.last = run.last;
                last.tokens += run.tokens;
                last.original_tokens += run.original_tokens;
                last.cool &= run.cool;
                last.has_strip = true;
                *parts += 1;
                if run_length > *longest {
                    *longest = run_length;
                    last.state = run.state;
                    last.reason = run.reason;
                }
            }
            _ => merged.push((run, run_length, 1)),
        }
    }
    let merged = merged.into_iter().map(|(mut run, _, parts)| {
        if parts > 1 {
            run.url = paths.range(run.first, run.last);
            if !run.reason.is_empty() {
                run.reason = format!("mostly: {}", run.reason);
            }
        }
        run
    });
    merged.collect()
}

/// Gives each run its place, of 1,000.
fn place(mut runs: Vec<Run>) -> Vec<Run> {
    let total: u64 = runs.iter().map(length).sum();
    let widths = runs.iter().map(|run| {
        let share = length(run) as f64 * 1_000.0 / total.max(1) as f64;
        share.max(LEAST_WIDTH)
    });
    let widths: Vec<f64> = widths.collect();
    let all: f64 = widths.iter().sum();
    let mut x = 0.0;
    for (run, width) in runs.iter_mut().zip(widths) {
        let width = width * 1_000.0 / all;
        run.x = x as f32;
        run.width = width as f32;
        x += width;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(count: i64) -> Vec<pb::ManifestEntry> {
        let entries = (1..=count).map(|id| pb::ManifestEntry {
            first_message_id: id,
            last_message_id: id,
            representation: if id % 2 == 0 {
                pb::Representation::Summary.into()
            } else {
                pb::Representation::Original.into()
            },
            tokens: id as u64,
            original_tokens: 3 * id as u64,
            ..pb::ManifestEntry::default()
        });
        entries.collect()
    }

    fn paths() -> StripPaths {
        StripPaths::of("x", &ControlFields::default())
    }

    #[test]
    fn a_strip_has_few_runs_and_all_messages_and_tokens() {
        for count in [0, 1, 400, 401, 5_000] {
            let strip = strip(&entries(count), &paths(), &[], false);
            assert!(strip.runs.len() <= MOST_RUNS, "{count}");
            let sum = (count * (count + 1) / 2) as u64;
            assert_eq!((strip.tokens, strip.original_tokens), (sum, 3 * sum));
            let mut next = 1;
            for run in &strip.runs {
                assert_eq!(run.first, next);
                assert_eq!(run.has_strip, run.first < run.last);
                next = run.last + 1;
            }
            assert_eq!(next, count + 1);
            let end = strip.runs.last().map_or(1_000.0, |run| run.x + run.width);
            assert!((end - 1_000.0).abs() < 0.5, "{end}");
        }
    }

    fn entry(
        first: i64,
        last: i64,
        representation: pb::Representation,
        (tokens, original_tokens): (u64, u64),
    ) -> pb::ManifestEntry {
        pb::ManifestEntry {
            first_message_id: first,
            last_message_id: last,
            representation: representation.into(),
            tokens,
            original_tokens,
            ..pb::ManifestEntry::default()
        }
    }

    fn token_run(first: i64, last: i64, tokens: u64, withdrawn: i64) -> pb::TokenRun {
        pb::TokenRun {
            first_message_id: first,
            last_message_id: last,
            tokens,
            withdrawn_messages: withdrawn,
            ..pb::TokenRun::default()
        }
    }

    #[test]
    fn messages_before_the_boundary_are_as_long_as_their_tokens() {
        let manifest = [
            entry(1, 3, pb::Representation::BeforeSeparator, (0, 0)),
            entry(4, 8, pb::Representation::Checkpoint, (30, 0)),
            entry(9, 9, pb::Representation::Original, (100, 100)),
        ];
        let drawn = strip(&manifest, &paths(), &[100, 200], false);
        let lengths: Vec<u64> = drawn.runs.iter().map(length).collect();
        assert_eq!(lengths, [100, 200, 100]);
        assert!((drawn.runs[1].width - 500.0).abs() < 0.1, "{drawn:?}");
        let runs = [
            token_run(1, 3, 100, 0),
            token_run(4, 6, 150, 1),
            token_run(7, 7, 0, 1),
            token_run(8, 8, 50, 0),
        ];
        let detailed = detailed_strip(&manifest, &paths(), &runs, (1, 9));
        let drawn: Vec<_> = detailed
            .runs
            .iter()
            .map(|run| (run.first, run.state, run.tokens, run.original_tokens))
            .collect();
        let expected = [
            (1, "separated", 0, 100),
            (4, "checkpoint", 0, 150),
            (7, "withdrawn", 0, 0),
            (8, "checkpoint", 30, 50),
            (9, "original", 100, 100),
        ];
        assert_eq!(drawn, expected);
        assert_eq!((detailed.tokens, detailed.original_tokens), (130, 400));
        let urls: Vec<&str> = detailed.runs.iter().map(|run| run.url.as_str()).collect();
        assert_eq!(urls[1], "/conversations/x/xray/strip?first=4&last=6");
        assert_eq!(urls[3], "/conversations/x/xray/messages/8");
    }

    #[test]
    fn a_strip_of_a_range_has_the_summary_only_with_the_end_of_its_messages() {
        let manifest = [entry(1, 8, pb::Representation::Checkpoint, (30, 0))];
        let runs = [token_run(1, 4, 250, 0)];
        let begin = detailed_strip(&manifest, &paths(), &runs, (1, 4));
        assert_eq!((begin.tokens, begin.original_tokens), (0, 250));
        let runs = [token_run(5, 8, 50, 0)];
        let end = detailed_strip(&manifest, &paths(), &runs, (5, 8));
        assert_eq!((end.tokens, end.original_tokens), (30, 50));
    }

    #[test]
    fn summaries_of_then_count_instead_of_their_messages() {
        let runs = [
            token_run(1, 1, 500, 0),
            token_run(2, 4, 900, 0),
            token_run(5, 5, 40, 0),
        ];
        let summarized = [(1, 500, 20), (3, 600, 30)];
        let drawn = stored_runs(&runs, &summarized, &paths());
        let drawn: Vec<_> = drawn
            .iter()
            .map(|run| (run.state, run.tokens, run.original_tokens))
            .collect();
        let expected = [
            ("summary", 20, 500),
            ("summary", 330, 900),
            ("original", 40, 40),
        ];
        assert_eq!(drawn, expected);
    }
}
