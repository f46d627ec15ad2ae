//! The strip of messages: runs of equal state, as wide as their tokens.

use std::fmt::Write as _;

use anneal_proto::v1 as pb;
use anneal_web::xray::{Run, Strip};

use super::words;

/// Most runs of a strip. A browser draws each as a rectangle.
const MOST_RUNS: usize = 400;

/// Least share of a run in the strip, in thousandths, so that a pointer can hit it.
const LEAST_WIDTH: f64 = 1.5;

/// The strip of a context. `base`: the path of the conversation's X-ray. `before_boundary`: tokens
/// of the messages that the context did not read. `detail_url`: where those can be seen in detail;
/// empty: nowhere.
pub(super) fn strip(
    manifest: &[pb::ManifestEntry],
    base: &str,
    before_boundary: u64,
    detail_url: String,
) -> Strip {
    let mut runs: Vec<Run> = manifest.iter().map(|entry| run(entry, base)).collect();
    // Several runs can be unread: those before a separator and those of a checkpoint. The newest of
    // them borders on the tail.
    if let Some(unread) = runs.iter_mut().rev().find(|run| is_unread(run)) {
        unread.original_tokens = before_boundary;
    }
    finish(runs, detail_url)
}

/// The strip of a context in which messages that it did not read have the lengths of these runs.
pub(super) fn detailed_strip(
    manifest: &[pb::ManifestEntry],
    base: &str,
    token_runs: &[pb::TokenRun],
    (first, last): (i64, i64),
) -> Strip {
    let mut runs = Vec::new();
    for entry in manifest {
        let entry = run(entry, base);
        if entry.last < first || entry.first > last {
            continue;
        }
        if !is_unread(&entry) {
            runs.push(entry);
            continue;
        }
        let inside = token_runs.iter().filter_map(|it| {
            let run_first = it.first_message_id.max(entry.first);
            let run_last = it.last_message_id.min(entry.last);
            (run_first <= run_last && it.first_message_id >= entry.first).then(|| Run {
                first: run_first,
                last: run_last,
                original_tokens: it.tokens,
                url: format!("{base}/messages/{}", it.largest_message_id.max(run_first)),
                ..entry.clone()
            })
        });
        runs.extend(inside);
    }
    finish(runs, String::new())
}

/// Whether a context did not read these messages.
fn is_unread(run: &Run) -> bool {
    run.original_tokens == 0 && matches!(run.state, "checkpoint" | "separated" | "dropped")
}

/// The runs of messages as they are stored, without a context.
pub(super) fn stored_runs(token_runs: &[pb::TokenRun], base: &str) -> Vec<Run> {
    let runs = token_runs.iter().map(|it| {
        let is_withdrawn = it.withdrawn_messages > it.last_message_id - it.first_message_id;
        let state = if is_withdrawn {
            "withdrawn"
        } else {
            "original"
        };
        Run {
            first: it.first_message_id,
            last: it.last_message_id,
            state,
            reason: String::new(),
            tokens: it.tokens,
            original_tokens: it.tokens,
            cool: false,
            x: 0.0,
            width: 0.0,
            url: format!(
                "{base}/messages/{}",
                it.largest_message_id.max(it.first_message_id)
            ),
        }
    });
    place(runs.collect())
}

/// A part of the manifest.
fn run(entry: &pb::ManifestEntry, base: &str) -> Run {
    let mut url = format!("{base}/messages/{}", entry.first_message_id);
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
    }
}

/// The strip of these runs.
fn finish(runs: Vec<Run>, detail_url: String) -> Strip {
    let runs = place(merge(runs));
    Strip {
        tokens: runs.iter().map(|run| run.tokens).sum(),
        original_tokens: runs.iter().map(|run| run.original_tokens).sum(),
        runs,
        detail_url,
    }
}

/// Tokens that decide the width of a run.
fn length(run: &Run) -> u64 {
    run.original_tokens.max(run.tokens)
}

/// Merges neighbors until there are at most [`MOST_RUNS`]. A merged run has the state of its
/// longest part, and names the others.
fn merge(runs: Vec<Run>) -> Vec<Run> {
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
                *parts += 1;
                if run_length > *longest {
                    *longest = run_length;
                    last.state = run.state;
                    last.url = run.url;
                    last.reason = format!("mostly: {}", run.reason);
                }
            }
            _ => merged.push((run, run_length, 1)),
        }
    }
    merged.into_iter().map(|(run, ..)| run).collect()
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

    #[test]
    fn a_strip_has_few_runs_and_all_messages_and_tokens() {
        for count in [0, 1, 400, 401, 5_000] {
            let strip = strip(&entries(count), "/x", 0, String::new());
            assert!(strip.runs.len() <= MOST_RUNS, "{count}");
            let sum = (count * (count + 1) / 2) as u64;
            assert_eq!((strip.tokens, strip.original_tokens), (sum, 3 * sum));
            let mut next = 1;
            for run in &strip.runs {
                assert_eq!(run.first, next);
                next = run.last + 1;
            }
            assert_eq!(next, count + 1);
            let end = strip.runs.last().map_or(1_000.0, |run| run.x + run.width);
            assert!((end - 1_000.0).abs() < 0.5, "{end}");
        }
    }

    #[test]
    fn messages_before_the_boundary_are_as_long_as_their_tokens() {
        let manifest = [
            pb::ManifestEntry {
                first_message_id: 1,
                last_message_id: 8,
                representation: pb::Representation::Checkpoint.into(),
                ..pb::ManifestEntry::default()
            },
            pb::ManifestEntry {
                first_message_id: 9,
                last_message_id: 9,
                tokens: 100,
                original_tokens: 100,
                ..pb::ManifestEntry::default()
            },
        ];
        let drawn = strip(&manifest, "/x", 300, String::new());
        assert!((drawn.runs[0].width - 750.0).abs() < 0.1, "{drawn:?}");
        let token_run = |first, last, tokens| pb::TokenRun {
            first_message_id: first,
            last_message_id: last,
            tokens,
            ..pb::TokenRun::default()
        };
        let runs = [
            token_run(1, 4, 250),
            token_run(5, 8, 50),
            token_run(9, 9, 100),
        ];
        let detailed = detailed_strip(&manifest, "/x", &runs, (1, 9));
        let lengths: Vec<u64> = detailed.runs.iter().map(length).collect();
        assert_eq!(lengths, [250, 50, 100]);
    }
}
