//! Gate: the text repeats itself.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::extractive::text;

use super::word_hashes::{shingles, word_hashes};

/// A line or sentence of at least `MIN_LINE_CHARS` characters may occur at most `MAX_LINE_TIMES`
/// times. Shorter ones, such as "Done.", recur in any list.
const MIN_LINE_CHARS: usize = 16;
const MAX_LINE_TIMES: usize = 3;

/// Largest percentage of the runs of four words that may repeat an earlier run. Reports of similar
/// events reach 30; a loop of three rounds exceeds 50.
const MAX_REPEATED_PERCENT: usize = 50;

/// Texts with fewer runs of four words pass.
const MIN_RUNS: usize = 24;

/// A cycle of up to `MAX_CYCLE_WORDS` words is a loop when `CYCLE_REPEATS` rounds follow the first.
const MAX_CYCLE_WORDS: usize = 8;
const CYCLE_REPEATS: usize = 3;
/// Fewest words that repeat the first round of a loop: a list of figures may hold one word several
/// times in a row.
const MIN_CYCLE_RUN: usize = 6;

/// A run of characters is a loop if at least this many of them repeat the characters one period
/// before, and at least a quarter of them are letters.
const MIN_RUN_CHARS: usize = 48;

/// Longest period of such a run, in characters.
const MAX_PERIOD_CHARS: usize = 12;

/// Whether the text repeats itself.
pub(super) fn is_repetitive(text: &str) -> bool {
    repeats_lines(text) || repeats_words(text) || repeats_cycles(text) || repeats_characters(text)
}

fn repeats_lines(text: &str) -> bool {
    let mut times: FxHashMap<&str, usize> = FxHashMap::default();
    let ends = ['\n', '.', '!', '?', '。', '！', '？', '।'];
    text.split(ends)
        .map(str::trim)
        .filter(|line| line.chars().map(weight).sum::<usize>() >= MIN_LINE_CHARS)
        .any(|line| {
            let count = times.entry(line).or_default();
            *count += 1;
            *count > MAX_LINE_TIMES
        })
}

/// A character of a script without spaces counts as two letters.
fn weight(c: char) -> usize {
    if text::is_cjk(c) || text::is_southeast_asian(c) {
        2
    } else {
        1
    }
}

fn repeats_words(text: &str) -> bool {
    let (mut seen, mut all) = (FxHashSet::default(), 0);
    for shingle in shingles::<4>(word_hashes(text)) {
        seen.insert(shingle);
        all += 1;
    }
    all >= MIN_RUNS && (all - seen.len()) * 100 > all * MAX_REPEATED_PERCENT
}

/// Whether a few words are repeated in a row somewhere in the text.
fn repeats_cycles(text: &str) -> bool {
    let words: Vec<u64> = word_hashes(text).collect();
    (1..=MAX_CYCLE_WORDS).any(|period| {
        let mut run = 0;
        words
            .iter()
            .zip(words.iter().skip(period))
            .any(|(before, word)| {
                run = if before == word { run + 1 } else { 0 };
                run >= (period * CYCLE_REPEATS).max(MIN_CYCLE_RUN)
            })
    })
}

fn repeats_characters(text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    (1..=MAX_PERIOD_CHARS).any(|period| {
        let (mut run, mut letters) = (0, 0);
        chars
            .iter()
            .zip(chars.iter().skip(period))
            .any(|(before, c)| {
                let repeats = before == c;
                run = if repeats { run + 1 } else { 0 };
                letters = if repeats {
                    letters + usize::from(c.is_alphabetic())
                } else {
                    0
                };
                run >= MIN_RUN_CHARS && letters * 4 >= run
            })
    })
}

#[cfg(test)]
mod tests {
    use super::is_repetitive;

    #[test]
    fn loops_of_lines_words_and_characters_are_found() {
        for text in [
            "The build failed again\n".repeat(4),
            "Fine. I will look into the issue. ".repeat(5),
            "and then the user asked for the next step ".repeat(8),
            "用户要求修复登录问题，".repeat(8),
            "哈".repeat(60),
            "用户要求修复登录。甲。用户要求修复登录。乙。用户要求修复登录。丙。用户要求修复登录。"
                .to_owned(),
            "no".repeat(40),
            "word: na na na na na na na na na na na na na na na na na na na na".to_owned(),
        ] {
            assert!(is_repetitive(&text), "{text}");
        }
    }

    #[test]
    fn lists_separator_lines_and_long_numbers_are_not_loops() {
        let list: Vec<String> = (0..40)
            .map(|i| format!("- llm/src/part{i}.rs: moved to core/src/part{i}.rs, tests pass\n"))
            .collect();
        let steps: Vec<String> = (0..12)
            .map(|i| format!("Step {i}: ran migration {} and it was fine.\n", i * 7))
            .collect();
        for text in [
            list.concat(),
            steps.concat(),
            format!("Before\n{}\nAfter", "-".repeat(200)),
            format!("The digest was {}.", "0".repeat(64)),
            "| a | b |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |".to_owned(),
            "Done. Done. Done. Done.".to_owned(),
            "完成。进行：测试通过。部署：测试通过。登录：测试通过。支付：测试通过。".to_owned(),
            "A: Всё готово. B: Да. Всё готово. C: Нет. Всё готово. D: Потом. Всё готово. E: Снова да.".to_owned(),
            "用户要求修复登录问题。助手检查了会话代码，发现令牌过期判断写反了，改正后测试全部通过。下一步是部署到预发环境。".to_owned(),
        ] {
            assert!(!is_repetitive(&text), "{text}");
        }
    }
}
