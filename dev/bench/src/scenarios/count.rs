//! Counting tokens on one thread: ordinary texts of several kinds, which other tokenizers count in
//! turn; and a check that the time for hostile texts grows no faster than their length.

use std::{hint::black_box, time::Instant};

use anneal_core::tokens::Encoding;

use crate::{
    figures::{Figure, Figures, Target, median},
    pace::Pace,
};

const RUNS: usize = 5;
const MEGABYTE: usize = 1_000_000;
/// Bytes of a short hostile text.
const SHORT_BYTES: usize = 10_000;
/// Short texts that are timed for each long one: pieces of it.
const PIECES: usize = 50;
/// Bytes of a long hostile text.
const LONG_BYTES: usize = 1_000 * SHORT_BYTES;
/// Runs of a long text. The fastest counts, because other processes on the machine easily disturb a
/// long run.
const LONG_RUNS: usize = 3;

pub(crate) fn measure(pace: Pace, figures: &mut Figures) {
    measure_ordinary(pace, figures);
    measure_hostile(pace, figures);
}

fn measure_ordinary(pace: Pace, figures: &mut Figures) {
    let kinds = [
        (
            "English prose",
            include_str!("../../../../LICENSE").to_owned(),
        ),
        (
            "Rust source",
            include_str!("../../../../core/src/context/mod.rs").to_owned(),
        ),
        (
            "Chinese prose",
            "我们明天早上八点在车站见面，然后一起去看海。天气预报说会下雨，所以请带伞。".to_owned(),
        ),
    ];
    let counter = Encoding::O200kBase.counter();
    for (name, text) in kinds {
        let text = text.repeat(pace.number(MEGABYTE as u64) as usize / text.len() + 1);
        let tokens = counter.count(&text).get();
        for (other, other_tokens) in [
            ("bpe-openai", by_bpe_openai(&text)),
            ("tiktoken-rs", by_tiktoken(&text)),
        ] {
            assert_eq!(
                tokens, other_tokens as u64,
                "{other} counts {name} differently"
            );
        }
        let (mut ours, mut bpe_openai, mut tiktoken, mut estimated) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..pace.rounds(RUNS) {
            ours.push(rate(&text, |text| counter.count(text)));
            bpe_openai.push(rate(&text, by_bpe_openai));
            tiktoken.push(rate(&text, by_tiktoken));
            estimated.push(rate(&text, |text| Encoding::O200kBase.estimate(text)));
        }
        for (other, theirs) in [("bpe-openai", &bpe_openai), ("tiktoken-rs", &tiktoken)] {
            let figure = Figure::new("count", format!("{name}, beside {other}"), "MB/s", &ours);
            figures.put(figure.with_baseline(format!("{other}'s own count"), &ours, theirs));
        }
        figures.add("count", format!("{name}, estimated"), "MB/s", estimated);
    }
}

fn by_bpe_openai(text: &str) -> usize {
    bpe_openai::o200k_base().count(text)
}

fn by_tiktoken(text: &str) -> usize {
    tiktoken_rs::o200k_base_singleton().count_ordinary(text)
}

/// MB per second of one run.
fn rate<T>(text: &str, count: impl Fn(&str) -> T) -> f64 {
    text.len() as f64 / MEGABYTE as f64 / seconds(text, count)
}

fn seconds<T>(text: &str, count: impl Fn(&str) -> T) -> f64 {
    let before = Instant::now();
    black_box(count(black_box(text)));
    before.elapsed().as_secs_f64()
}

/// Measures each kind of hostile text at both lengths. Even for the worst kind, the time must be
/// linear in the length. The short texts are different pieces of the long one: counting the same
/// piece repeatedly would profit from the processor's caches.
fn measure_hostile(pace: Pace, figures: &mut Figures) {
    let bytes = pace.number(LONG_BYTES as u64) as usize;
    let counter = Encoding::O200kBase.counter();
    let mut worst_growth = f64::MIN;
    for (name, text) in hostile_texts(bytes) {
        let seconds_per_byte =
            |text: &str| seconds(text, |text| counter.count(text)) / text.len() as f64;
        let short: Vec<f64> = pieces(&text).map(seconds_per_byte).collect();
        let long = (0..pace.rounds(LONG_RUNS))
            .map(|_| seconds_per_byte(&text))
            .fold(f64::MAX, f64::min);
        let growth = long / median(&short);
        worst_growth = worst_growth.max(growth);
        let title = format!("{} MB of {name}", bytes as f64 / MEGABYTE as f64);
        figures.add("count", title, "s", [long * text.len() as f64]);
        figures.add(
            "count",
            format!("{name}: time of a byte, long text to 10 kB"),
            "ratio",
            [growth],
        );
    }
    let figure = Figure::new(
        "count",
        "time of a byte, long text to 10 kB, worst kind",
        "ratio",
        &[worst_growth],
    );
    figures.put(figure.with_target(Target::AtMost(1.5)));
}

/// Pieces of 10 kB at equal distances. The last one ends well before the end of the text.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    (0..PIECES).map(|piece| {
        let start = text.ceil_char_boundary(piece * (text.len() - 2 * SHORT_BYTES) / PIECES);
        &text[start..text.ceil_char_boundary(start + SHORT_BYTES)]
    })
}

/// Texts of about this length, of kinds that have been slow in tokenizers.
fn hostile_texts(bytes: usize) -> Vec<(&'static str, String)> {
    let repeated = |unit: &str| unit.repeat(bytes / unit.len() + 1);
    let mut random = fastrand::Rng::with_seed(7);
    let letters: String = (0..bytes).map(|_| random.lowercase()).collect();
    // Most of these characters have three or four bytes. Surrogates are not characters and are left
    // out.
    let unicode: String = (0..bytes / 3)
        .filter_map(|_| char::from_u32(random.u32(..0x2_0000)))
        .collect();
    vec![
        ("spaces", repeated(" ")),
        ("a", repeated("a")),
        ("-", repeated("-")),
        ("tabs", repeated("\t")),
        ("(- × 1,000, +)", repeated(&("-".repeat(1_000) + "+"))),
        (
            "combining marks",
            repeated("e\u{301}\u{302}\u{303}\u{304}\u{305}"),
        ),
        ("random letters", letters),
        ("random unicode", unicode),
    ]
}
