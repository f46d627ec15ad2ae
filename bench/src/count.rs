//! Counting tokens, one thread: ordinary text by kind, and hostile texts of 10 MB.

use std::{hint::black_box, time::Instant};

use anneal_core::tokens::Encoding;

use crate::figures::Figures;

const RUNS: usize = 5;
const MEGABYTE: usize = 1_000_000;

pub(crate) fn measure(figures: &mut Figures) {
    let counter = Encoding::O200kBase.counter();
    let ordinary = [
        ("English prose", include_str!("../../LICENSE").to_owned()),
        ("Rust source", include_str!("../../core/src/context/mod.rs").to_owned()),
        ("Chinese prose", "我们明天早上八点在车站见面，然后一起去看海。天气预报说会下雨，所以请带伞。".to_owned()),
    ];
    for (name, text) in ordinary {
        let text = text.repeat(MEGABYTE / text.len() + 1);
        let rates = (0..RUNS).map(|_| {
            let before = Instant::now();
            black_box(counter.count(black_box(&text)));
            text.len() as f64 / MEGABYTE as f64 / before.elapsed().as_secs_f64()
        });
        figures.add("count", name, "MB/s", rates.collect());
        let rates = (0..RUNS).map(|_| {
            let before = Instant::now();
            black_box(Encoding::O200kBase.estimate(black_box(&text)));
            text.len() as f64 / MEGABYTE as f64 / before.elapsed().as_secs_f64()
        });
        figures.add("count", format!("{name}, estimated"), "MB/s", rates.collect());
    }
    let mut random = 7_u64;
    let letters: String = (0..10 * MEGABYTE)
        .map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'a' + ((random >> 33) % 26) as u8)
        })
        .collect();
    let hostile = [
        ("10 MB of spaces", " ".repeat(10 * MEGABYTE)),
        ("10 MB of a", "a".repeat(10 * MEGABYTE)),
        ("10 MB of -", "-".repeat(10 * MEGABYTE)),
        ("10 MB of random letters", letters),
        ("10 MB of (- × 1,000, +)", ("-".repeat(1_000) + "+").repeat(10 * MEGABYTE / 1_001)),
    ];
    for (name, text) in hostile {
        let before = Instant::now();
        black_box(counter.count(black_box(&text)));
        figures.add("count", name, "s", vec![before.elapsed().as_secs_f64()]);
    }
}
