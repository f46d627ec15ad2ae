//! Credentials: of everything that looks like a token, only what the key's owner has signed gets in, and says what was signed.
//!
//! The private halves of `fuzz/keys/jwks.json` were thrown away once `good.txt` and `bad.txt` were signed: nobody can make
//! another good token. An ES256 signature can be written in a second way, so that what was signed is compared, not how.

use anneal_server::{
    AuthSettings, KeyText,
    fuzzing::{TokenReader, bearer},
};
use arbitrary::{Arbitrary as _, Unstructured};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue, header};

const GOOD: &str = include_str!("../keys/good.txt");
const BAD: &str = include_str!("../keys/bad.txt");

/// A tenant and what may be done there.
type Allowed = (String, Vec<&'static str>);

struct Gate {
    reader: TokenReader,
    good: Vec<(&'static str, Allowed)>,
}

impl Gate {
    fn new() -> Self {
        let settings = AuthSettings {
            jwks_file: concat!(env!("CARGO_MANIFEST_DIR"), "/keys/jwks.json").into(),
            audience: "anneal".into(),
            issuer: "https://issuer.example".into(),
            // The tokens of good.txt expire in decades: their private keys are gone, so that they cannot be signed anew.
            token_lifetime_seconds: 0,
            ..AuthSettings::default()
        };
        let reader = TokenReader::new(&settings).expect("the keys can be read");
        let good = GOOD.lines().map(|token| (token, reader.read(token).expect("what was signed gets in"))).collect();
        for token in BAD.lines() {
            assert!(reader.read(token).is_err(), "{token} gets in");
        }
        Self { reader, good }
    }

    fn read(&self, token: &str) {
        let Ok(allowed) = self.reader.read(token) else { return };
        let said = token.rsplit_once('.').map(|(said, _)| said);
        let signed = self.good.iter().find(|(good, _)| good.rsplit_once('.').map(|(said, _)| said) == said);
        let Some((_, meant)) = signed else { panic!("{token} gets in, and nobody has signed it") };
        assert_eq!(&allowed, meant, "{token}");
    }
}

/// A token in three parts, each of a signed token or anything.
fn pieced(from: &mut Unstructured<'_>) -> arbitrary::Result<String> {
    let signed: Vec<&str> = GOOD.lines().chain(BAD.lines()).collect();
    let mut parts = Vec::new();
    for place in 0..3 {
        let part = if from.ratio(2, 3)? {
            from.choose(&signed)?.split('.').nth(place).unwrap_or_default().to_owned()
        } else {
            URL_SAFE_NO_PAD.encode(<&[u8]>::arbitrary(from)?)
        };
        parts.push(part);
    }
    Ok(parts.join("."))
}

fn checked(gate: &Gate, from: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    if from.arbitrary()? {
        gate.read(&pieced(from)?);
        return Ok(());
    }
    let rest = from.bytes(from.len())?;
    let text = String::from_utf8_lossy(rest);
    gate.read(&text);
    if KeyText::parse(&text).is_some() {
        assert!(
            text.starts_with("anneal_") && text.is_char_boundary(39) && text[39..].starts_with('_'),
            "{text} is a key"
        );
    }
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_bytes(rest) {
        headers.insert(header::AUTHORIZATION, value);
        if let Ok(found) = bearer(&headers) {
            let credential = found.expect("there is a header");
            assert!(!credential.is_empty() && !credential.contains(' '), "{credential:?} of {text:?}");
            assert!(text.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer ")), "{text:?}");
        }
    }
    Ok(())
}

/// A token put together of parts, or a text that is read as a token, a key and a header.
pub fn check(data: &[u8]) {
    thread_local!(static GATE: Gate = Gate::new());
    // Too few bytes for a case are no case.
    let _ = GATE.with(|gate| checked(gate, &mut Unstructured::new(data)));
}
