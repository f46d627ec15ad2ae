//! Counts, compared with those of tiktoken. Truncated texts and chunks, checked by their counts.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;

use crate::texts::{Dice, RUN_UNITS, SAMPLES, random_corpora, random_text, sample_corpora};
use anneal_core::tokens::{Counter, Encoding, Tokens};
use proptest::prelude::*;
use tiktoken_rs::{cl100k_base_singleton, o200k_base_singleton};

fn tiktoken_count(encoding: Encoding, text: &str) -> u64 {
    let tiktoken = match encoding {
        Encoding::O200kBase => o200k_base_singleton(),
        Encoding::Cl100kBase => cl100k_base_singleton(),
    };
    tiktoken.count(text, &HashSet::new()).unwrap() as u64
}

fn assert_counts_as_tiktoken(text: &str) {
    for encoding in Encoding::ALL {
        let shown: String = text.chars().take(200).collect();
        assert_eq!(
            encoding.counter().count(text).get(),
            tiktoken_count(encoding, text),
            "{encoding:?}: {shown:?}"
        );
    }
}

/// Samples in random order, of about this many bytes.
fn shuffled_samples(bytes: usize) -> String {
    let mut dice = Dice::new(bytes as u64);
    let mut text = String::new();
    while text.len() < bytes {
        text += SAMPLES[dice.below(SAMPLES.len())].1;
    }
    text
}

#[test]
fn counts_are_those_of_tiktoken_in_every_script() {
    for (_, texts) in sample_corpora(40) {
        for text in &texts {
            assert_counts_as_tiktoken(text);
        }
    }
    for (_, texts) in random_corpora(6) {
        for text in &texts {
            assert_counts_as_tiktoken(text);
        }
    }
    assert_counts_as_tiktoken("");
    assert_counts_as_tiktoken(&shuffled_samples(300_000));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn counts_are_those_of_tiktoken_on_adversarial_text(
        text in "([ \t\n\r\u{a0}\u{3000}]{0,5}|'(s|S|t|re|VE|ll|x)|\\PC|[\u{300}-\u{310}]|[0-9]{1,5}|[a-zA-Z]{1,6}|\
                 [一-丄あ-お가-갂]|👩‍🚀|🇩🇪|<\\|endoftext\\|>|<\\|im_start\\|>|[-=/*#.,;(){}]{1,20}){0,40}"
    ) {
        assert_counts_as_tiktoken(&text);
    }

    #[test]
    fn a_truncated_text_is_the_longest_prefix_that_fits(
        text in "([ \t\n\r\u{a0}]{0,4}|'(s|t|re|ll)|\\PC|[\u{300}-\u{310}]|[0-9]{1,5}|[a-zA-Z]{1,9}|[一-丄あ-お]|👩‍🚀|[-=/]{1,9}){0,12}"
    ) {
        for encoding in Encoding::ALL {
            let counter = encoding.counter();
            let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            for n in 0..=counter.count(&text).get() {
                let longest = ends.iter().rev().find(|end| counter.count(&text[..**end]).get() <= n).unwrap();
                let (front, tokens) = counter.truncate(&text, Tokens::new(n));
                prop_assert_eq!((front, tokens), (&text[..*longest], counter.count(front)));
            }
        }
    }
}

#[test]
fn a_special_token_in_text_is_ordinary_text() {
    for encoding in Encoding::ALL {
        assert_eq!(encoding.counter().count("<|endoftext|>"), Tokens::new(7));
    }
}

#[test]
fn runs_are_counted_as_tiktoken_counts_them() {
    for run in RUN_UNITS {
        for length in [1, 127, 128, 129, 1000, 4095, 4096, 4097, 5000, 20_000] {
            assert_counts_as_tiktoken(&run.repeat(length));
            assert_counts_as_tiktoken(&format!("x{}y", run.repeat(length)));
        }
    }
}

/// tiktoken itself panics on some of these texts. So the count of a megabyte is compared with the
/// count of a tenth of it.
#[test]
fn a_megabyte_of_one_character_has_ten_times_the_tokens_of_its_tenth() {
    for run in RUN_UNITS {
        let tenth = run.repeat(102_400 / run.len());
        for encoding in Encoding::ALL {
            let (part, whole) = (
                encoding.counter().count(&tenth),
                encoding.counter().count(&tenth.repeat(10)),
            );
            // A token may span the end of one tenth and the beginning of the next: about two tokens
            // are allowed for each of the nine places.
            assert!(
                whole.get().abs_diff(part.get() * 10) <= 20,
                "{run:?}: {whole} tokens in the megabyte, {part} in its tenth"
            );
            assert!(tiktoken_count(encoding, &tenth) == part.get(), "{run:?}");
        }
    }
}

#[test]
fn a_megabyte_of_random_text_is_counted() {
    let mut dice = Dice::new(1);
    let alphabets = [
        "abcdefghijklmnopqrstuvwxyz",
        " \t",
        "-+",
        "\u{300}\u{301}",
        "的一是不了人我在有他",
        "aZ9 \n'.é中😀",
    ];
    for alphabet in alphabets {
        let text = random_text(&mut dice, alphabet, 1_000_000);
        for encoding in Encoding::ALL {
            let tokens = encoding.counter().count(&text).get();
            // A token has 1 to 128 bytes, and the last character may exceed the megabyte.
            assert!(
                (1_000_000 / 128..=1_000_004).contains(&tokens),
                "{tokens} tokens of {alphabet:?}"
            );
        }
    }
    let interrupted_runs = format!("{}+", "-".repeat(1000)).repeat(300);
    assert_counts_as_tiktoken(&interrupted_runs);
    let letters = random_text(&mut dice, "abcdefghijklmnopqrstuvwxyz", 1_000_000);
    assert_counts_as_tiktoken(&letters);
}

/// Texts of many pieces, of one piece, and of runs.
fn texts_to_truncate() -> Vec<String> {
    let mut dice = Dice::new(7);
    let mut texts: Vec<String> = RUN_UNITS
        .iter()
        .map(|run| run.repeat(30_000 / run.len()))
        .collect();
    texts.push(shuffled_samples(40_000));
    texts.push(random_text(&mut dice, "abcdefghijklmnopqrstuvwxyz", 20_000));
    texts.push(random_text(&mut dice, "的一是不了人我在有他龘", 20_000));
    texts.push(random_text(&mut dice, " \t\n\r\u{a0}a", 20_000));
    texts.push(SAMPLES.map(|(_, sample)| sample).concat());
    texts
}

/// Numbers of tokens to truncate to.
const CUTS: [u64; 10] = [0, 1, 2, 3, 16, 17, 100, 999, 1_000, 7_000];

#[test]
fn a_prefix_has_at_most_the_requested_tokens_and_nearly_as_many() {
    for_every_cut(|counter, text, n| {
        let (front, tokens) = counter.truncate(text, n);
        assert!(text.starts_with(front));
        assert_eq!(tokens, counter.count(front));
        let unused = n.less(tokens).get();
        // 4: the next character takes up to so many tokens and may not fit.
        assert!(
            tokens <= n && (front.len() == text.len() || unused <= 4),
            "{tokens} tokens, at most {n} requested"
        );
    });
}

#[test]
fn a_suffix_has_at_most_the_requested_tokens_and_nearly_as_many() {
    for_every_cut(|counter, text, n| {
        let (back, tokens) = counter.truncate_start(text, n);
        assert!(text.ends_with(back));
        assert_eq!(tokens, counter.count(back));
        let unused = n.less(tokens).get();
        // The bound is wider than the few tokens that `truncate_start` promises.
        assert!(
            tokens <= n && (back.len() == text.len() || unused <= n.get() / 20 + 16),
            "{tokens} tokens, at most {n} requested"
        );
    });
}

#[test]
fn chunks_are_consecutive_and_each_fits() {
    for_every_cut(|counter, text, n| {
        let at_most = n.max(Tokens::new(16));
        if n != at_most && n != Tokens::new(0) {
            // Values below 16 behave as 16. Of these only 0 is tested.
            return;
        }
        let mut end = 0;
        let mut chunks = 0;
        for chunk in counter.chunks(text, n) {
            assert!(chunk.start == end && chunk.end > end);
            end = chunk.end;
            chunks += 1;
            assert!(counter.count(&text[chunk]) <= at_most);
        }
        assert_eq!(end, text.len());
        // A chunk is at most an eighth shorter for a better cut, and slightly shorter for whole
        // characters. The bound is wider than that.
        let fewest = counter.count(text).get().div_ceil(at_most.get());
        assert!(
            chunks <= fewest + fewest / 2 + 1,
            "{chunks} chunks where {fewest} suffice"
        );
    });
}

fn for_every_cut(claim: impl Fn(&Counter, &str, Tokens)) {
    for text in texts_to_truncate() {
        for encoding in Encoding::ALL {
            for n in CUTS {
                claim(encoding.counter(), &text, Tokens::new(n));
            }
        }
    }
}
