//! Texts to count: samples in many scripts, and generators with the same output in every run.

#![allow(
    unreachable_pub,
    reason = "`pub` is for the other modules of this test binary"
)]

/// Short texts in many scripts and shapes.
pub const SAMPLES: [(&str, &str); 22] = [
    (
        "english",
        "The train was late again, so we walked along the river and talked about what we'd do if nobody came. \
        She'll have finished by Tuesday, I think; the others weren't sure. It costs about 1,200 dollars (or 3.5 % more). ",
    ),
    (
        "rust",
        "/// Claims due jobs.\npub async fn claim(&self, limit: u32) -> Result<Vec<Job>, StoreError> {\n    let rows = \
        sqlx::query!(\"select id from job where due <= $1\", now).fetch_all(&self.pool).await?;\n    \
        Ok(rows.into_iter().map(|row| Job { id: row.id }).collect())\n}\n\n",
    ),
    (
        "python",
        "class Parser:\n    def __init__(self, text: str, *, strict=False):\n        self.text = text\n        \
        self.pos = 0\n\n    def next(self):\n        if self.pos >= len(self.text):\n            raise StopIteration\n",
    ),
    (
        "json",
        "{\"user_id\": \"mia_li_3668\", \"flights\": [{\"flight_number\": \"HAT136\", \"date\": \"2024-05-20\", \
        \"price\": 152.5, \"seats\": null}], \"insurance\": false, \"total_baggages\": 1}\n",
    ),
    (
        "minified",
        "!function(e,t){\"object\"==typeof exports?module.exports=t():e.Mark=t()}(this,function(){var \
        e=[],n=null;for(var r=0;r<e.length;r++)n=e[r],n&&n.apply(this,arguments);return{run:t,i:function(){return!1}}});",
    ),
    (
        "chinese",
        "我们明天上午去北京开会，请你提前准备好相关的材料。这个问题比较复杂，需要大家一起讨论才能决定。天气预报说周末会下雨。",
    ),
    (
        "japanese",
        "明日の会議は午前十時から始まりますので、資料を準備しておいてください。私はコーヒーを飲みながら、新しいプログラムを書いています。",
    ),
    (
        "korean",
        "내일 회의는 오전 열 시에 시작하니 자료를 미리 준비해 주세요. 오늘은 날씨가 좋아서 친구와 함께 공원을 산책했습니다. ",
    ),
    (
        "thai",
        "พรุ่งนี้เราจะมีประชุมตอนสิบโมงเช้า กรุณาเตรียมเอกสารให้พร้อมด้วย วันนี้อากาศดีมากฉันจึงไปเดินเล่นกับเพื่อน ",
    ),
    (
        "hindi",
        "कल सुबह दस बजे बैठक शुरू होगी, कृपया सभी कागज़ात पहले से तैयार रखें। आज मौसम अच्छा है इसलिए हम बाहर जा रहे हैं। ",
    ),
    (
        "arabic",
        "سيبدأ الاجتماع غدا في الساعة العاشرة صباحا، يرجى تحضير الوثائق مسبقا. الطقس جميل اليوم لذلك ذهبنا إلى الحديقة. ",
    ),
    (
        "hebrew",
        "הפגישה תתחיל מחר בשעה עשר בבוקר, אנא הכינו את המסמכים מראש. מזג האוויר נעים היום. ",
    ),
    (
        "russian",
        "Завтра в десять утра начнётся совещание, пожалуйста, подготовьте документы заранее. Сегодня хорошая погода. ",
    ),
    (
        "greek",
        "Η συνάντηση αρχίζει αύριο στις δέκα το πρωί, παρακαλώ ετοιμάστε τα έγγραφα. Σήμερα ο καιρός είναι καλός. ",
    ),
    (
        "german",
        "Die Besprechung beginnt morgen früh um zehn Uhr; bitte bereiten Sie die Unterlagen rechtzeitig vor. Größe, Straße. ",
    ),
    (
        "vietnamese",
        "Cuộc họp sẽ bắt đầu lúc mười giờ sáng mai, vui lòng chuẩn bị tài liệu trước. Hôm nay thời tiết rất đẹp. ",
    ),
    ("emoji", "😀👍🏽❤️👩‍🚀👨‍👩‍👧‍👦🏳️‍🌈🇩🇪🇯🇵🤷🏿‍♀️🧑‍💻⚭🎉🔥✅ "),
    (
        "markdown",
        "# Title\n\n| a | b |\n|---|---|\n| 1 | `x` |\n\n- [x] done\n- [ ] **open**, see <https://example.com/a_b?c=d#e>\n\n",
    ),
    (
        "log",
        "2017-05-16 00:00:04.500 2931 INFO nova.compute.manager [req-3ea4052c-895d-4b64-9e2d-04d64c4d94ab - - -] \
        [instance: b9000564-fe1a-409b-b8cc-1e88b294cd1d] VM Started (Lifecycle Event)\r\n",
    ),
    (
        "specials",
        "<|endoftext|><|im_start|>user\n<|fim_prefix|> <|endofprompt|>",
    ),
    (
        "contractions",
        "I'll you'RE he'd we'vE DON'T o'clock 'twas rock'n'roll it''s s's 'S\n",
    ),
    (
        "blanks",
        " a  b   c\t\td \n\n  e\r\n\r\nf\u{a0}g\u{3000}h \u{2028} i  \n \n\tj 5  6\t7  \t",
    ),
];

/// Alphabets of random texts: name and characters.
const ALPHABETS: [(&str, &str); 15] = [
    (
        "base64",
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    ),
    ("hex", "0123456789abcdef"),
    ("random letters", "abcdefghijklmnopqrstuvwxyz"),
    ("random capitals", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    ("random words", "abcdefghijklmnopqrstuvwxyz     "),
    ("digits", "0123456789"),
    ("numbers", "0123456789 .,-"),
    ("punctuation", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
    ("brackets", "(){}[]<>;=,. \n"),
    ("blanks", " \t\n\r"),
    ("indents", "           \t\n"),
    ("wide blanks", " \u{a0}\u{3000}\u{2003}\u{2028}\n\t"),
    ("contractions", "'sStdDmMlLrRvVeE a"),
    ("marks", "aé\u{301}\u{308}\u{20d7}\u{fe0f}\u{200d} 1"),
    ("mixed", "aZ9 \n'.é中あ한ไกहعЖ😀\u{200d}\u{a0}_"),
];

/// Ranges of random characters: name, first, one past the last.
const RANGES: [(&str, u32, u32); 22] = [
    ("ascii", 0, 128),
    ("latin", 0xa0, 0x250),
    ("combining", 0x300, 0x370),
    ("greek", 0x370, 0x400),
    ("cyrillic", 0x400, 0x460),
    ("hebrew", 0x5d0, 0x5eb),
    ("arabic", 0x620, 0x650),
    ("devanagari", 0x900, 0x980),
    ("bengali", 0x980, 0xa00),
    ("tamil", 0xb80, 0xc00),
    ("thai", 0xe01, 0xe5b),
    ("hiragana", 0x3041, 0x3097),
    ("katakana", 0x30a1, 0x30fb),
    ("han", 0x4e00, 0x9fff),
    ("hangul", 0xac00, 0xd7a4),
    ("full width", 0xff01, 0xff5f),
    ("symbols", 0x2000, 0x2c00),
    ("emoji", 0x1_f300, 0x1_f650),
    ("newer emoji", 0x1_f900, 0x1_fa70),
    ("private", 0xe000, 0xffff),
    ("astral", 0x1_0000, 0x4_0000),
    ("any", 0, 0x11_0000),
];

/// Characters whose long runs are slow or fatal in other tokenizers.
pub const RUN_UNITS: [&str; 14] = [
    " ",
    "\t",
    "\n",
    "\r\n",
    "\u{a0}",
    "\u{3000}",
    "a",
    "-",
    "=",
    "/",
    "}",
    "é",
    "中",
    "👩‍🚀",
];

/// A random source with the same output in every run (xorshift).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    pub fn pick(&mut self, alphabet: &[char]) -> char {
        alphabet[self.below(alphabet.len())]
    }
}

/// Random text over the alphabet, of about `bytes` bytes.
pub fn random_text(dice: &mut Dice, alphabet: &str, bytes: usize) -> String {
    let alphabet: Vec<char> = alphabet.chars().collect();
    let mut text = String::new();
    while text.len() < bytes {
        text.push(dice.pick(&alphabet));
    }
    text
}

/// Random texts by name. For every alphabet and range there are three corpora of `each` texts with
/// 1 to 2,000 bytes: its characters alone, in words, and among ASCII characters.
pub fn random_corpora(each: usize) -> Vec<(String, Vec<String>)> {
    let ascii: Vec<char> = (' '..='~').collect();
    let mut alphabets: Vec<(&str, Vec<char>)> = ALPHABETS
        .iter()
        .map(|(name, characters)| (*name, characters.chars().collect()))
        .collect();
    alphabets.extend(
        RANGES
            .iter()
            .map(|(name, first, end)| (*name, (*first..*end).filter_map(char::from_u32).collect())),
    );
    let mut corpora = Vec::new();
    for (name, alphabet) in alphabets {
        for (manner, blank_percent, ascii_percent) in
            [("", 0, 0), (" in words", 20, 0), (" among ascii", 0, 30)]
        {
            let mut dice = Dice::new(corpora.len() as u64 + 1);
            let texts = (0..each).map(|_| {
                let mut text = String::new();
                let bytes = 1 + dice.below(2000);
                while text.len() < bytes {
                    let percent = dice.below(100);
                    text.push(match percent {
                        _ if percent < blank_percent => ' ',
                        _ if percent < ascii_percent => dice.pick(&ascii),
                        _ => dice.pick(&alphabet),
                    });
                }
                text
            });
            corpora.push((format!("{name}{manner}"), texts.collect()));
        }
    }
    corpora
}

/// `each` texts for every sample, by the sample's name: slices of the repeated sample, or of its
/// words in random order.
pub fn sample_corpora(each: usize) -> Vec<(&'static str, Vec<String>)> {
    let texts = |sample: &str| {
        let mut dice = Dice::new(sample.len() as u64);
        let words: Vec<&str> = sample.split_inclusive(' ').collect();
        let shuffled = |dice: &mut Dice| {
            (0..200)
                .map(|_| words[dice.below(words.len())])
                .collect::<String>()
        };
        (0..each)
            .map(|n| {
                let whole = if n % 2 == 0 {
                    sample.repeat(8)
                } else {
                    shuffled(&mut dice)
                };
                let start = whole.ceil_char_boundary(dice.below(whole.len() / 2));
                let end = whole.ceil_char_boundary(start + 1 + dice.below(whole.len() - start));
                whole[start..end].to_owned()
            })
            .collect()
    };
    SAMPLES
        .iter()
        .map(|(name, sample)| (*name, texts(sample)))
        .collect()
}
