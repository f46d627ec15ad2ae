//! The encodings (vocabularies) that tokens are counted in.

use serde::{Deserialize, Serialize};
use tiktoken_rs::tokenizer::{Tokenizer, get_tokenizer};

/// The encoding that a conversation's tokens are counted in. It is fixed when the conversation is
/// created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Encoding {
    /// The encoding of GPT-4o, GPT-4.1, GPT-5 and the o-series, and of gpt-oss for ordinary text.
    #[default]
    #[serde(rename = "o200k_base")]
    O200kBase,
    /// The encoding of GPT-4, GPT-3.5 and the embedding models of their time.
    #[serde(rename = "cl100k_base")]
    Cl100kBase,
}

impl Encoding {
    /// Every supported encoding.
    pub const ALL: [Self; 2] = [Self::O200kBase, Self::Cl100kBase];

    /// The encoding of a model's own tokenizer, by the model's name (`gpt-4o-mini`,
    /// `ft:gpt-4o:house`).
    ///
    /// `None` means that the model's tokenizer is unknown, unpublished or unsupported (Claude,
    /// Gemini, Llama, `davinci`). The caller then uses `o200k_base`, whose counts are approximate
    /// for that model.
    pub fn of_model(model: &str) -> Option<Self> {
        match get_tokenizer(model)? {
            // Harmony is o200k_base plus special tokens, which ordinary text never produces.
            Tokenizer::O200kBase | Tokenizer::O200kHarmony => Some(Self::O200kBase),
            Tokenizer::Cl100kBase => Some(Self::Cl100kBase),
            Tokenizer::P50kBase | Tokenizer::R50kBase | Tokenizer::P50kEdit | Tokenizer::Gpt2 => {
                None
            }
        }
    }

    /// The encoding's name as stored, configured and shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::O200kBase => "o200k_base",
            Self::Cl100kBase => "cl100k_base",
        }
    }

    /// The encoding with this name; `None` for any other text.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|encoding| encoding.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_is_stored_under_its_name() {
        for encoding in Encoding::ALL {
            let stored = serde_json::to_string(&encoding).expect("an enum is JSON");
            assert_eq!(stored, format!("\"{}\"", encoding.name()));
            assert_eq!(
                serde_json::from_str::<Encoding>(&stored).expect("just written"),
                encoding
            );
            assert_eq!(Encoding::parse(encoding.name()), Some(encoding));
        }
        assert_eq!(Encoding::parse("O200kBase"), None);
    }

    #[test]
    fn a_model_has_the_encoding_of_its_tokenizer_or_none() {
        for model in [
            "gpt-4o",
            "gpt-4o-2024-05-13",
            "gpt-4.1-mini",
            "gpt-5",
            "o3",
            "gpt-oss-120b",
            "ft:gpt-4o:house",
        ] {
            assert_eq!(
                Encoding::of_model(model),
                Some(Encoding::O200kBase),
                "{model}"
            );
        }
        for model in [
            "gpt-4",
            "gpt-4-32k",
            "gpt-3.5-turbo",
            "text-embedding-3-small",
        ] {
            assert_eq!(
                Encoding::of_model(model),
                Some(Encoding::Cl100kBase),
                "{model}"
            );
        }
        for model in [
            "claude-sonnet-4-5",
            "gemini-2.5-pro",
            "davinci",
            "gpt2",
            "",
            "deepseek-chat",
        ] {
            assert_eq!(Encoding::of_model(model), None, "{model}");
        }
    }
}
