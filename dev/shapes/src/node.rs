//! Reads JSON of unknown structure, with the position of each value. Missing values and values of
//! the wrong type are recorded as refusals.

use serde_json::Value;

use crate::Refusal;

/// The refusals that a checker has found so far, in the order in which they were found.
pub(crate) type Refusals = Vec<Refusal>;

/// A value of the body, and its position there.
#[derive(Debug, Clone)]
pub(crate) struct Node<'a> {
    pub(crate) value: &'a Value,
    /// JSON pointer to the value in the body.
    at: String,
}

impl<'a> Node<'a> {
    /// The body itself.
    pub(crate) const fn root(value: &'a Value) -> Self {
        Self {
            value,
            at: String::new(),
        }
    }

    /// Records a refusal of this value.
    pub(crate) fn refuse(&self, out: &mut Refusals, rule: &'static str, says: impl Into<String>) {
        out.push(Refusal {
            rule,
            at: self.at.clone(),
            says: says.into(),
        });
    }

    /// Refuses a value that is not an object, and keys that are not among `known`. Returns whether
    /// it is an object.
    pub(crate) fn check_object(&self, known: &[&str], out: &mut Refusals) -> bool {
        let Value::Object(fields) = self.value else {
            self.refuse_type("an object", out);
            return false;
        };
        for (key, value) in fields
            .iter()
            .filter(|(key, _)| !known.contains(&key.as_str()))
        {
            self.under(key, value)
                .refuse(out, "unknown-key", "Extra inputs are not permitted");
        }
        true
    }

    /// The value of a key. `None` if the key is absent or if this is not an object.
    pub(crate) fn find(&self, key: &str) -> Option<Node<'a>> {
        self.value.get(key).map(|value| self.under(key, value))
    }

    /// The value of a key. Records `missing` if it is absent.
    pub(crate) fn need(&self, key: &str, out: &mut Refusals) -> Option<Node<'a>> {
        let found = self.find(key);
        if found.is_none() {
            self.refuse(
                out,
                "missing",
                format!("Missing required parameter: '{key}'"),
            );
        }
        found
    }

    /// The string value of a required key.
    pub(crate) fn need_text(&self, key: &str, out: &mut Refusals) -> Option<&'a str> {
        self.need(key, out)?.text(out)
    }

    /// The `type` of this object, which is required: as a node and as a string.
    pub(crate) fn kind(&self, out: &mut Refusals) -> Option<(Node<'a>, &'a str)> {
        if !self.value.is_object() {
            self.refuse_type("an object", out);
            return None;
        }
        let type_node = self.need("type", out)?;
        let kind = type_node.text(out)?;
        Some((type_node, kind))
    }

    /// This value as a string. Records a refusal if it is not one.
    pub(crate) fn text(&self, out: &mut Refusals) -> Option<&'a str> {
        let text = self.value.as_str();
        if text.is_none() {
            self.refuse_type("a string", out);
        }
        text
    }

    /// The items of this list. Records a refusal if it is not a list.
    pub(crate) fn items(&self, out: &mut Refusals) -> Option<Vec<Node<'a>>> {
        if !self.value.is_array() {
            self.refuse_type("a list", out);
            return None;
        }
        Some(self.each())
    }

    /// The items of a list, or none for any other value. Refuses nothing.
    pub(crate) fn each(&self) -> Vec<Node<'a>> {
        let items = self.value.as_array().map(Vec::as_slice).unwrap_or_default();
        items
            .iter()
            .enumerate()
            .map(|(index, value)| Node {
                value,
                at: format!("{}/{index}", self.at),
            })
            .collect()
    }

    /// The items of a key's list, or none for any other value. Refuses nothing.
    pub(crate) fn each_of(&self, key: &str) -> Vec<Node<'a>> {
        self.find(key).map(|list| list.each()).unwrap_or_default()
    }

    /// The string value of a key, if it has one. Refuses nothing.
    pub(crate) fn str_of(&self, key: &str) -> Option<&'a str> {
        self.value.get(key).and_then(Value::as_str)
    }

    /// Refuses this value because it is not of the type `wanted`.
    pub(crate) fn refuse_type(&self, wanted: &str, out: &mut Refusals) {
        let got = match self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.refuse(
            out,
            "type",
            format!("expected {wanted}, but got {got} instead"),
        );
    }

    fn under(&self, key: &str, value: &'a Value) -> Node<'a> {
        let key = key.replace('~', "~0").replace('/', "~1");
        Node {
            value,
            at: format!("{}/{key}", self.at),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_place_is_a_json_pointer() {
        let body = json!({"a/b": [{"c~d": 1}]});
        let mut out = Refusals::new();
        let list = Node::root(&body)
            .need("a/b", &mut out)
            .expect("it is there");
        list.each()[0].check_object(&[], &mut out);
        assert_eq!(out[0].at, "/a~1b/0/c~0d");
        assert_eq!(body.pointer(&out[0].at), Some(&json!(1)));
    }
}
