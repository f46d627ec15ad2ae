//! The form of settings that a person tries: its fields, and the context that they ask for.

use anneal_core::policy::SessionSettings;
use anneal_proto::v1 as pb;
use anneal_web::what_if::{Control, label};
use serde::Deserialize;

use super::settings;
use crate::http::problem::Problem;

/// The fields of the form, as text. Empty: as the conversation has it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ControlFields {
    profile: String,
    token_threshold: String,
    max_message_count: String,
    keep_recent: String,
    large_message_threshold: String,
    hot_zone_radius: String,
    hot_zone_calls: String,
    cooling: String,
    budget: String,
    format: String,
    model: String,
    /// The stored setting that goes back to the default; `all`: all of them.
    reset: String,
    /// The etag of the conversation that the page shows.
    pub(super) etag: String,
}

/// A control whose text cannot be read, and why.
pub(super) type ControlError = (String, String);

/// Settings that are tried for one context.
#[derive(Debug)]
pub(super) struct Tried {
    /// The settings that differ from the conversation's own policy.
    pub(super) overrides: pb::Policy,
    /// The conversation's policy, once they are stored.
    pub(super) then: pb::Policy,
    /// The budget in tokens. None: none is set.
    pub(super) budget: Option<u64>,
    format: pb::Format,
}

impl Tried {
    /// Nothing: the context of now.
    pub(super) fn nothing(conversation: &pb::Conversation) -> Self {
        Self {
            overrides: pb::Policy::default(),
            then: conversation.policy.clone().unwrap_or_default(),
            budget: None,
            format: pb::Format::Unspecified,
        }
    }

    /// Whether nothing is tried.
    pub(super) fn is_nothing(&self) -> bool {
        self.overrides == pb::Policy::default()
            && self.budget.is_none()
            && self.format == pb::Format::Unspecified
    }

    /// The request for this context.
    pub(super) fn ask(&self, id: &str) -> pb::BuildContextRequest {
        pb::BuildContextRequest {
            conversation_id: id.to_owned(),
            policy: Some(self.overrides.clone()),
            budget_tokens: self.budget,
            format: self.format.into(),
            model: self.overrides.model.clone(),
            ..pb::BuildContextRequest::default()
        }
    }
}

/// The refusal of a form of which these controls cannot be read.
pub(super) fn refuse(errors: Vec<ControlError>) -> Problem {
    let (name, text) = errors.into_iter().next().unwrap_or_default();
    Problem::invalid(name, text)
}

impl ControlFields {
    /// The names of the fields and their texts, but for the etag.
    fn fields(&self) -> [(&'static str, &str); 12] {
        [
            ("profile", &self.profile),
            ("model", &self.model),
            ("token_threshold", &self.token_threshold),
            ("max_message_count", &self.max_message_count),
            ("keep_recent", &self.keep_recent),
            ("large_message_threshold", &self.large_message_threshold),
            ("hot_zone_radius", &self.hot_zone_radius),
            ("hot_zone_calls", &self.hot_zone_calls),
            ("cooling", &self.cooling),
            ("reset", &self.reset),
            ("budget", &self.budget),
            ("format", &self.format),
        ]
    }

    /// The fields that are filled in, for a query.
    pub(super) fn tried(&self) -> Vec<(&'static str, &str)> {
        let fields = self.fields().into_iter();
        fields.filter(|(_, text)| !text.is_empty()).collect()
    }

    /// The settings that these fields mean for a conversation.
    pub(super) fn parse(
        &self,
        conversation: &pb::Conversation,
        session: &SessionSettings,
    ) -> Result<Tried, Vec<ControlError>> {
        let tried = self.policy()?;
        let budget = self.budget()?;
        let own = conversation.policy.clone().unwrap_or_default();
        let then = settings::over(settings::without(own, &self.reset), &tried);
        Ok(Tried {
            // A policy of one call cannot take a setting away: it sets what is then in force.
            overrides: if self.reset.is_empty() {
                tried
            } else {
                settings::in_force(session, &then)
            },
            then,
            budget,
            format: self.format(),
        })
    }

    /// The policy that these fields set; what they leave out is not in it.
    fn policy(&self) -> Result<pb::Policy, Vec<ControlError>> {
        let mut errors = Vec::new();
        let mut policy = pb::Policy {
            profile: self.profile.trim().to_owned(),
            model: self.model.trim().to_owned(),
            token_threshold: number("token_threshold", &self.token_threshold, &mut errors),
            max_message_count: number("max_message_count", &self.max_message_count, &mut errors),
            large_message_threshold: number(
                "large_message_threshold",
                &self.large_message_threshold,
                &mut errors,
            ),
            hot_zone_radius: number("hot_zone_radius", &self.hot_zone_radius, &mut errors),
            hot_zone_calls: number("hot_zone_calls", &self.hot_zone_calls, &mut errors),
            cooling: match self.cooling.as_str() {
                "strict" => pb::Cooling::Strict.into(),
                "stepped" => pb::Cooling::Stepped.into(),
                _ => pb::Cooling::Unspecified.into(),
            },
            ..pb::Policy::default()
        };
        if keep_recent(&self.keep_recent, &mut policy).is_none() {
            let text = "a number of turns, or one followed by “tokens” or “%”".to_owned();
            errors.push(("keep_recent".to_owned(), text));
        }
        if errors.is_empty() {
            Ok(policy)
        } else {
            Err(errors)
        }
    }

    /// The budget in tokens. None: none is set.
    fn budget(&self) -> Result<Option<u64>, Vec<ControlError>> {
        let mut errors = Vec::new();
        let budget = number("budget", &self.budget, &mut errors);
        if errors.is_empty() {
            Ok(budget)
        } else {
            Err(errors)
        }
    }

    /// The format in which the context is rendered.
    fn format(&self) -> pb::Format {
        match self.format.as_str() {
            "openai" => pb::Format::OpenaiChat,
            "anthropic" => pb::Format::AnthropicMessages,
            "gemini" => pb::Format::GeminiContents,
            _ => pb::Format::Unspecified,
        }
    }

    /// The controls of the page. `in_force`: the settings of now.
    pub(super) fn view(&self, in_force: &pb::Policy, errors: &[ControlError]) -> Vec<Control> {
        let controls = self.fields().into_iter().map(|(name, value)| {
            let error = errors.iter().find(|(known, _)| known == name);
            Control {
                name,
                label: label(name),
                value: value.to_owned(),
                placeholder: match name {
                    "budget" => "no limit".to_owned(),
                    name => settings::shown(in_force, name),
                },
                error: error.map(|(_, text)| text.clone()).unwrap_or_default(),
            }
        });
        controls.collect()
    }
}

/// Reads a number. Empty text is none; other text that is none is an error.
fn number<T: std::str::FromStr>(
    name: &str,
    text: &str,
    errors: &mut Vec<ControlError>,
) -> Option<T> {
    let digits = plain_digits(text);
    if digits.is_empty() {
        return None;
    }
    let number = digits.parse().ok();
    if number.is_none() {
        errors.push((name.to_owned(), "must be a whole number".to_owned()));
    }
    number
}

/// The text without the separators that people write into numbers.
fn plain_digits(text: &str) -> String {
    let separators = [',', '_', '\'', '\u{a0}', '\u{202f}'];
    text.chars()
        .filter(|it| !it.is_whitespace() && !separators.contains(it))
        .collect()
}

/// Sets what a checkpoint leaves: "3", "3 turns", "20000 tokens" or "30 %". None: it is none of
/// these.
fn keep_recent(text: &str, policy: &mut pb::Policy) -> Option<()> {
    let text = plain_digits(text);
    if text.is_empty() {
        return Some(());
    }
    let end = text.find(|it: char| !it.is_ascii_digit());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    match unit {
        "" | "turn" | "turns" => policy.keep_recent_turns = Some(number.parse().ok()?),
        "token" | "tokens" => policy.keep_recent_tokens = Some(number.parse().ok()?),
        "%" => policy.keep_recent_percent = Some(number.parse().ok()?),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_people_write_them() {
        let fields = ControlFields {
            token_threshold: "20 000".into(),
            keep_recent: "30 %".into(),
            cooling: "stepped".into(),
            ..ControlFields::default()
        };
        let policy = fields.policy().expect("a policy");
        assert_eq!(policy.token_threshold, Some(20_000));
        assert_eq!(policy.keep_recent_percent, Some(30));
        assert_eq!(policy.cooling(), pb::Cooling::Stepped);
        assert_eq!(policy.hot_zone_calls, None);
        let fields = ControlFields {
            token_threshold: "-1".into(),
            keep_recent: "some".into(),
            ..ControlFields::default()
        };
        let errors = fields.policy().expect_err("refused");
        let names: Vec<&str> = errors.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["token_threshold", "keep_recent"]);
    }

    #[test]
    fn a_stored_setting_that_goes_back_is_previewed_with_what_is_then_in_force() {
        let conversation = pb::Conversation {
            policy: Some(pb::Policy {
                hot_zone_radius: Some(1),
                max_message_count: Some(7),
                ..pb::Policy::default()
            }),
            ..pb::Conversation::default()
        };
        let fields = ControlFields {
            reset: "hot_zone_radius".into(),
            ..ControlFields::default()
        };
        let session = SessionSettings::default();
        let tried = fields.parse(&conversation, &session).expect("a policy");
        assert_eq!(tried.then.hot_zone_radius, None);
        assert_eq!(tried.then.max_message_count, Some(7));
        assert_eq!(tried.overrides.hot_zone_radius, Some(5));
        assert_eq!(tried.overrides.max_message_count, Some(7));
        assert!(!tried.is_nothing());
        let tried = ControlFields::default().parse(&conversation, &session);
        assert!(tried.expect("a policy").is_nothing());
    }
}
