//! Fuzzes credentials: a token is accepted only if its key's owner signed it, and it grants exactly
//! what the signed claims say.
//!
//! The private halves of `dev/fuzz/keys/jwks.json` were deleted after `good.txt` and `bad.txt` were
//! signed, so no other valid token can be made. Since an ES256 signature has a second valid
//! encoding, the signed claims are compared and not the signatures.

use anneal_server::{
    AuthSettings, KeyText,
    fuzzing::{TokenReader, bearer},
};
use arbitrary::{Arbitrary as _, Unstructured};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue, header};

/// The tokens that the server must accept, one per line.
const GOOD: &str = include_str!("../keys/good.txt");
/// Tokens that it must refuse, one per line: for example with another audience, without an expiry,
/// or without a signature.
const BAD: &str = include_str!("../keys/bad.txt");

/// A tenant, and the verbs (permissions) that a token grants there.
type Allowed = (String, Vec<&'static str>);

struct SignedTokens {
    reader: TokenReader,
    /// The valid tokens, and what each grants.
    good: Vec<(&'static str, Allowed)>,
}

impl SignedTokens {
    fn new() -> Self {
        let settings = AuthSettings {
            jwks_file: concat!(env!("CARGO_MANIFEST_DIR"), "/keys/jwks.json").into(),
            audience: "anneal".into(),
            issuer: "https://issuer.example".into(),
            // No limit: the tokens in good.txt expire in decades, and without their private keys
            // they cannot be replaced.
            token_lifetime_seconds: 0,
            ..AuthSettings::default()
        };
        let reader = TokenReader::new(&settings).expect("the keys can be read");
        let good = GOOD
            .lines()
            .map(|token| {
                (
                    token,
                    reader.read(token).expect("a signed token is accepted"),
                )
            })
            .collect();
        for token in BAD.lines() {
            assert!(reader.read(token).is_err(), "{token} is accepted");
        }
        Self { reader, good }
    }

    fn check(&self, token: &str) {
        let Ok(allowed) = self.reader.read(token) else {
            return;
        };
        let claims = token.rsplit_once('.').map(|(claims, _)| claims);
        let signed = self
            .good
            .iter()
            .find(|(good, _)| good.rsplit_once('.').map(|(claims, _)| claims) == claims);
        let Some((_, granted)) = signed else {
            panic!("{token} is accepted, although its claims were never signed")
        };
        assert_eq!(&allowed, granted, "{token}");
    }
}

/// Assembles a token from three parts, each of which comes from a signed token or from the input.
fn assemble_token(from: &mut Unstructured<'_>) -> arbitrary::Result<String> {
    let signed: Vec<&str> = GOOD.lines().chain(BAD.lines()).collect();
    let mut parts = Vec::new();
    for index in 0..3 {
        let part = if from.ratio(2, 3)? {
            from.choose(&signed)?
                .split('.')
                .nth(index)
                .unwrap_or_default()
                .to_owned()
        } else {
            URL_SAFE_NO_PAD.encode(<&[u8]>::arbitrary(from)?)
        };
        parts.push(part);
    }
    Ok(parts.join("."))
}

fn check_case(signed: &SignedTokens, from: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    if from.arbitrary()? {
        signed.check(&assemble_token(from)?);
        return Ok(());
    }
    let rest = from.bytes(from.len())?;
    let text = String::from_utf8_lossy(rest);
    signed.check(&text);
    if KeyText::parse(&text).is_some() {
        // `anneal_`, an id of 32 characters, `_`, the secret.
        assert!(
            text.starts_with("anneal_") && text.is_char_boundary(39) && text[39..].starts_with('_'),
            "{text} is accepted as an API key"
        );
    }
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_bytes(rest) {
        headers.insert(header::AUTHORIZATION, value);
        if let Ok(found) = bearer(&headers) {
            let credential = found.expect("there is a header");
            assert!(
                !credential.is_empty() && !credential.contains(' '),
                "{credential:?} of {text:?}"
            );
            assert!(
                text.get(..7)
                    .is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer ")),
                "{text:?}"
            );
        }
    }
    Ok(())
}

/// The bytes select parts of a token, or a text that is used as token, key and header.
pub fn check(data: &[u8]) {
    thread_local!(static SIGNED: SignedTokens = SignedTokens::new());
    // If there are too few bytes, there is nothing to check.
    let _ = SIGNED.with(|signed| check_case(signed, &mut Unstructured::new(data)));
}
