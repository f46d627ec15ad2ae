//! Settings that arguments give, and errors of settings. An error names the setting, its value,
//! what the value must be, and where it comes from. It names no type of Rust, and leaves out values
//! that may be secrets.

use figment::{
    Metadata, Profile, Provider, Source,
    error::{Actual, Kind},
    providers::Serialized,
    value::{Dict, Map, Value},
};

/// A setting that an argument of the command line gives.
pub(crate) struct ArgumentSetting<'a> {
    /// The argument's name, for errors.
    argument: &'static str,
    key: &'a str,
    value: Value,
}

impl<'a> ArgumentSetting<'a> {
    /// A setting with this text as its value.
    pub(crate) fn new(argument: &'static str, key: &'a str, value: &str) -> Self {
        Self {
            argument,
            key,
            value: Value::from(value),
        }
    }

    /// A setting with the value that the text stands for, as in an environment variable: a number,
    /// a boolean, a list, or the text itself.
    pub(crate) fn parse(argument: &'static str, key: &'a str, value: &str) -> Self {
        Self {
            argument,
            key,
            value: value.parse().unwrap_or_else(|never| match never {}),
        }
    }
}

impl Provider for ArgumentSetting<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.argument)
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        Serialized::global(self.key, &self.value).data()
    }
}

/// An error that describes each invalid setting.
pub(crate) fn describe(error: figment::Error) -> anyhow::Error {
    let sentences: Vec<String> = error.into_iter().map(|error| sentence(&error)).collect();
    anyhow::Error::msg(sentences.join("; "))
}

fn sentence(error: &figment::Error) -> String {
    let key = error.path.join(".");
    let is_secret = may_be_secret(&error.path);
    let problem = match &error.kind {
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) if is_secret => {
            format!("{key} must be {}", wanted(expected))
        }
        Kind::UnknownVariant(_, names) if is_secret => {
            format!("{key} must be {}", names.join(" or "))
        }
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            format!("{key} is {}; it must be {}", value(found), wanted(expected))
        }
        Kind::UnknownVariant(found, names) => {
            format!("{key} is {found:?}; it must be {}", names.join(" or "))
        }
        Kind::UnknownField(_, names) => {
            format!("{key} is not a setting; there are {}", names.join(", "))
        }
        Kind::MissingField(name) => format!("{key}.{name} is missing"),
        _ if is_secret => format!("{key} is not valid"),
        other if key.is_empty() => other.to_string(),
        other => format!("{key}: {other}"),
    };
    match source(error) {
        Some(source) => format!("{problem} ({source})"),
        None => problem,
    }
}

/// Whether the setting, or the section, may hold a secret: a password, a key or a header.
fn may_be_secret(path: &[String]) -> bool {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    matches!(
        path[..],
        ["providers", ..]
            | ["tracing" | "database"]
            | ["tracing", "headers", ..]
            | ["tracing", "endpoint"]
            | ["database", "url"]
    )
}

/// The source of the invalid setting: a file, an environment variable or an argument. None: it is
/// not known.
fn source(error: &figment::Error) -> Option<String> {
    let metadata = error.metadata.as_ref()?;
    match &metadata.source {
        Some(Source::File(path)) => Some(path.display().to_string()),
        Some(_) => None,
        None if metadata.name.contains("environment variable") => Some(format!(
            "ANNEAL_{}",
            error.path.join("_").to_ascii_uppercase()
        )),
        None => Some(metadata.name.to_string()),
    }
}

/// The value that was found.
fn value(found: &Actual) -> String {
    match found {
        Actual::Bool(value) => value.to_string(),
        Actual::Unsigned(value) => value.to_string(),
        Actual::Signed(value) => value.to_string(),
        Actual::Float(value) => value.to_string(),
        Actual::Str(text) => format!("{text:?}"),
        Actual::Seq => "a list".to_owned(),
        Actual::Map => "a section".to_owned(),
        other => other.to_string(),
    }
}

/// The wanted value, from serde's description, which names types of Rust.
fn wanted(expected: &str) -> String {
    let (least, expected) = match expected.strip_prefix("a nonzero ") {
        Some(number) => (1, number),
        None => (0, expected),
    };
    let range = |most: u32| format!("a whole number from {least} to {most}");
    match expected {
        "u8" => range(u8::MAX.into()),
        "u16" => range(u16::MAX.into()),
        "u32" => range(u32::MAX),
        "u64" | "usize" => format!("a whole number of {least} or more"),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a map" => "a section".to_owned(),
        "a sequence" => "a list".to_owned(),
        "socket address" => "an address such as 127.0.0.1:8080".to_owned(),
        text if text.starts_with("struct ") => "a section".to_owned(),
        text if text.starts_with("enum ") => "one of its names".to_owned(),
        text => text.to_owned(),
    }
}
