//! Reads the JSON of requests. Parts of it stay as they were sent, because order and form of a
//! tool's input count.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// Why a provider refuses a request, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal(pub(super) String);

impl From<serde_json::Error> for Refusal {
    fn from(error: serde_json::Error) -> Self {
        Self(format!("the request is not valid: {error}"))
    }
}

/// The fields of an object.
pub(super) struct Fields<'r>(BTreeMap<String, &'r RawValue>);

impl<'r> Fields<'r> {
    pub(super) fn parse(json: &'r str) -> Result<Self, Refusal> {
        Ok(Self(serde_json::from_str(json)?))
    }

    /// The JSON of a field; None: there is none.
    pub(super) fn json(&self, name: &str) -> Option<&'r str> {
        self.0.get(name).copied().map(RawValue::get)
    }

    /// Removes a field and returns its JSON.
    pub(super) fn take(&mut self, name: &str) -> Option<&'r str> {
        self.0.remove(name).map(RawValue::get)
    }

    /// A text; an empty one if there is no such field.
    pub(super) fn text(&self, name: &str) -> Result<String, Refusal> {
        let text = self.json(name).map(serde_json::from_str).transpose()?;
        Ok(text.unwrap_or_default())
    }

    /// The JSON of the items of a list; none if there is no such field.
    pub(super) fn list(&self, name: &str) -> Result<Vec<&'r str>, Refusal> {
        self.json(name).map_or_else(|| Ok(Vec::new()), parse_list)
    }

    /// The content of a message.
    pub(super) fn content(&self, name: &str) -> Result<Content<'r>, Refusal> {
        let Some(json) = self.json(name).filter(|json| *json != "null") else {
            return Ok(Content::Items(Vec::new()));
        };
        if json.starts_with('"') {
            Ok(Content::Text(serde_json::from_str(json)?))
        } else {
            parse_list(json).map(Content::Items)
        }
    }

    /// All fields as one text, which is equal for equal fields in any order.
    pub(super) fn identity(&self) -> String {
        let mut identity = String::new();
        for (name, value) in &self.0 {
            identity.extend([name.as_str(), ":", value.get(), ";"]);
        }
        identity
    }
}

/// A content that is one text or a list of objects.
pub(super) enum Content<'r> {
    Text(String),
    /// The JSON of each object.
    Items(Vec<&'r str>),
}

fn parse_list(json: &str) -> Result<Vec<&str>, Refusal> {
    let items: Vec<&RawValue> = serde_json::from_str(json)?;
    Ok(items.into_iter().map(RawValue::get).collect())
}
