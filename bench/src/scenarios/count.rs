//! Counting tokens, one thread: ordinary text by kind, beside what else counts it, in turns; and whether the time of hostile
//! texts grows with their length and no faster.

use std::{hint::black_box, time::Instant};

use anneal_core::tokens::Encoding;

use crate::{
    figures::{Figure, Figures, Target, median},
    pace::Pace,
};

const RUNS: usize = 5;
const MEGABYTE: usize = 1_000_000;
/// Bytes of a short hostile text, and how many are timed.
const SHORT: usize = 10_000;
const PIECES: usize = 50;
/// Bytes of a long one.
const LONG: usize = 1_000 * SHORT;
/// Of the long ones the least time counts: each is long enough for the neighbours to disturb it.
const LONG_RUNS: usize = 3;

pub(crate) fn measure(pace: Pace, figures: &mut Figures) {
    ordinary(pace, figures);
    hostile(pace, figures);
}

fn ordinary(pace: Pace, figures: &mut Figures) {
    let kinds = [
        ("English prose", include_str!("../../../LICENSE").to_owned()),
        ("Rust source", include_str!("../../../core/src/context/mod.rs").to_owned()),
        ("Chinese prose", "我们明天早上八点在车站见面，然后一起去看海。天气预报说会下雨，所以请带伞。".to_owned()),
    ];
    let counter = Encoding::O200kBase.counter();
    for (name, text) in kinds {
        let text = text.repeat(pace.number(MEGABYTE as u64) as usize / text.len() + 1);
        let counts = counter.count(&text).get();
        for (other, counted) in [("bpe-openai", by_bpe_openai(&text)), ("tiktoken-rs", by_tiktoken(&text))] {
            assert_eq!(counts, counted as u64, "{other} counts {name} otherwise");
        }
        let (mut ours, mut bpe_openai, mut tiktoken, mut estimated) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..pace.rounds(RUNS) {
            ours.push(rate(&text, |text| counter.count(text)));
            bpe_openai.push(rate(&text, by_bpe_openai));
            tiktoken.push(rate(&text, by_tiktoken));
            estimated.push(rate(&text, |text| Encoding::O200kBase.estimate(text)));
        }
        for (other, theirs) in [("bpe-openai", &bpe_openai), ("tiktoken-rs", &tiktoken)] {
            let figure = Figure::new("count", format!("{name}, beside {other}"), "MB/s", &ours);
            figures.put(figure.beside(format!("{other}'s own count"), &ours, theirs));
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

/// MB per second of one go.
fn rate<T>(text: &str, count: impl Fn(&str) -> T) -> f64 {
    text.len() as f64 / MEGABYTE as f64 / seconds(text, count)
}

fn seconds<T>(text: &str, count: impl Fn(&str) -> T) -> f64 {
    let before = Instant::now();
    black_box(count(black_box(text)));
    before.elapsed().as_secs_f64()
}

/// Each kind at both lengths; the worst of them is what is to be linear. The short texts are pieces from all over the long
/// one: the same piece again and again would find all that it needs in the processor's caches.
fn hostile(pace: Pace, figures: &mut Figures) {
    let bytes = pace.number(LONG as u64) as usize;
    let counter = Encoding::O200kBase.counter();
    let mut worst = f64::MIN;
    for (name, text) in hostile_texts(bytes) {
        let of_a_byte = |text: &str| seconds(text, |text| counter.count(text)) / text.len() as f64;
        let short: Vec<f64> = pieces(&text).map(of_a_byte).collect();
        let long = (0..pace.rounds(LONG_RUNS)).map(|_| of_a_byte(&text)).fold(f64::MAX, f64::min);
        let growth = long / median(&short);
        worst = worst.max(growth);
        let said = format!("{} MB of {name}", bytes as f64 / MEGABYTE as f64);
        figures.add("count", said, "s", [long * text.len() as f64]);
        figures.add("count", format!("{name}: time of a byte, long text to 10 kB"), "ratio", [growth]);
    }
    let worst = Figure::new("count", "time of a byte, long text to 10 kB, worst kind", "ratio", &[worst]);
    figures.put(worst.target(Target::AtMost(1.5)));
}

/// Pieces of 10 kB, evenly spread.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    (0..PIECES).map(|piece| {
        let start = text.ceil_char_boundary(piece * (text.len() - 2 * SHORT) / PIECES);
        &text[start..text.ceil_char_boundary(start + SHORT)]
    })
}

/// The kinds of text that tokenizers have been slow on, this long.
fn hostile_texts(bytes: usize) -> Vec<(&'static str, String)> {
    let repeated = |unit: &str| unit.repeat(bytes / unit.len() + 1);
    let mut dice = fastrand::Rng::with_seed(7);
    let letters: String = (0..bytes).map(|_| dice.lowercase()).collect();
    // Of three bytes on average: a surrogate is no character and is left out.
    let unicode: String = (0..bytes / 3).filter_map(|_| char::from_u32(dice.u32(..0x2_0000))).collect();
    vec![
        ("spaces", repeated(" ")),
        ("a", repeated("a")),
        ("-", repeated("-")),
        ("tabs", repeated("\t")),
        ("(- × 1,000, +)", repeated(&("-".repeat(1_000) + "+"))),
        ("combining marks", repeated("e\u{301}\u{302}\u{303}\u{304}\u{305}")),
        ("random letters", letters),
        ("random unicode", unicode),
    ]
}
