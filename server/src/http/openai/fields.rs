//! The fields of an object in a request. A field of the wrong type, or out of its range, is refused
//! by its path. A field that nobody has read is unknown: refused, or named as ignored.

use std::ops::RangeInclusive;

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

    /// The fields of a body.
    pub(in crate::http) fn of_body(body: &'v Value) -> Result<Self, ApiError> {
        match body {
            Value::Object(object) => Ok(Self::of_object(object, "")),
            other => Err(ApiError::invalid_type("body", "an object", other)),
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

    /// A text of at most so many characters. None: it is absent.
    pub(in crate::http) fn short_text(
        &mut self,
        name: &'static str,
        most: usize,
    ) -> Result<Option<&'v str>, ApiError> {
        let text = self.text(name)?;
        if text.is_some_and(|text| text.chars().count() > most) {
            let param = self.param(name);
            let message = format!(
                "Invalid '{param}': string too long. Expected a string with maximum length {most}."
            );
            return Err(ApiError::invalid(
                param,
                Some("string_above_max_length"),
                message,
            ));
        }
        Ok(text)
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

    /// An integer within a range. None: it is absent.
    pub(in crate::http) fn integer(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        let (least, most) = (*range.start(), *range.end());
        let is_above = match (value.as_u64(), value.as_i64()) {
            (Some(number), _) if range.contains(&number) => return Ok(Some(number)),
            (Some(number), _) => number > most,
            (None, Some(_)) => false,
            // A whole number that no integer type holds is read as a decimal.
            (None, None) => match value.as_f64() {
                Some(number) if number.fract() == 0.0 && number.abs() >= 1e15 => number > 0.0,
                _ => {
                    return Err(ApiError::invalid_type(
                        self.param(name),
                        "an integer",
                        value,
                    ));
                }
            },
        };
        let param = self.param(name);
        let (code, message) = if is_above {
            (
                "integer_above_max_value",
                format!(
                    "Invalid '{param}': integer above maximum value. Expected a value <= {most}, \
                     but got {value} instead."
                ),
            )
        } else {
            (
                "integer_below_min_value",
                format!(
                    "Invalid '{param}': integer below minimum value. Expected a value >= {least}, \
                     but got {value} instead."
                ),
            )
        };
        Err(ApiError::invalid(param, Some(code), message))
    }

    /// A number within a range. None: it is absent.
    pub(in crate::http) fn number(
        &mut self,
        name: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        let param = self.param(name);
        let Some(number) = value.as_f64() else {
            return Err(ApiError::invalid_type(param, "a number", value));
        };
        if range.contains(&number) {
            return Ok(Some(number));
        }
        let (least, most) = (range.start(), range.end());
        let (code, words) = if number < *least {
            ("decimal_below_min_value", "number below minimum value")
        } else {
            ("decimal_above_max_value", "number above maximum value")
        };
        let message = format!(
            "Invalid '{param}': {words}. Expected a value from {least} to {most}, but got {value} \
             instead."
        );
        Err(ApiError::invalid(param, Some(code), message))
    }

    /// A list. Empty: it is absent, or has no entries.
    pub(in crate::http) fn list(&mut self, name: &'static str) -> Result<&'v [Value], ApiError> {
        let list = self.short_list(name, usize::MAX)?;
        Ok(list.unwrap_or_default())
    }

    /// A list of at most so many entries. None: it is absent.
    pub(in crate::http) fn short_list(
        &mut self,
        name: &'static str,
        most: usize,
    ) -> Result<Option<&'v [Value]>, ApiError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Array(list)) if list.len() > most => {
                let param = self.param(name);
                let message = format!(
                    "Invalid '{param}': array too long. Expected an array with maximum length \
                     {most}, but got an array with length {} instead.",
                    list.len()
                );
                let code = Some("array_above_max_length");
                Err(ApiError::invalid(param, code, message))
            }
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(other) => Err(ApiError::invalid_type(self.param(name), "an array", other)),
        }
    }

    /// The fields of an inner object. None: it is absent.
    pub(in crate::http) fn object(&mut self, name: &'static str) -> Result<Option<Self>, ApiError> {
        let path = self.param(name);
        let value = self.value(name);
        value.map(|value| Self::of(value, &path)).transpose()
    }

    /// Refuses a field that this server does not support, unless it is absent. `supported` says
    /// what is supported instead.
    pub(in crate::http) fn refuse(
        &mut self,
        name: &'static str,
        supported: &str,
    ) -> Result<(), ApiError> {
        match self.value(name) {
            None => Ok(()),
            Some(_) => Err(unsupported(&self.param(name), supported)),
        }
    }

    /// Refuses fields that were not read.
    pub(in crate::http) fn finish(self) -> Result<(), ApiError> {
        match self.unread().next() {
            None => Ok(()),
            Some(name) => Err(ApiError::unknown_parameter(self.param(name))),
        }
    }

    /// The paths of the fields that were not read, sorted: unknown parameters, which have no effect.
    pub(in crate::http) fn ignored(&self) -> Vec<String> {
        self.unread().map(|name| self.param(name)).collect()
    }

    fn unread(&self) -> impl Iterator<Item = &'v String> {
        let given = self.object.iter().filter(|(_, value)| !value.is_null());
        let unread = given.filter(|(name, _)| !self.read.contains(&name.as_str()));
        unread.map(|(name, _)| name)
    }
}

/// A value that is none of those that are supported.
pub(in crate::http) fn unsupported_value(
    param: impl Into<String>,
    value: &str,
    supported: &[&str],
) -> ApiError {
    let shown = TruncatedText::new(value);
    let supported: Vec<String> = supported.iter().map(|value| format!("'{value}'")).collect();
    let supported = supported.join(", ");
    let message = format!("Invalid value: '{shown}'. Supported values are: {supported}.");
    ApiError::invalid(param, Some("invalid_value"), message)
}

/// The refusal of a parameter that this server does not support.
pub(in crate::http) fn unsupported(param: &str, supported: &str) -> ApiError {
    let message = format!("Unsupported parameter: '{param}' is not supported. {supported}");
    ApiError::unsupported_parameter(param, message)
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

    #[test]
    fn a_value_out_of_its_range_is_refused_by_its_path() {
        type Read<'r> = &'r dyn Fn(&mut Fields<'_>) -> Option<ApiError>;
        let refused: [(&str, Read<'_>); 10] = [
            ("integer_below_min_value", &|body| {
                body.integer("three", 16..=20).err()
            }),
            ("integer_above_max_value", &|body| {
                body.integer("three", 1..=2).err()
            }),
            ("integer_above_max_value", &|body| {
                body.integer("huge", 1..=2).err()
            }),
            ("integer_below_min_value", &|body| {
                body.integer("negative", 1..=2).err()
            }),
            ("invalid_type", &|body| body.integer("half", 0..=2).err()),
            ("decimal_above_max_value", &|body| {
                body.number("three", 0.0..=2.0).err()
            }),
            ("decimal_below_min_value", &|body| {
                body.number("negative", 0.0..=2.0).err()
            }),
            ("array_above_max_length", &|body| {
                body.short_list("list", 1).err()
            }),
            ("invalid_value", &|body| {
                body.one_of("word", &["auto", "disabled"]).err()
            }),
            ("string_above_max_length", &|body| {
                body.short_text("word", 0).err()
            }),
        ];
        let object = json!({
            "three": 3, "huge": 1e20, "negative": -1, "half": 0.5, "list": [1, 2], "word": "x",
        });
        for (code, read) in refused {
            let mut body = Fields::of(&object, "").expect("is an object");
            let error = read(&mut body).expect("is refused");
            assert_eq!((error.status(), error.code()), (400, Some(code)));
        }
        let outer = json!({"text": {"format": 1, "prompt": 2}, "prompt": null});
        let mut outer = Fields::of(&outer, "").expect("is an object");
        assert_eq!(outer.refuse("prompt", ""), Ok(()));
        let mut text = outer
            .object("text")
            .expect("is an object")
            .expect("is there");
        let error = text.object("format").err().expect("is refused");
        assert_eq!(refusal(&error).0, json!("text.format"));
        let error = text.refuse("prompt", "").expect_err("is refused");
        assert_eq!(
            refusal(&error),
            (json!("text.prompt"), json!("unsupported_parameter"))
        );
    }
}
