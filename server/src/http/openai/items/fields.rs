//! The fields of an object in a request. A field that nobody has read is unknown, and refused.

use serde_json::{Map, Value};

use crate::{http::openai::errors::ApiError, truncated_text::TruncatedText};

/// The fields of one object. A field that is null counts as absent.
pub(in crate::http) struct Fields<'v> {
    object: &'v Map<String, Value>,
    /// The parameter that the object is; empty: the object is the body.
    path: String,
    read: Vec<&'static str>,
}

impl<'v> Fields<'v> {
    /// The fields of the object at this path.
    pub(in crate::http) fn of(value: &'v Value, path: &str) -> Result<Self, ApiError> {
        match value {
            Value::Object(object) => Ok(Self::of_object(object, path)),
            other => Err(ApiError::invalid_type(path, "an object", other)),
        }
    }

    /// The fields of this object.
    pub(in crate::http) fn of_object(object: &'v Map<String, Value>, path: &str) -> Self {
        Self {
            object,
            path: path.to_owned(),
            read: Vec::new(),
        }
    }

    /// The path of a field.
    pub(in crate::http) fn param(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// The value of a field. None: it is absent.
    pub(in crate::http) fn value(&mut self, name: &'static str) -> Option<&'v Value> {
        self.read.push(name);
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// A text. None: it is absent.
    pub(in crate::http) fn text(
        &mut self,
        name: &'static str,
    ) -> Result<Option<&'v str>, ApiError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(ApiError::invalid_type(self.param(name), "a string", other)),
        }
    }

    /// A text that must be given.
    pub(in crate::http) fn required_text(
        &mut self,
        name: &'static str,
    ) -> Result<&'v str, ApiError> {
        let text = self.text(name)?;
        text.ok_or_else(|| ApiError::missing_parameter(self.param(name)))
    }

    /// A text that is one of these. None: it is absent.
    pub(in crate::http) fn one_of(
        &mut self,
        name: &'static str,
        supported: &[&'static str],
    ) -> Result<Option<&'static str>, ApiError> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let found = supported.iter().find(|value| **value == text).copied();
        found
            .map(Some)
            .ok_or_else(|| unsupported_value(self.param(name), text, supported))
    }

    /// A boolean. None: it is absent.
    pub(in crate::http) fn flag(&mut self, name: &'static str) -> Result<Option<bool>, ApiError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(ApiError::invalid_type(self.param(name), "a boolean", other)),
        }
    }

    /// A list. Empty: it is absent, or has no entries.
    pub(in crate::http) fn list(&mut self, name: &'static str) -> Result<&'v [Value], ApiError> {
        match self.value(name) {
            None => Ok(&[]),
            Some(Value::Array(list)) => Ok(list),
            Some(other) => Err(ApiError::invalid_type(self.param(name), "an array", other)),
        }
    }

    /// Refuses fields that were not read.
    pub(in crate::http) fn finish(self) -> Result<(), ApiError> {
        match self.unread().next() {
            None => Ok(()),
            Some(name) => Err(ApiError::unknown_parameter(self.param(name))),
        }
    }

    /// The names of the fields that were not read: the unknown parameters of a body, which have no
    /// effect.
    pub(in crate::http) fn ignored(&self) -> Vec<String> {
        self.unread().cloned().collect()
    }

    fn unread(&self) -> impl Iterator<Item = &'v String> {
        let given = self.object.iter().filter(|(_, value)| !value.is_null());
        let unread = given.filter(|(name, _)| !self.read.contains(&name.as_str()));
        unread.map(|(name, _)| name)
    }
}

/// A value that is none of those that are supported.
pub(in crate::http) fn unsupported_value(
    param: String,
    value: &str,
    supported: &[&str],
) -> ApiError {
    let supported: Vec<String> = supported.iter().map(|value| format!("'{value}'")).collect();
    let supported = supported.join(", ");
    let value = TruncatedText::new(value);
    let message = format!("Invalid value: '{value}'. Supported values are: {supported}.");
    ApiError::invalid(param, Some("invalid_value"), message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(error: &ApiError) -> (Value, Value) {
        let object = error.object();
        (object["param"].clone(), object["code"].clone())
    }

    #[test]
    fn fields_that_nobody_reads_are_refused_unless_they_are_null() {
        let object = json!({"a": "x", "b": null, "c": 1});
        let mut fields = Fields::of(&object, "input[0]").expect("is an object");
        assert_eq!(fields.text("a"), Ok(Some("x")));
        let refused = fields.finish().expect_err("c is unknown");
        assert_eq!(
            refusal(&refused),
            (json!("input[0].c"), json!("unknown_parameter"))
        );
        let mut fields = Fields::of(&object, "").expect("is an object");
        fields.value("c");
        assert_eq!(fields.ignored(), ["a"]);
        let refused = fields.finish().expect_err("a is unknown");
        assert_eq!(refusal(&refused).0, json!("a"));
    }

    #[test]
    fn values_of_other_types_are_refused_under_the_path_of_their_field() {
        let object = json!({"a": 1});
        let mut fields = Fields::of(&object, "x").expect("is an object");
        for refused in [
            fields.text("a").err(),
            fields.flag("a").err(),
            fields.list("a").err(),
        ] {
            let refused = refused.expect("is refused");
            assert_eq!(refusal(&refused), (json!("x.a"), json!("invalid_type")));
        }
        let missing = fields.required_text("b").expect_err("is missing");
        assert_eq!(
            refusal(&missing),
            (json!("x.b"), json!("missing_required_parameter"))
        );
        assert!(Fields::of(&json!([]), "x").is_err());
    }
}
