//! A setting that names models in the order in which turns try them.

use serde::{Deserialize, Serialize};

/// Most models of one list.
const MAX_MODELS: usize = 8;

/// The names of models, in the order in which turns try them; empty: none is named. In the settings
/// file it is one name, or a list of 1 to 8 different names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "OneOrMore", into = "OneOrMore")]
pub struct ModelList(Vec<String>);

/// The setting as it is written.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// Why a list of models is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelListError {
    /// It is empty, or too long.
    #[error("must name 1 to {} models", MAX_MODELS)]
    Length,
    /// One of several names is empty.
    #[error("must not contain an empty name")]
    EmptyName,
    /// A name is in it twice.
    #[error("must not name {0:?} twice")]
    Twice(String),
}

impl ModelList {
    /// The model that is tried first; None: no model is named.
    pub fn first(&self) -> Option<&str> {
        self.0.first().map(String::as_str)
    }

    /// All names, in order.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// The names after this one; none if it is not in the list.
    pub fn after(&self, name: &str) -> &[String] {
        let place = self.0.iter().position(|listed| listed == name);
        place.map(|place| &self.0[place + 1..]).unwrap_or_default()
    }
}

/// One name; none if it is empty.
impl From<&str> for ModelList {
    fn from(name: &str) -> Self {
        Self::from(name.to_owned())
    }
}

/// One name; none if it is empty.
impl From<String> for ModelList {
    fn from(name: String) -> Self {
        Self(if name.is_empty() {
            Vec::new()
        } else {
            vec![name]
        })
    }
}

impl TryFrom<Vec<String>> for ModelList {
    type Error = ModelListError;

    fn try_from(names: Vec<String>) -> Result<Self, ModelListError> {
        if !(1..=MAX_MODELS).contains(&names.len()) {
            return Err(ModelListError::Length);
        }
        for (place, name) in names.iter().enumerate() {
            if name.is_empty() {
                return Err(ModelListError::EmptyName);
            }
            if names[..place].contains(name) {
                return Err(ModelListError::Twice(name.clone()));
            }
        }
        Ok(Self(names))
    }
}

impl TryFrom<OneOrMore> for ModelList {
    type Error = ModelListError;

    fn try_from(written: OneOrMore) -> Result<Self, ModelListError> {
        match written {
            OneOrMore::One(name) => Ok(name.into()),
            OneOrMore::More(names) => names.try_into(),
        }
    }
}

impl From<ModelList> for OneOrMore {
    fn from(ModelList(mut names): ModelList) -> Self {
        if names.len() > 1 {
            Self::More(names)
        } else {
            Self::One(names.pop().unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<ModelList, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_or_a_list_of_different_names_is_read_and_written_as_it_was() {
        let lists: [(&str, &[&str]); 3] = [
            (r#""""#, &[]),
            (r#""a""#, &["a"]),
            (r#"["a","b"]"#, &["a", "b"]),
        ];
        for (json, names) in lists {
            let list = read(json).expect("is valid");
            assert_eq!(list.names(), names);
            assert_eq!(serde_json::to_string(&list).expect("is written"), json);
        }
        let nine = serde_json::to_string(&["a"; 9]).expect("is written");
        for json in ["[]", r#"["a","a"]"#, r#"["a",""]"#, nine.as_str()] {
            assert!(read(json).is_err(), "{json}");
        }
    }

    #[test]
    fn the_models_after_one_are_those_behind_it_in_the_list() {
        let list = read(r#"["a","b","c"]"#).expect("is valid");
        assert_eq!(list.after("a"), ["b", "c"]);
        assert!(list.after("c").is_empty() && list.after("x").is_empty());
    }
}
