//! Checks the bounds of token estimates on generated text in every script and on real
//! conversations.

use std::path::Path;

use crate::texts::{RUN_UNITS, random_corpora, sample_corpora};
use anneal_core::tokens::Encoding;
use anneal_test_data::find_test_data;

/// An estimate may be too low by this many tokens in addition to 5 %, because in short texts errors
/// do not average out.
const SLACK: f64 = 2.0;

/// Names of the corpora of ordinary text. The estimate of such a corpus is at most 30 % too high.
const ORDINARY: [&str; 7] = [
    "english", "rust", "python", "json", "minified", "chinese", "markdown",
];

/// The exact and the estimated count of one text, or their sums over several texts, in tokens.
#[derive(Default)]
struct Counts {
    exact: f64,
    estimated: f64,
}

/// Counts the text in both ways, and asserts that the estimate is not too low.
fn assert_not_underestimated(name: &str, encoding: Encoding, text: &str) -> Counts {
    let exact = encoding.counter().count(text).get() as f64;
    let estimated = encoding.estimate(text).get() as f64;
    let shown: String = text.chars().take(200).collect();
    assert!(
        estimated >= 0.95 * exact - SLACK,
        "{name}, {encoding:?}: estimated {estimated}, counted {exact}: {shown:?}"
    );
    Counts { exact, estimated }
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.exact += other.exact;
        self.estimated += other.estimated;
    }

    fn ratio(&self) -> f64 {
        self.estimated / self.exact
    }
}

#[test]
fn no_text_in_any_script_is_underestimated_by_more_than_5_percent() {
    for encoding in Encoding::ALL {
        for (name, texts) in random_corpora(30) {
            for text in &texts {
                assert_not_underestimated(&name, encoding, text);
            }
        }
        for (name, texts) in sample_corpora(60) {
            for text in &texts {
                assert_not_underestimated(name, encoding, text);
            }
        }
    }
}

#[test]
fn no_run_of_one_character_is_underestimated_by_more_than_5_percent() {
    for encoding in Encoding::ALL {
        for character in (0..=255).map(char::from).chain("中あ한กहЖ😀".chars()) {
            for length in [1, 2, 3, 5, 8, 13, 21, 64, 65, 129, 1000, 5000] {
                let run = character.to_string().repeat(length);
                assert_not_underestimated("run", encoding, &run);
                assert_not_underestimated("run in words", encoding, &format!("a {run} b{run}"));
            }
        }
        for run in RUN_UNITS {
            assert_not_underestimated("run", encoding, &run.repeat(20_000));
        }
    }
}

#[test]
fn ordinary_texts_together_are_estimated_at_most_30_percent_high() {
    for encoding in Encoding::ALL {
        for (name, texts) in sample_corpora(60)
            .into_iter()
            .filter(|(name, _)| ORDINARY.contains(name))
        {
            let mut sums = Counts::default();
            for text in &texts {
                sums.add(&assert_not_underestimated(name, encoding, text));
            }
            println!("{name:10} {:12} {:.3}", encoding.name(), sums.ratio());
            assert!(
                sums.ratio() <= 1.3,
                "{name}, {encoding:?}: {:.3}",
                sums.ratio()
            );
        }
    }
}

#[test]
fn real_conversations_are_estimated_within_bounds() {
    let Some(folder) = find_test_data("") else {
        return;
    };
    for origin in std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
    {
        let name = origin.file_name().unwrap().to_string_lossy().into_owned();
        let files = std::fs::read_dir(&origin)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let texts: Vec<String> = files.flat_map(|file| texts_of(&file)).collect();
        for encoding in Encoding::ALL {
            let mut sums = Counts::default();
            for text in &texts {
                sums.add(&assert_not_underestimated(&name, encoding, text));
            }
            println!(
                "{name:12} {:12} {:.3} of {} tokens",
                encoding.name(),
                sums.ratio(),
                sums.exact
            );
            assert!(
                sums.exact == 0.0 || sums.ratio() <= 1.3,
                "{name}, {encoding:?}: {:.3}",
                sums.ratio()
            );
        }
    }
}

/// The file itself, and every string in it if it is JSON or JSON lines.
fn texts_of(file: &Path) -> Vec<String> {
    let Ok(text) = std::fs::read_to_string(file) else {
        return Vec::new();
    };
    let mut texts = Vec::new();
    let values = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>();
    for value in values.map_while(Result::ok) {
        collect_strings(value, &mut texts);
    }
    texts.push(text);
    texts
}

fn collect_strings(value: serde_json::Value, into: &mut Vec<String>) {
    match value {
        serde_json::Value::String(text) => into.push(text),
        serde_json::Value::Array(values) => {
            for value in values {
                collect_strings(value, into);
            }
        }
        serde_json::Value::Object(fields) => fields
            .into_iter()
            .for_each(|(_, value)| collect_strings(value, into)),
        _ => {}
    }
}
