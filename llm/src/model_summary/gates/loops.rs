//! A text that says the same again and again.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::extractive::text;

use super::units::{shingles, units};

/// A line or sentence of at least so many characters is said at most so often. Short ones recur in any list ("Done.").
const LINE_CHARS: usize = 16;
const LINE_TIMES: usize = 3;

/// Of the runs of four words, at most so many hundredths may have been said before. Reports of similar things reach 30;
/// a loop that has gone around twice passes 50.
const REPEATED_PERCENT: usize = 50;

/// With fewer words nothing can be said of them.
const LEAST_WORDS: usize = 24;

/// Words that are followed by themselves: a cycle of up to so many, gone around four times.
const CYCLE_WORDS: usize = 8;
const CYCLE_TIMES: usize = 3;
/// A single word may be said more often: lists of figures hold the same one.
const LEAST_CYCLE: usize = 6;

/// A stretch of so many characters that repeats its first few, a letter among them, is a loop inside a word.
const RUN_CHARS: usize = 48;

/// The longest such repetition, in characters.
const RUN_PERIOD: usize = 12;

/// Whether the text repeats itself.
pub(super) fn has(text: &str) -> bool {
    repeats_lines(text) || repeats_words(text) || repeats_cycles(text) || repeats_characters(text)
}

fn repeats_lines(text: &str) -> bool {
    let mut times: FxHashMap<&str, usize> = FxHashMap::default();
    let ends = ['\n', '.', '!', '?', '。', '！', '？', '।'];
    text.split(ends).map(str::trim).filter(|said| said.chars().map(weight).sum::<usize>() >= LINE_CHARS).any(|said| {
        let count = times.entry(said).or_default();
        *count += 1;
        *count > LINE_TIMES
    })
}

/// A character of a script without spaces says as much as two letters.
fn weight(c: char) -> usize {
    if text::is_cjk(c) || text::is_southeast(c) { 2 } else { 1 }
}

fn repeats_words(text: &str) -> bool {
    let (mut seen, mut all) = (FxHashSet::default(), 0);
    for shingle in shingles::<4>(units(text)) {
        seen.insert(shingle);
        all += 1;
    }
    all >= LEAST_WORDS && (all - seen.len()) * 100 > all * REPEATED_PERCENT
}

/// Whether a few words go around in a circle, though what stands before and after them is fine.
fn repeats_cycles(text: &str) -> bool {
    let words: Vec<u64> = units(text).collect();
    (1..=CYCLE_WORDS).any(|period| {
        let mut run = 0;
        words.iter().zip(words.iter().skip(period)).any(|(before, word)| {
            run = if before == word { run + 1 } else { 0 };
            run >= (period * CYCLE_TIMES).max(LEAST_CYCLE)
        })
    })
}

fn repeats_characters(text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    (1..=RUN_PERIOD).any(|period| {
        let (mut run, mut letters) = (0, 0);
        chars.iter().zip(chars.iter().skip(period)).any(|(before, c)| {
            let again = before == c;
            run = if again { run + 1 } else { 0 };
            letters = if again { letters + usize::from(c.is_alphabetic()) } else { 0 };
            run >= RUN_CHARS && letters * 4 >= run
        })
    })
}

#[cfg(test)]
mod tests {
    use super::has;

    #[test]
    fn loops_of_lines_words_and_characters_are_found() {
        for text in [
            "The build failed again\n".repeat(4),
            "Fine. I will look into the issue. ".repeat(5),
            "and then the user asked for the next step ".repeat(8),
            "用户要求修复登录问题，".repeat(8),
            "哈".repeat(60),
            "用户要求修复登录。甲。用户要求修复登录。乙。用户要求修复登录。丙。用户要求修复登录。".to_owned(),
            "no".repeat(40),
            "word: na na na na na na na na na na na na na na na na na na na na".to_owned(),
        ] {
            assert!(has(&text), "{text}");
        }
    }

    #[test]
    fn lists_rulers_and_long_numbers_are_no_loops() {
        let list: Vec<String> =
            (0..40).map(|i| format!("- llm/src/part{i}.rs: moved to core/src/part{i}.rs, tests pass\n")).collect();
        let steps: Vec<String> =
            (0..12).map(|i| format!("Step {i}: ran migration {} and it was fine.\n", i * 7)).collect();
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
            assert!(!has(&text), "{text}");
        }
    }
}
