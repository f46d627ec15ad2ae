//! Reads the fields of a JSON object. A field of the wrong type, or out of its range, is refused by
//! its path. `null` stands for an absent field.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::http::openai::errors::ApiError;

/// The fields of an object that were not taken yet.
pub(super) struct Fields {
    /// What precedes the name of a field in its path: `` or `text.`.
    prefix: String,
    fields: Map<String, Value>,
}

impl Fields {
    /// The fields of a request's body.
    pub(super) fn of_body(body: Value) -> Result<Self, ApiError> {
        match body {
            Value::Object(fields) => Ok(Self {
                prefix: String::new(),
                fields,
            }),
            _ => Err(ApiError::invalid(
                "body",
                Some("invalid_type"),
                "The body must be a JSON object.",
            )),
        }
    }

    /// The fields of the object at this path.
    pub(super) fn of_value(path: &str, value: Value) -> Result<Self, ApiError> {
        match value {
            Value::Object(fields) => Ok(Self {
                prefix: format!("{path}."),
                fields,
            }),
            other => Err(ApiError::invalid_type(path, "an object", &other)),
        }
    }

    /// The path of a field of this object.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Takes a field of any type. None: it is absent.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(name).filter(|value| !value.is_null())
    }

    /// Takes a text.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(ApiError::invalid_type(self.path(name), "a string", &other)),
        }
    }

    /// Takes a text that must be there.
    pub(super) fn required_text(&mut self, name: &str) -> Result<String, ApiError> {
        let text = self.text(name)?;
        text.ok_or_else(|| ApiError::missing_parameter(self.path(name)))
    }

    /// Takes a text of at most so many characters.
    pub(super) fn short_text(
        &mut self,
        name: &str,
        most: usize,
    ) -> Result<Option<String>, ApiError> {
        let text = self.text(name)?;
        if let Some(text) = &text
            && text.chars().count() > most
        {
            return Err(too_long(&self.path(name), most));
        }
        Ok(text)
    }

    /// Takes true or false.
    pub(super) fn flag(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(ApiError::invalid_type(self.path(name), "a boolean", &other)),
        }
    }

    /// Takes an integer of at least `least`.
    pub(super) fn integer(&mut self, name: &str, least: u64) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let path = self.path(name);
        match value.as_u64() {
            Some(number) if number >= least => Ok(Some(number)),
            None if !value.is_i64() => Err(ApiError::invalid_type(path, "an integer", &value)),
            _ => Err(ApiError::invalid(
                &*path,
                Some("integer_below_min_value"),
                format!(
                    "Invalid '{path}': integer below minimum value. Expected a value >= {least}, \
                     but got {value} instead."
                ),
            )),
        }
    }

    /// Takes a number within a range.
    pub(super) fn number(
        &mut self,
        name: &str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let path = self.path(name);
        let (least, most) = (range.start(), range.end());
        let out_of_range = |code, words: &str| {
            ApiError::invalid(
                &*path,
                Some(code),
                format!(
                    "Invalid '{path}': {words}. Expected a value from {least} to {most}, but got \
                     {value} instead."
                ),
            )
        };
        match value.as_f64() {
            None => Err(ApiError::invalid_type(&*path, "a number", &value)),
            Some(number) if number < *least => Err(out_of_range(
                "decimal_below_min_value",
                "number below minimum value",
            )),
            Some(number) if number > *most => Err(out_of_range(
                "decimal_above_max_value",
                "number above maximum value",
            )),
            Some(number) => Ok(Some(number)),
        }
    }

    /// Takes a list of at most so many values.
    pub(super) fn list(&mut self, name: &str, most: usize) -> Result<Option<Vec<Value>>, ApiError> {
        let path = self.path(name);
        match self.take(name) {
            None => Ok(None),
            Some(Value::Array(values)) if values.len() > most => Err(ApiError::invalid(
                &*path,
                Some("array_above_max_length"),
                format!(
                    "Invalid '{path}': array too long. Expected an array with maximum length \
                     {most}, but got an array with length {} instead.",
                    values.len()
                ),
            )),
            Some(Value::Array(values)) => Ok(Some(values)),
            Some(other) => Err(ApiError::invalid_type(path, "an array", &other)),
        }
    }

    /// Takes an object.
    pub(super) fn object(&mut self, name: &str) -> Result<Option<Self>, ApiError> {
        let path = self.path(name);
        self.take(name)
            .map(|value| Self::of_value(&path, value))
            .transpose()
    }

    /// Takes a text that is one of these.
    pub(super) fn one_of(
        &mut self,
        name: &str,
        values: &[&'static str],
    ) -> Result<Option<&'static str>, ApiError> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let known = values.iter().find(|value| **value == text);
        known
            .map(|known| Some(*known))
            .ok_or_else(|| not_one_of(&self.path(name), &text, values))
    }

    /// Refuses a field that this server does not support, unless it is absent. `supported` says
    /// what is supported instead.
    pub(super) fn refuse(&mut self, name: &str, supported: &str) -> Result<(), ApiError> {
        match self.take(name) {
            None => Ok(()),
            Some(_) => Err(unsupported(&self.path(name), supported)),
        }
    }

    /// The paths of the fields that were not taken, sorted.
    pub(super) fn into_unknown(self) -> Vec<String> {
        let names = self.fields.keys().map(|name| self.path(name));
        names.collect()
    }

    /// Refuses the fields that were not taken.
    pub(super) fn refuse_unknown(self) -> Result<(), ApiError> {
        match self.into_unknown().into_iter().next() {
            None => Ok(()),
            Some(path) => Err(ApiError::unknown_parameter(path)),
        }
    }
}

/// The refusal of a text with more characters.
pub(super) fn too_long(path: &str, most: usize) -> ApiError {
    ApiError::invalid(
        path,
        Some("string_above_max_length"),
        format!("Invalid '{path}': string too long. Expected a string with maximum length {most}."),
    )
}

/// The refusal of a text that is none of these.
pub(super) fn not_one_of(path: &str, text: &str, values: &[&str]) -> ApiError {
    let shown: String = text.chars().take(64).collect();
    let values: Vec<String> = values.iter().map(|value| format!("'{value}'")).collect();
    ApiError::invalid(
        path,
        Some("invalid_value"),
        format!(
            "Invalid value: '{shown}'. Supported values of '{path}' are: {}.",
            values.join(", ")
        ),
    )
}

/// The refusal of a parameter that this server does not support.
pub(super) fn unsupported(path: &str, supported: &str) -> ApiError {
    ApiError::unsupported_parameter(
        path,
        format!("Unsupported parameter: '{path}' is not supported. {supported}"),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(body: Value) -> Fields {
        Fields::of_body(body).expect("is an object")
    }

    #[test]
    fn null_is_an_absent_field() {
        let mut body = fields(json!({"a": null, "b": null}));
        assert_eq!(body.text("a").ok(), Some(None));
        assert!(body.refuse("b", "").is_ok());
        assert!(body.refuse_unknown().is_ok());
    }

    #[test]
    fn a_wrong_field_is_refused_by_its_path() {
        type Read<'r> = &'r dyn Fn(&mut Fields) -> Option<ApiError>;
        let refused: [(&str, Read<'_>); 6] = [
            ("invalid_type", &|body| body.text("number").err()),
            ("integer_below_min_value", &|body| {
                body.integer("number", 16).err()
            }),
            ("invalid_type", &|body| body.integer("half", 1).err()),
            ("decimal_above_max_value", &|body| {
                body.number("number", 0.0..=2.0).err()
            }),
            ("array_above_max_length", &|body| body.list("list", 1).err()),
            ("invalid_value", &|body| {
                body.one_of("word", &["auto", "disabled"]).err()
            }),
        ];
        for (code, read) in refused {
            let mut body = fields(json!({"number": 3, "half": 0.5, "list": [1, 2], "word": "x"}));
            let error = read(&mut body).expect("is refused");
            assert_eq!((error.status(), error.code()), (400, Some(code)));
        }
        let mut outer = fields(json!({"text": {"format": 1}}));
        let mut text = outer
            .object("text")
            .expect("is an object")
            .expect("is there");
        let error = text.object("format").err().expect("is refused");
        assert_eq!(error.object()["param"], "text.format");
    }
}
