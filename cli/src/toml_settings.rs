//! Settings in TOML: those of a file, and those of the variable `ANNEAL_CONFIG_TOML`. An error says
//! where the text is wrong. It quotes nothing of the text, which may hold secrets.

use std::{fs, path::Path};

use anyhow::Context as _;
use figment::{
    Metadata, Profile, Provider,
    value::{Dict, Map},
};

/// The text of a settings file as a source of settings.
pub(crate) struct TomlSettings {
    /// Names the source in errors.
    metadata: Metadata,
    text: String,
}

impl TomlSettings {
    /// The settings in this text. `metadata` names its source in errors.
    pub(crate) const fn new(metadata: Metadata, text: String) -> Self {
        Self { metadata, text }
    }

    /// The settings in this file. An error if the file cannot be read.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let file = std::path::absolute(file)?;
        let text = fs::read_to_string(&file)
            .with_context(|| format!("the settings file {} cannot be read", file.display()))?;
        Ok(Self::new(Metadata::from("TOML file", file.as_path()), text))
    }
}

impl Provider for TomlSettings {
    fn metadata(&self) -> Metadata {
        self.metadata.clone()
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        let settings: Dict = toml::from_str(&self.text)
            .map_err(|error| figment::Error::from(describe(&self.text, &error)))?;
        Ok(Profile::Default.collect(settings))
    }
}

/// The error with its position. Its `Display` would quote the line.
fn describe(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let Some(before) = before else {
        return error.message().to_owned();
    };
    let line = before.matches('\n').count() + 1;
    let last_line = before.rsplit('\n').next().unwrap_or_default();
    let column = last_line.chars().count() + 1;
    format!("line {line}, column {column}: {}", error.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_line_and_column_and_quotes_nothing() {
        for (text, position) in [
            ("[database]\nurl = \"canary", "line 2, column "),
            ("a = 1\né = canary\n", "line 2, column "),
            ("[canary]\n\n[[canary]]\n", "line 3, column "),
        ] {
            let settings = TomlSettings::new(Metadata::named("a test"), text.to_owned());
            let error = settings.data().expect_err("is invalid").to_string();
            assert!(
                error.starts_with(position) && !error.contains("canary"),
                "{text:?}: {error}"
            );
        }
    }
}
