//! Translates the terms of error messages in other languages into the English words that the lists
//! know. Only these terms are translated, one by one: the order of the words stays.

use super::tokens::is_word_char;

/// Words of a text that must be terms of one language before the text counts as written in it.
const MIN_TERMS: usize = 2;

/// Terms of a language with spaces between its words, in lower case and without accents. A `*`
/// stands for any ending. A longer term stands before its parts.
type Terms = &'static [(&'static str, &'static str)];

const LANGUAGES: &[Terms] = &[
    GERMAN, DUTCH, SPANISH, FRENCH, PORTUGUESE, ITALIAN, RUSSIAN, POLISH,
];

#[rustfmt::skip]
const GERMAN: Terms = &[
    ("kontextfenster*", "context window"), ("kontextlange", "context length"),
    ("kontextgroße", "context size"), ("kontextlimit*", "context limit"),
    ("kontextgrenze", "context limit"), ("kontext*", "context"), ("tokenlimit*", "token limit"),
    ("tokengrenze", "token limit"), ("anfragelimit*", "rate limit"), ("anfragen", "requests"),
    ("anfrage", "request"), ("anforderung", "request"), ("modell*", "model"), ("eingabe*", "input"),
    ("nachrichtenverlauf*", "conversation"), ("gesprachsverlauf*", "conversation"),
    ("chatverlauf*", "conversation"), ("nachricht*", "messages"), ("verlauf*", "history"),
    ("unterhaltung", "conversation"), ("gesprach*", "conversation"),
    ("konversation", "conversation"), ("uberschreite*", "exceeds"), ("uberschritten", "exceeded"),
    ("ubersteig*", "exceeds"), ("zu lang*", "too long"), ("zu groß*", "too large"),
    ("zu viele*", "too many"), ("langer als", "longer than"), ("großer als", "larger than"),
    ("mehr als", "more than"), ("passt nicht", "does not fit"), ("passen nicht", "does not fit"),
    ("fasst", "holds"), ("enthalt", "contains"), ("enthalten", "contain"), ("hat", "has"),
    ("haben", "have"), ("hochstens", "maximum"), ("maximal*", "maximum"), ("grenze", "limit"),
    ("erlaubt*", "allowed"), ("der", "the"), ("die", "the"), ("das", "the"), ("des", "the"),
    ("dem", "the"), ("den", "the"), ("ist", "is"), ("sind", "are"), ("ihr", "your"),
    ("ihre", "your"), ("dein", "your"), ("deine", "your"), ("diese", "this"), ("fur", "for"),
    ("von", "of"), ("ausgabe*", "output"), ("antwort*", "answer"), ("zeichen", "characters"),
    ("bild*", "image"), ("datei*", "file"), ("sekunde*", "seconds"), ("stunde*", "hours"),
    ("pro tag", "per day"), ("werkzeug*", "tools"), ("schlussel", "key"), ("guthaben", "balance"),
    ("kontingent", "quota"), ("bitte", "please"), ("warten", "wait"), ("kurzen", "shorten"),
    ("nur", "only"), ("und", "and"), ("wurde", "was"), ("konto", "account"),
];

#[rustfmt::skip]
const DUTCH: Terms = &[
    ("contextvenster*", "context window"), ("contextlengte", "context length"),
    ("contextlimiet", "context limit"), ("tokenlimiet", "token limit"), ("verzoeken", "requests"),
    ("verzoek", "request"), ("aanvraag", "request"), ("invoer", "input"), ("bericht*", "messages"),
    ("gesprek*", "conversation"), ("geschiedenis", "history"), ("overschrijd*", "exceeds"),
    ("overschreden", "exceeded"), ("te lang", "too long"), ("te groot", "too large"),
    ("te veel", "too many"), ("langer dan", "longer than"), ("groter dan", "larger than"),
    ("meer dan", "more than"), ("past niet", "does not fit"), ("passen niet", "does not fit"),
    ("bevat*", "contains"), ("heeft", "has"), ("maximaal", "maximum"), ("maximale", "maximum"),
    ("accepteert", "accepts"), ("toegestaan", "allowed"), ("limiet", "limit"), ("het", "the"),
    ("de", "the"), ("van", "of"), ("je", "your"), ("uw", "your"), ("voor", "for"),
    ("uitvoer", "output"), ("antwoord", "answer"), ("tekens", "characters"),
    ("afbeelding*", "image"), ("bestand*", "file"), ("minuut", "minute"), ("seconden", "seconds"),
    ("dag", "day"), ("sleutel", "key"), ("saldo", "balance"), ("slechts", "only"),
];

#[rustfmt::skip]
const SPANISH: Terms = &[
    ("ventana de contexto", "context window"), ("longitud de contexto", "context length"),
    ("longitud maxima de contexto", "maximum context length"),
    ("longitud maxima del contexto", "maximum context length"),
    ("limite de contexto", "context limit"), ("limite de tokens", "token limit"),
    ("limite de solicitudes", "rate limit"), ("contexto", "context"), ("supera*", "exceeds"),
    ("exced*", "exceeds"), ("sobrepasa*", "exceeds"), ("demasiado larg*", "too long"),
    ("demasiado grande*", "too large"), ("demasiados", "too many"), ("demasiadas", "too many"),
    ("no cabe*", "does not fit"), ("mas larg* que", "longer than"), ("mayor que", "larger than"),
    ("mas de", "more than"), ("mas que", "more than"), ("maximo*", "maximum"),
    ("maxima*", "maximum"), ("modelo", "model"), ("su", "your"), ("tu", "your"),
    ("solicitudes", "requests"), ("solicitud", "request"), ("peticion", "request"),
    ("entrada", "input"), ("mensaje*", "messages"), ("conversacion", "conversation"),
    ("historial", "history"), ("es", "is"), ("el", "the"), ("la", "the"), ("los", "the"),
    ("las", "the"), ("del", "of the"), ("de", "of"), ("tiene*", "has"), ("contiene*", "contains"),
    ("permite*", "allows"), ("admite", "allows"), ("acepta", "accepts"), ("solo", "only"),
    ("en", "in"), ("para", "for"), ("caracteres", "characters"), ("imagen*", "image"),
    ("archivo*", "file"), ("minuto*", "minutes"), ("segundo*", "seconds"), ("dia*", "day"),
    ("salida", "output"), ("respuesta", "response"), ("clave", "key"), ("cuota", "quota"),
    ("saldo", "balance"), ("limite", "limit"), ("herramienta*", "tools"), ("tasa", "rate"),
    ("cuenta", "account"), ("reduzca", "reduce"), ("acort*", "shorten"),
];

#[rustfmt::skip]
const FRENCH: Terms = &[
    ("fenetre de contexte", "context window"), ("fenetre contextuelle", "context window"),
    ("longueur de contexte", "context length"), ("longueur du contexte", "context length"),
    ("longueur maximale de contexte", "maximum context length"),
    ("longueur maximale du contexte", "maximum context length"),
    ("taille du contexte", "context size"), ("taille de contexte", "context size"),
    ("limite de contexte", "context limit"), ("limite du contexte", "context limit"),
    ("limite de tokens", "token limit"), ("limite de jetons", "token limit"),
    ("limite a", "limited to"), ("limitee a", "limited to"), ("contexte", "context"),
    ("depass*", "exceeds"), ("exced*", "exceeds"), ("trop long*", "too long"),
    ("trop grand*", "too large"), ("trop de", "too many"), ("ne tient pas", "does not fit"),
    ("ne tiennent pas", "does not fit"), ("ne rentre pas", "does not fit"),
    ("plus long* que", "longer than"), ("plus grand* que", "larger than"),
    ("superieur* a", "larger than"), ("plus de", "more than"), ("plus que", "more than"),
    ("maximal*", "maximum"), ("modele", "model"), ("votre", "your"), ("vos", "your"),
    ("requetes", "requests"), ("requete", "request"), ("demande", "request"), ("entree*", "input"),
    ("invite", "prompt"), ("historique", "history"), ("est", "is"), ("sont", "are"), ("le", "the"),
    ("la", "the"), ("les", "the"), ("l", "the"), ("du", "of the"), ("des", "of the"), ("de", "of"),
    ("d", "of"), ("compte*", "contains"), ("contien*", "contains"), ("accepte", "accepts"),
    ("seulement", "only"), ("jeton*", "tokens"), ("caractere*", "characters"), ("fichier*", "file"),
    ("seconde*", "seconds"), ("heure*", "hours"), ("jour*", "day"), ("debit", "rate"),
    ("cle", "key"), ("solde", "balance"), ("sortie", "output"), ("reponse", "response"),
    ("outil*", "tools"), ("limite", "limit"), ("dans", "in"), ("pour", "for"),
    ("reduis*", "reduce"), ("raccourci*", "shorten"), ("et", "and"),
];

#[rustfmt::skip]
const PORTUGUESE: Terms = &[
    ("janela de contexto", "context window"), ("comprimento do contexto", "context length"),
    ("comprimento de contexto", "context length"), ("tamanho do contexto", "context size"),
    ("comprimento maximo de contexto", "maximum context length"),
    ("comprimento maximo do contexto", "maximum context length"),
    ("tamanho maximo do contexto", "maximum context size"), ("limite de contexto", "context limit"),
    ("limite de tokens", "token limit"), ("limite de requisicoes", "rate limit"),
    ("contexto", "context"), ("exced*", "exceeds"), ("ultrapass*", "exceeds"),
    ("muito long*", "too long"), ("long* demais", "too long"), ("muito grande", "too large"),
    ("grande demais", "too large"), ("nao cabe*", "does not fit"), ("maior que", "larger than"),
    ("maior do que", "larger than"), ("mais do que", "more than"), ("mais de", "more than"),
    ("maximo*", "maximum"), ("maxima*", "maximum"), ("modelo", "model"), ("sua", "your"),
    ("seu", "your"), ("solicitacao", "request"), ("requisicoes", "requests"),
    ("requisicao", "request"), ("entrada", "input"), ("mensage*", "messages"),
    ("conversa", "conversation"), ("historico", "history"), ("e", "is"), ("o", "the"),
    ("do", "of the"), ("da", "of the"), ("de", "of"), ("tem", "has"), ("contem", "contains"),
    ("permite", "allows"), ("suporta", "supports"), ("aceita", "accepts"), ("apenas", "only"),
    ("na", "in the"), ("para", "for"), ("caracteres", "characters"), ("imagem", "image"),
    ("imagens", "image"), ("arquivo*", "file"), ("minuto*", "minutes"), ("segundo*", "seconds"),
    ("dia*", "day"), ("saida", "output"), ("resposta", "response"), ("chave", "key"),
    ("cota", "quota"), ("saldo", "balance"), ("limite", "limit"), ("taxa", "rate"),
    ("conta", "account"), ("ferramenta*", "tools"), ("reduza", "reduce"),
];

#[rustfmt::skip]
const ITALIAN: Terms = &[
    ("finestra di contesto", "context window"), ("finestra contestuale", "context window"),
    ("lunghezza del contesto", "context length"), ("lunghezza di contesto", "context length"),
    ("lunghezza massima del contesto", "maximum context length"),
    ("lunghezza massima di contesto", "maximum context length"),
    ("limite di contesto", "context limit"), ("limite di token", "token limit"),
    ("limite di richieste", "rate limit"), ("contesto", "context"), ("supera*", "exceeds"),
    ("ecced*", "exceeds"), ("troppo lung*", "too long"), ("troppo grand*", "too large"),
    ("troppi", "too many"), ("non rientra*", "does not fit"), ("non entra*", "does not fit"),
    ("piu lung* di", "longer than"), ("maggiore di", "larger than"), ("piu di", "more than"),
    ("massim*", "maximum"), ("modello", "model"), ("tua", "your"), ("tuo", "your"),
    ("richieste", "requests"), ("richiesta", "request"), ("messagg*", "messages"),
    ("conversazione", "conversation"), ("cronologia", "history"), ("e", "is"), ("il", "the"),
    ("la", "the"), ("lo", "the"), ("i", "the"), ("l", "the"), ("del", "of the"),
    ("della", "of the"), ("dei", "of the"), ("di", "of"), ("contiene", "contains"),
    ("contengono", "contain"), ("ha", "has"), ("consente", "allows"), ("accetta", "accepts"),
    ("solo", "only"), ("nella", "in the"), ("nel", "in the"), ("caratteri", "characters"),
    ("immagin*", "image"), ("minuto", "minutes"), ("minuti", "minutes"), ("secondi", "seconds"),
    ("giorn*", "day"), ("uscita", "output"), ("risposta", "response"), ("chiave", "key"),
    ("saldo", "balance"), ("limite", "limit"), ("strument*", "tools"), ("riduci", "reduce"),
    ("accorcia*", "shorten"),
];

#[rustfmt::skip]
const RUSSIAN: Terms = &[
    ("контекстн* окн*", "context window"), ("окн* контекста", "context window"),
    ("длин* контекста", "context length"), ("размер* контекста", "context size"),
    ("лимит* запросов", "rate limit"), ("контекст*", "context"), ("превыша*", "exceeds"),
    ("превыс*", "exceeds"), ("превышен*", "exceeded"), ("слишком длин*", "too long"),
    ("слишком больш*", "too large"), ("слишком велик*", "too large"), ("слишком много", "too many"),
    ("не помеща*", "does not fit"), ("больше", "more than"), ("длиннее", "longer than"),
    ("промпт*", "prompt"), ("запросов", "requests"), ("запрос*", "request"), ("ввод*", "input"),
    ("входн*", "input"), ("сообщени*", "messages"), ("диалог*", "dialogue"),
    ("разговор*", "conversation"), ("беседа", "conversation"), ("истори*", "history"),
    ("токен*", "tokens"), ("модел*", "model"), ("максим*", "maximum"), ("лимит*", "limit"),
    ("ограничен*", "limit"), ("содержит", "contains"), ("не более", "maximum"), ("только", "only"),
    ("символ*", "characters"), ("изображени*", "image"), ("файл*", "file"), ("минут*", "minute"),
    ("секунд*", "seconds"), ("день", "day"), ("ключ*", "key"), ("квот*", "quota"),
    ("баланс*", "balance"), ("вывод*", "output"), ("ответ*", "answer"), ("инструмент*", "tools"),
    ("ваш*", "your"), ("ваша", "your"), ("для", "for"), ("сократите", "shorten"),
];

#[rustfmt::skip]
const POLISH: Terms = &[
    ("okn* kontekstu", "context window"), ("okn* kontekstow*", "context window"),
    ("długos* kontekstu", "context length"), ("limit* kontekstu", "context limit"),
    ("limit* tokenow", "token limit"), ("limit* zadan", "rate limit"), ("kontekst*", "context"),
    ("przekracz*", "exceeds"), ("przekroczy*", "exceeds"), ("przekroczon*", "exceeded"),
    ("za dług*", "too long"), ("zbyt dług*", "too long"), ("za duz*", "too large"),
    ("zbyt duz*", "too large"), ("zbyt wiele", "too many"), ("nie miesci*", "does not fit"),
    ("dłuzsz* niz", "longer than"), ("wiekszy niz", "larger than"), ("wiecej niz", "more than"),
    ("zapytani*", "request"), ("zadani*", "request"), ("wejsci*", "input"),
    ("wiadomos*", "messages"), ("rozmow*", "conversation"), ("historia", "history"),
    ("historii", "history"), ("tokenow", "tokens"), ("tokeny", "tokens"), ("modelu", "model"),
    ("zawiera", "contains"), ("maksym*", "maximum"), ("limitu", "limit"), ("znakow", "characters"),
    ("obraz*", "image"), ("plik*", "file"), ("minuty", "minute"), ("sekund*", "seconds"),
    ("dzien*", "day"), ("klucz*", "key"), ("wyjsci*", "output"), ("odpowied*", "answer"),
    ("narzedzi*", "tools"), ("twoj*", "your"), ("jest", "is"), ("dla", "for"), ("w", "in"),
    ("tylko", "only"),
];

/// Terms of languages that set no spaces between words, or join particles to them. A longer term
/// stands before its parts, the particles at the end. Where a language may set its verb at the end,
/// "exceeded" stands for it, which is understood there, too.
#[rustfmt::skip]
const PARTS: Terms = &[
    ("上下文窗口", " context window "), ("上下文长度", " context length "),
    ("上下文長度", " context length "), ("上下文", " context window "),
    ("コンテキストウィンドウ", " context window "), ("コンテキスト長", " context length "),
    ("コンテキスト", " context window "), ("컨텍스트 윈도우", " context window "),
    ("컨텍스트 창", " context window "), ("컨텍스트 길이", " context length "),
    ("컨텍스트", " context window "), ("해석", " parsing "), ("解析", " parsing "),
    // Comparisons.
    ("超长", " too long "), ("过长", " too long "), ("過長", " too long "), ("太长", " too long "),
    ("長すぎ", " too long "), ("너무 깁", " too long "), ("너무 길", " too long "),
    ("太大", " too large "), ("过大", " too large "), ("過大", " too large "),
    ("大きすぎ", " too large "), ("너무 큽", " too large "), ("过多", " too many "),
    ("太多", " too many "), ("多すぎ", " too many "), ("너무 많", " too many "),
    ("超过", " exceeds "), ("超出", " exceeds "), ("大于", " exceeds "), ("超限", " exceeded "),
    ("超過", " exceeded "), ("超え", " exceeded "), ("収まりません", " exceeded "),
    ("초과", " exceeded "), ("넘었", " exceeded "), ("넘습", " exceeded "),
    // Texts, models and limits.
    ("提示词", " prompt "), ("提示", " prompt "), ("プロンプト", " prompt "), ("프롬프트", " prompt "),
    ("输入", " input "), ("輸入", " input "), ("入力", " input "), ("입력", " input "),
    ("请求", " request "), ("請求", " request "), ("リクエスト", " request "), ("요청", " request "),
    ("消息", " messages "), ("訊息", " messages "), ("メッセージ", " messages "),
    ("메시지", " messages "), ("对话", " conversation "), ("對話", " conversation "),
    ("会話", " conversation "), ("대화", " conversation "), ("历史", " history "),
    ("履歴", " history "), ("令牌", " tokens "), ("トークン", " tokens "), ("토큰", " tokens "),
    ("长度", " length "), ("長度", " length "), ("길이", " length "), ("模型", " model "),
    ("モデル", " model "), ("모델", " model "), ("支持", " supports "), ("允许", " allowed "),
    ("허용", " allowed "), ("缩短", " shorten "), ("减少", " reduce "), ("实际", " got "),
    ("当前", " current "), ("最大", " maximum "), ("최대", " maximum "), ("最多", " maximum "),
    ("限制", " limit "), ("上限", " limit "), ("制限", " limit "), ("한도", " limit "),
    ("제한", " limit "), ("仅", " only "),
    // Other limits.
    ("输出", " output "), ("出力", " output "), ("출력", " output "), ("分钟", " minute "),
    ("分あたり", " minute "), ("분당", " minute "), ("速率", " rate "), ("频率", " rate "),
    ("レート", " rate "), ("속도", " rate "), ("账户", " account "), ("额度", " quota "),
    ("配额", " quota "), ("할당량", " quota "), ("余额", " balance "), ("잔액", " balance "),
    ("字符", " characters "), ("文字", " characters "), ("글자", " characters "),
    ("字节", " bytes "), ("バイト", " bytes "), ("图片", " image "), ("图像", " image "),
    ("画像", " image "), ("이미지", " image "), ("文件", " file "), ("ファイル", " file "),
    ("파일", " file "), ("音频", " audio "), ("音声", " audio "), ("오디오", " audio "),
    ("视频", " video "), ("動画", " video "), ("工具", " tools "), ("ツール", " tools "),
    ("도구", " tools "), ("密钥", " key "),
    // Particles and counters.
    ("个", " "), (" を ", " "), (" が ", " "), (" は ", " "), (" の ", " "), (" に ", " "),
    (" 的 ", " "), (" 을 ", " "), (" 를 ", " "), (" 이 ", " "), (" 가 ", " "), (" 은 ", " "),
    (" 는 ", " "), (" 의 ", " "),
];

/// The text, in lower case, with its known terms in English.
pub(super) fn translate(text: &str) -> String {
    let mut text = text.to_owned();
    if !text.is_ascii() {
        for (term, english) in PARTS {
            text = text.replace(term, english);
        }
    }
    let words = words_of(&text);
    let counted = LANGUAGES
        .iter()
        .map(|terms| (count_terms(terms, &words), *terms));
    let most = counted.max_by_key(|(count, _)| *count);
    match most.filter(|(count, _)| *count >= MIN_TERMS) {
        Some((_, terms)) => in_english(&text, terms, &words),
        None => text,
    }
}

/// How many words of a text begin a term of a language that is more than an article.
fn count_terms(terms: Terms, words: &[WordAt]) -> usize {
    let is_telling = |at: &usize| {
        let found = term_at(terms, &words[*at..]);
        found.is_some_and(|(_, english)| !matches!(english, "the" | "of" | "is" | "in"))
    };
    (0..words.len()).filter(is_telling).count()
}

/// A word of a text: its place and its letters without accents.
struct WordAt {
    start: usize,
    end: usize,
    folded: String,
}

fn words_of(text: &str) -> Vec<WordAt> {
    let mut words = Vec::new();
    let mut from = 0;
    while let Some(offset) = text[from..].find(is_word_char) {
        let start = from + offset;
        let length = text[start..].find(|next| !is_word_char(next));
        let end = length.map_or(text.len(), |length| start + length);
        words.push(WordAt {
            start,
            end,
            folded: text[start..end].chars().map(without_accent).collect(),
        });
        from = end;
    }
    words
}

const fn without_accent(letter: char) -> char {
    match letter {
        'à' | 'á' | 'â' | 'ã' | 'ä' | 'ą' => 'a',
        'ç' | 'ć' => 'c',
        'è' | 'é' | 'ê' | 'ë' | 'ę' => 'e',
        'ì' | 'í' | 'î' | 'ï' => 'i',
        'ñ' | 'ń' => 'n',
        'ò' | 'ó' | 'ô' | 'õ' | 'ö' => 'o',
        'ś' => 's',
        'ù' | 'ú' | 'û' | 'ü' => 'u',
        'ź' | 'ż' => 'z',
        other => other,
    }
}

/// The first term with which the words begin: how many of them it takes, and its translation.
fn term_at(terms: Terms, words: &[WordAt]) -> Option<(usize, &'static str)> {
    let is_word = |pattern: &str, word: &WordAt| match pattern.strip_suffix('*') {
        Some(stem) => word.folded.starts_with(stem),
        None => word.folded == pattern,
    };
    terms.iter().find_map(|(term, english)| {
        let patterns = term.split(' ');
        let length = patterns.clone().count();
        let is_term = length <= words.len()
            && patterns
                .zip(words)
                .all(|(pattern, word)| is_word(pattern, word));
        is_term.then_some((length, *english))
    })
}

/// The text with the terms of its language in English, and the groups of its numbers joined.
fn in_english(text: &str, terms: Terms, words: &[WordAt]) -> String {
    let mut english = String::with_capacity(text.len());
    let mut from = 0;
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let between = &text[from..word.start];
        let is_group = between == " "
            && is_group_of_three(&word.folded)
            && at > 0
            && is_start_of_number(words, at - 1);
        // An article may be joined to its word by an apostrophe, the parts of a word by a dash.
        if !is_group {
            english.extend(between.chars().map(|mark| match mark {
                '\'' | '-' => ' ',
                other => other,
            }));
        }
        let (length, translation) = term_at(terms, &words[at..]).unwrap_or((1, ""));
        english.push_str(if translation.is_empty() {
            &text[word.start..word.end]
        } else {
            translation
        });
        at += length;
        from = words[at - 1].end;
    }
    english.push_str(&text[from..]);
    english
}

fn is_group_of_three(word: &str) -> bool {
    word.len() == 3 && word.bytes().all(|digit| digit.is_ascii_digit())
}

/// Whether the word at this place is one of up to three digits. A group of three may follow it.
fn is_start_of_number(words: &[WordAt], at: usize) -> bool {
    let word = &words[at].folded;
    word.len() <= 3 && word.bytes().all(|digit| digit.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        let english = translate(text);
        english.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn known_terms_are_translated() {
        for (text, english) in [
            ("输入过长, 9 个 token", "input too long , 9 token"),
            ("上下文长度", "context length"),
            (
                "입력이 컨텍스트 길이를 초과",
                "input context length exceeded",
            ),
            ("die eingabe ist zu lang", "the input is too long"),
            (
                "la requête dépasse la fenêtre de contexte",
                "the request exceeds the context window",
            ),
            ("l'entrée a 32 768 jetons", "the input a 32768 tokens"),
            (
                "el prompt no cabe en el contexto",
                "the prompt does not fit in the context",
            ),
            ("a conversa é muito longa", "a conversation is too long"),
            (
                "il prompt supera il limite di token",
                "the prompt exceeds the token limit",
            ),
            (
                "запрос не помещается в окно контекста",
                "request does not fit в context window",
            ),
        ] {
            assert_eq!(words(text), english, "{text}");
        }
    }

    #[test]
    fn an_english_text_stays() {
        for text in [
            "the invite has 32 768 tokens",
            "the model's die is in l.a.",
            "no second image: token limits have 2 minutes at most",
            "lang=en is too long for de-de",
            "a solo request",
        ] {
            assert_eq!(translate(text), text);
        }
    }
}
