//! Terms and signals, by which sentences are ranked: how frequent a sentence's words are, and
//! whether it holds names, a decision or an error.

use std::{hash::Hasher, sync::LazyLock};

use rustc_hash::{FxHashMap, FxHasher};

use super::{text, work};

/// Words (scripts with spaces) and pairs of characters (Han, Kana, Hangul) that mark an error.
const ERRORS: &str = "error errors failed failure fails exception panic crash crashed traceback fatal refused denied timeout broken bugs invalid warning erreur échec fehler fehlgeschlagen erro falha ошибка сбой خطأ فشل त्रुटि विफल 错误 失败 异常 报错 錯誤 失敗 異常 故障 崩溃 エラ 例外 오류 실패 에러";
/// Words and pairs of characters that mark a decision.
const DECISIONS: &str = "decided decide decision must should shall agreed agree confirmed confirm need needs want wants prefer prefers never always instead deadline plan plans remember important conclusion therefore fixed fixes changed resolved booked cancelled dois doit faut décidé wichtig muss entschieden debe decidido importante deve надо нужно решили важно يجب قرر مهم चाहिए निर्णय ज़रूरी 决定 必须 需要 应该 不要 要求 确认 同意 計劃 计划 记住 重要 结论 因此 改成 希望 请用 決定 必須 必要 確認 重要 予定 ください 결정 필요 확인 중요 해야";
/// English stop words of four letters and more; shorter words never count.
const STOP_WORDS: &str = "that this with have from they your were what will would there their about been could them then than when which just like also some into more very here only over such these those because really think know yeah well does doing being";

/// The meaning of a term of the lexicon: a sign of an error or a decision, or a stop word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Error,
    Decision,
    Stop,
}

/// The marks of known terms, by the hash of the term.
static LEXICON: LazyLock<FxHashMap<u64, Mark>> = LazyLock::new(|| {
    let mut lexicon = FxHashMap::default();
    for (words, mark) in [
        (ERRORS, Mark::Error),
        (DECISIONS, Mark::Decision),
        (STOP_WORDS, Mark::Stop),
    ] {
        for word in words.split(' ') {
            each_term(word, |term| {
                lexicon.entry(term).or_insert(mark);
            });
        }
    }
    lexicon
});

/// Visits the hash of every term. A term is a word in scripts with spaces, and a pair of adjacent
/// characters in other scripts. ASCII words of up to three letters, and other words of one letter,
/// are no terms.
pub(crate) fn each_term(text: &str, mut visit: impl FnMut(u64)) {
    work::tick(text.len());
    let mut word = FxHasher::default();
    let (mut letters, mut non_ascii, mut before) = (0_u32, false, None::<char>);
    let mut close = |word: &mut FxHasher, letters: &mut u32, non_ascii: &mut bool| {
        // Words of up to three ASCII letters are nearly always function words; beyond ASCII two
        // letters can be a content word.
        if *letters > if *non_ascii { 1 } else { 3 } {
            visit(word.finish());
        }
        (*word, *letters, *non_ascii) = (FxHasher::default(), 0, false);
    };
    for c in text.chars() {
        if text::is_cjk(c) || text::is_southeast_asian(c) {
            close(&mut word, &mut letters, &mut non_ascii);
            if let Some(first) = before.replace(c) {
                word.write_u32(first as u32);
                word.write_u32(c as u32);
                (letters, non_ascii) = (2, true);
                close(&mut word, &mut letters, &mut non_ascii);
            }
            continue;
        }
        before = None;
        if c.is_alphanumeric() || c == '_' || text::is_indic_mark(c) {
            non_ascii |= !c.is_ascii();
            letters += 1;
            if c.is_ascii() {
                word.write_u32(u32::from(c.to_ascii_lowercase() as u8));
            } else {
                c.to_lowercase().for_each(|c| word.write_u32(c as u32));
            }
        } else {
            close(&mut word, &mut letters, &mut non_ascii);
        }
    }
    close(&mut word, &mut letters, &mut non_ascii);
}

/// Slots of a [`Frequencies`], which takes 128 kB for a text of any length. Terms with the same
/// slot share their count.
const SLOTS: usize = 1 << 15;

/// How often each term occurs.
pub(crate) struct Frequencies {
    /// Occurrences of the terms of each slot.
    counts: Vec<u32>,
    /// The largest of the counts.
    top: u32,
    /// Number of texts added.
    texts: u32,
}

/// A term that occurs more often than this fraction of the number of texts, and more than four
/// times, is taken for a common word or a name, not for a topic.
const COMMON_SHARE: f32 = 0.1;

impl Frequencies {
    pub(crate) fn new() -> Self {
        Self {
            counts: vec![0; SLOTS],
            top: 1,
            texts: 0,
        }
    }

    pub(crate) fn add(&mut self, text: &str) {
        self.texts = self.texts.saturating_add(1);
        each_term(text, |term| {
            if LEXICON.get(&term) == Some(&Mark::Stop) {
                return;
            }
            let count = &mut self.counts[slot(term)];
            *count = count.saturating_add(1);
            self.top = self.top.max(*count);
        });
    }

    /// How central the term is to all texts, from 0 to 1.
    fn centrality(&self, term: u64) -> f32 {
        let count = self.counts[slot(term)] as f32;
        let common = (self.texts as f32 * COMMON_SHARE).max(4.0);
        let worth = if count > common {
            (common / count).powi(2)
        } else {
            1.0
        };
        worth * (1.0 + count).ln() / (1.0 + self.top as f32).ln()
    }
}

/// The slot of a term: the upper 15 bits of a product, a number below [`SLOTS`]. The factor is 2^64
/// divided by the golden ratio (Fibonacci hashing), which spreads the terms over the slots.
const fn slot(term: u64) -> usize {
    (term.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 49) as usize
}

/// Hashes of the terms of [`SummaryAsk::focus`](crate::SummaryAsk::focus).
pub(crate) type Focus = rustc_hash::FxHashSet<u64>;

/// The terms of a focus; none without a focus.
pub(crate) fn focus(text: Option<&str>) -> Focus {
    let mut terms = Focus::default();
    each_term(text.unwrap_or_default(), |term| {
        terms.insert(term);
    });
    terms
}

/// Properties of a sentence, most of which make it important.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Signals {
    /// The centrality of its terms, added up and divided by their number plus 3; from 0 to 1.
    pub(crate) centrality: f32,
    /// Number of paths, ids, URLs, addresses and quoted names.
    pub(crate) identifiers: u32,
    /// Number of other words with digits.
    pub(crate) numbers: u32,
    /// Number of capitalized words after the first.
    pub(crate) names: u32,
    /// Number of terms of the focus.
    pub(crate) focus_terms: u32,
    /// Whether it has a word that marks a decision.
    pub(crate) decides: bool,
    /// Whether it has a word that marks an error.
    pub(crate) fails: bool,
    /// Number of terms that are not stop words.
    terms: u32,
}

impl Signals {
    pub(crate) fn read(sentence: &str, frequencies: &Frequencies, focus: &Focus) -> Self {
        let mut signals = Self::default();
        let mut sum = 0.0;
        each_term(sentence, |term| {
            match LEXICON.get(&term) {
                Some(Mark::Error) => signals.fails = true,
                Some(Mark::Decision) => signals.decides = true,
                Some(Mark::Stop) => return,
                None => {}
            }
            signals.terms += 1;
            signals.focus_terms += u32::from(focus.contains(&term));
            sum += frequencies.centrality(term);
        });
        // The constant keeps sentences of a single frequent word from ranking highest.
        signals.centrality = sum / (signals.terms as f32 + 3.0);
        signals.read_words(sentence);
        signals
    }

    fn read_words(&mut self, sentence: &str) {
        for (at, word) in sentence
            .split(|c: char| c.is_whitespace() || matches!(c, '，' | '。' | ',' | ';'))
            .enumerate()
        {
            let digits = word.contains(|c: char| c.is_numeric());
            let inner = word.trim_matches(|c: char| !c.is_alphanumeric());
            let path = inner.contains(['/', '@', '_', '\\', '#'])
                || inner.contains("::")
                || word.starts_with('`');
            let dotted = inner.split_once('.').is_some_and(|(a, b)| {
                !a.is_empty() && b.chars().all(char::is_alphanumeric) && !b.is_empty()
            });
            if path
                || dotted && !digits
                || digits && inner.contains('-')
                || word.contains(['《', '「', '【'])
            {
                self.identifiers += 1;
            } else if digits {
                self.numbers += 1;
            } else if at > 0
                && inner.chars().next().is_some_and(char::is_uppercase)
                && inner.len() > 1
            {
                self.names += 1;
            }
        }
    }

    /// The importance of the sentence, from 0 to about 6, or to about 10 if it has terms of the
    /// focus.
    pub(crate) fn weight(&self) -> f32 {
        let at_most = |n: u32, most: u32| n.min(most) as f32;
        let mut weight = self.centrality * 2.0
            + at_most(self.identifiers, 3) * 0.35
            + at_most(self.numbers, 3) * 0.25;
        weight += at_most(self.names, 3) * 0.15
            + at_most(self.focus_terms, 3) * 0.8
            + at_most(self.focus_terms, 1) * 2.0;
        weight += if self.decides { 0.6 } else { 0.0 } + if self.fails { 0.7 } else { 0.0 };
        weight * self.substance()
    }

    /// How well the sentence stands alone, from 0.3 to 1: "Yes." and "Thanks, Ann!" need their
    /// context.
    pub(crate) fn substance(&self) -> f32 {
        if self.identifiers + self.numbers + self.focus_terms > 0 {
            return 1.0;
        }
        0.3 + 0.7 * (self.terms as f32 / 5.0).min(1.0)
    }
}
