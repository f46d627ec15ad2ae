//! Numbers, bytes, times and names as text.

/// A point in time.
#[derive(Debug, Clone)]
pub struct Time {
    /// As RFC 3339.
    pub iso: String,
    /// For people.
    pub text: String,
}

/// A number of tokens.
#[derive(Debug, Clone)]
pub struct Tokens {
    /// The number.
    pub value: u64,
    /// It was not counted yet.
    pub estimated: bool,
}

impl Tokens {
    /// The number with separators; `~` before an estimate.
    pub fn text(&self) -> String {
        let mark = if self.estimated { "~" } else { "" };
        format!("{mark}{}", number(self.value))
    }
}

/// An integer. Templates give references.
pub trait Figure {
    /// The number in the widest type.
    fn widen(self) -> i128;
}

macro_rules! figures {
    ($($integer:ty)+) => {
        $(impl Figure for $integer {
            fn widen(self) -> i128 {
                self.into()
            }
        }

        impl Figure for &$integer {
            fn widen(self) -> i128 {
                (*self).into()
            }
        })+
    };
}

figures!(i32 i64 u32 u64);

/// A number with a narrow space between groups of three digits.
pub fn number(value: impl Figure) -> String {
    let value = value.widen();
    let digits = value.unsigned_abs().to_string();
    let mut text = String::from(if value < 0 { "−" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A number with the word for one thing, or for several.
pub(crate) fn counted(value: impl Figure, one: &str, several: &str) -> String {
    let text = number(value);
    let word = if text == "1" { one } else { several };
    format!("{text} {word}")
}

/// Bytes in B, KB, MB or GB, of 1,000 each.
pub fn bytes(value: impl Figure) -> String {
    let value = value.widen();
    let units = ["KB", "MB", "GB"];
    if value < 1000 {
        return format!("{value} B");
    }
    let mut scaled = value as f64 / 1000.0;
    let mut unit = 0;
    // 999.95 would be printed as 1000.0.
    while scaled >= 999.95 && unit + 1 < units.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", units[unit])
}

/// Milliseconds as ms, s, min or h.
pub fn duration_ms(value: impl Figure) -> String {
    let value = value.widen();
    match value {
        ..1000 => format!("{value} ms"),
        1000..60_000 => format!("{:.1} s", value as f64 / 1000.0),
        60_000..3_600_000 => format!("{} min {} s", value / 60_000, value / 1000 % 60),
        _ => format!("{} h {} min", value / 3_600_000, value / 60_000 % 60),
    }
}

/// A title or name with visible marks for what is invisible: characters that change the direction
/// of text, that have no width, and control characters. So no name can look like another by them.
pub fn visible(text: &str) -> String {
    text.chars()
        .map(|character| match character {
            '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{200b}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2060}'
            | '\u{61c}'
            | '\u{feff}' => '\u{25cc}',
            control if control.is_control() => '\u{25cc}',
            other => other,
        })
        .collect()
}

/// The language that the script of a text tells, for fonts and voices: Chinese, Japanese and Korean
/// share characters that each draws in its own way. None: another language, or no telling one.
pub(crate) fn lang(text: &str) -> Option<&'static str> {
    let mut has_han = false;
    for character in text.chars() {
        match character {
            '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fa}' | '\u{ff66}'..='\u{ff9d}' => {
                return Some("ja");
            }
            '\u{ac00}'..='\u{d7a3}' | '\u{1100}'..='\u{11ff}' | '\u{3131}'..='\u{318e}' => {
                return Some("ko");
            }
            '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{20000}'..='\u{323af}' => {
                has_han = true;
            }
            _ => {}
        }
    }
    has_han.then_some("zh")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_groups_of_three_digits() {
        assert_eq!(number(0_u64), "0");
        assert_eq!(number(999_u64), "999");
        assert_eq!(number(1_234_567_u64), "1\u{202f}234\u{202f}567");
        assert_eq!(number(-1_000_i64), "−1\u{202f}000");
        assert_eq!(
            number(u64::MAX)
                .chars()
                .filter(char::is_ascii_digit)
                .count(),
            20
        );
    }

    #[test]
    fn estimates_have_a_mark() {
        let tokens = Tokens {
            value: 1200,
            estimated: true,
        };
        assert_eq!(tokens.text(), "~1\u{202f}200");
    }

    #[test]
    fn bytes_and_durations_have_units() {
        assert_eq!(bytes(999_u64), "999 B");
        assert_eq!(bytes(4_194_304_u64), "4.2 MB");
        assert_eq!(bytes(999_999_u64), "1.0 MB");
        assert_eq!(duration_ms(12_u64), "12 ms");
        assert_eq!(duration_ms(1500_u64), "1.5 s");
        assert_eq!(duration_ms(61_000_u64), "1 min 1 s");
    }

    #[test]
    fn marks_of_direction_are_visible_and_scripts_stay() {
        assert_eq!(visible("a\u{202e}gpj.exe"), "a\u{25cc}gpj.exe");
        assert_eq!(visible("a\nb"), "a\u{25cc}b");
        assert_eq!(
            visible("مرحبا 你好 👩\u{200d}🚀"),
            "مرحبا 你好 👩\u{200d}🚀"
        );
    }

    #[test]
    fn the_script_tells_chinese_japanese_and_korean() {
        assert_eq!(lang("帮我规划五天旅行"), Some("zh"));
        assert_eq!(lang("東京のラーメン"), Some("ja"));
        assert_eq!(lang("안녕 世界"), Some("ko"));
        assert_eq!(lang("Hello, мир, مرحبا 🍜"), None);
    }
}
