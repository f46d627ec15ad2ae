//! A provider's key: read at the start and at each reload, sent with each call, never shown.

use reqwest::header::HeaderValue;

use super::{ProviderSettings, SettingsError};

/// A run of at least this many letters and digits, with some of each, is probably part of a key,
/// not of a name.
const MIN_KEY_RUN: usize = 16;

/// A key. It cannot be serialized, its Debug form hides it, and its header is marked as sensitive,
/// so that HTTP libraries do not print it.
#[derive(Clone)]
pub(super) struct Key(String);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// Reads the key that the settings name; None where they name none. A changed key is read at
    /// the next start or reload.
    pub(super) fn read(settings: &ProviderSettings) -> Result<Option<Self>, SettingsError> {
        let (text, source) = match (&settings.key_env, &settings.key_file) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                return Err(SettingsError("set key_env or key_file, not both".into()));
            }
            (Some(variable), None) => {
                if !is_variable_name(variable) {
                    let sentence = "key_env must be the name of a variable (letters, digits and _): the key itself \
                                    belongs in that variable";
                    return Err(SettingsError(sentence.into()));
                }
                let name = printable(variable);
                let text = std::env::var(variable).map_err(|_| {
                    SettingsError(format!(
                        "the variable {name} that key_env names is not set: put the key into it"
                    ))
                })?;
                (text, format!("the variable {name}"))
            }
            (None, Some(file)) => {
                let name = printable(file);
                let text = std::fs::read_to_string(file).map_err(|e| {
                    SettingsError(format!("key_file {name} cannot be read: {}", e.kind()))
                })?;
                (text, format!("key_file {name}"))
            }
        };
        let key = text.trim();
        if key.is_empty() {
            return Err(SettingsError(format!(
                "{source} is empty: put the key into it"
            )));
        }
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(SettingsError(format!(
                "{source} holds more than a key: spaces, lines or letters beyond ASCII"
            )));
        }
        Ok(Some(Self(key.to_owned())))
    }

    /// The value of the header that carries the key: `prefix`, then the key.
    pub(super) fn header(&self, prefix: &str) -> HeaderValue {
        let text = format!("{prefix}{}", self.0);
        let mut value =
            HeaderValue::try_from(text).expect("the key is visible ASCII, as read() checks");
        value.set_sensitive(true);
        value
    }
}

/// Whether an environment variable may have this name.
fn is_variable_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty()
        && name.chars().all(is_allowed)
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// The name of a variable or file for error messages, unless it looks like the key itself.
fn printable(name: &str) -> &str {
    if looks_like_a_key(name) {
        "(not repeated here: it looks like a key)"
    } else {
        name
    }
}

fn looks_like_a_key(text: &str) -> bool {
    let has_known_prefix = ["sk-", "sk_", "AIza", "gsk_", "xai-", "hf_"]
        .iter()
        .any(|prefix| text.starts_with(prefix));
    let is_random = |run: &str| {
        run.len() >= MIN_KEY_RUN
            && run.contains(|c: char| c.is_ascii_digit())
            && run.contains(|c: char| c.is_ascii_alphabetic())
    };
    has_known_prefix
        || text
            .split(|c: char| !c.is_ascii_alphanumeric())
            .any(is_random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinguished_from_names_of_variables_and_files() {
        for key in [
            "sk-planted-1234567890",
            "AIzaSyD4f6g7h8j9k0l1z2x3c4v5b6n7m8q9w0",
            "gsk_abc",
            "0f3c2a7e1b2d4c3e8f90a1b2c3d4e5f6",
            "live_51HqLyjWDarjtT1zdp7dc",
        ] {
            assert!(looks_like_a_key(key), "{key}");
        }
        for name in [
            "OPENAI_API_KEY",
            "AZURE_OPENAI_KEY_2",
            "/run/secrets/openai",
            "my_openai_key_2026",
            "./key.txt",
        ] {
            assert!(!looks_like_a_key(name), "{name}");
        }
    }
}
