//! The settings that a person tries: fields of a form, and the policy that they mean.

use anneal_proto::v1 as pb;
use anneal_web::what_if::Controls;
use serde::Deserialize;

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
    pub(super) budget: String,
    pub(super) format: String,
    model: String,
    /// The etag of the conversation that the page shows.
    pub(super) etag: String,
}

/// A control whose text cannot be read, and why.
pub(super) type ControlError = (String, String);

impl ControlFields {
    /// The policy that these fields set; what they leave out is not in it.
    pub(super) fn policy(&self) -> Result<pb::Policy, Vec<ControlError>> {
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
    pub(super) fn budget(&self) -> Result<Option<u64>, Vec<ControlError>> {
        let mut errors = Vec::new();
        let budget = number("budget", &self.budget, &mut errors);
        if errors.is_empty() {
            Ok(budget)
        } else {
            Err(errors)
        }
    }

    /// The format in which the context is rendered.
    pub(super) fn format(&self) -> pb::Format {
        match self.format.as_str() {
            "openai" => pb::Format::OpenaiChat,
            "anthropic" => pb::Format::AnthropicMessages,
            "gemini" => pb::Format::GeminiContents,
            _ => pb::Format::Unspecified,
        }
    }

    /// The controls of the page.
    pub(super) fn view(self, models: Vec<String>, errors: Vec<ControlError>) -> Controls {
        Controls {
            profile: self.profile,
            token_threshold: self.token_threshold,
            max_message_count: self.max_message_count,
            keep_recent: self.keep_recent,
            large_message_threshold: self.large_message_threshold,
            hot_zone_radius: self.hot_zone_radius,
            hot_zone_calls: self.hot_zone_calls,
            cooling: self.cooling,
            budget: self.budget,
            format: self.format,
            model: self.model,
            models,
            errors,
        }
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

/// The policy with the settings of another one over its own.
pub(super) fn over(base: Option<pb::Policy>, tried: &pb::Policy) -> pb::Policy {
    let mut policy = base.unwrap_or_default();
    if !tried.profile.is_empty() {
        policy.profile.clone_from(&tried.profile);
    }
    if !tried.model.is_empty() {
        policy.model.clone_from(&tried.model);
    }
    if tried.token_threshold.is_some() {
        policy.token_threshold = tried.token_threshold;
        policy.token_threshold_auto = None;
        policy.token_threshold_below_window = None;
    }
    let keeps = [
        tried.keep_recent_turns.is_some(),
        tried.keep_recent_tokens.is_some(),
        tried.keep_recent_percent.is_some(),
    ];
    if keeps.contains(&true) {
        policy.keep_recent_turns = tried.keep_recent_turns;
        policy.keep_recent_tokens = tried.keep_recent_tokens;
        policy.keep_recent_percent = tried.keep_recent_percent;
        policy.keep_recent_from_last_user_message = None;
    }
    policy.max_message_count = tried.max_message_count.or(policy.max_message_count);
    policy.large_message_threshold = tried
        .large_message_threshold
        .or(policy.large_message_threshold);
    policy.hot_zone_radius = tried.hot_zone_radius.or(policy.hot_zone_radius);
    policy.hot_zone_calls = tried.hot_zone_calls.or(policy.hot_zone_calls);
    if tried.cooling != 0 {
        policy.cooling = tried.cooling;
    }
    policy
}

/// The settings that a conversation has of its own, as name and value.
pub(super) fn settings(policy: Option<&pb::Policy>) -> Vec<(String, String)> {
    let Some(policy) = policy else {
        return Vec::new();
    };
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let text = |value: &str| (!value.is_empty()).then(|| value.to_owned());
    let keep_recent = match policy {
        pb::Policy {
            keep_recent_turns: Some(turns),
            ..
        } => Some(format!("{turns} turns")),
        pb::Policy {
            keep_recent_tokens: Some(tokens),
            ..
        } => Some(format!("{tokens} tokens")),
        pb::Policy {
            keep_recent_percent: Some(share),
            ..
        } => Some(format!("{share} %")),
        _ => None,
    };
    let cooling = match policy.cooling() {
        pb::Cooling::Unspecified => None,
        pb::Cooling::Strict => Some("strict".to_owned()),
        pb::Cooling::Stepped => Some("stepped".to_owned()),
    };
    let settings = [
        ("profile", text(&policy.profile)),
        ("model", text(&policy.model)),
        ("window_tokens", number(policy.window_tokens)),
        ("token_threshold", number(policy.token_threshold)),
        (
            "max_message_count",
            number(policy.max_message_count.map(u64::from)),
        ),
        ("keep_recent", keep_recent),
        (
            "large_message_threshold",
            number(policy.large_message_threshold),
        ),
        (
            "hot_zone_radius",
            number(policy.hot_zone_radius.map(u64::from)),
        ),
        (
            "hot_zone_calls",
            number(policy.hot_zone_calls.map(u64::from)),
        ),
        ("cooling", cooling),
    ];
    let set = settings
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    set.collect()
}

/// The settings that differ between two policies: name, value now, value then.
pub(super) fn differences(
    now: Option<&pb::Policy>,
    then: &pb::Policy,
) -> Vec<(String, String, String)> {
    let now = settings(now);
    let then = settings(Some(then));
    let changed = then.into_iter().filter_map(|(name, value)| {
        let before = now.iter().find(|(known, _)| *known == name);
        let before = before.map(|(_, value)| value.clone()).unwrap_or_default();
        (before != value).then_some((name, before, value))
    });
    changed.collect()
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
    fn tried_settings_replace_the_conversations_own_one_by_one() {
        let own = pb::Policy {
            profile: "agents".into(),
            token_threshold_auto: Some(true),
            hot_zone_radius: Some(4),
            ..pb::Policy::default()
        };
        let tried = pb::Policy {
            token_threshold: Some(9_000),
            ..pb::Policy::default()
        };
        let both = over(Some(own.clone()), &tried);
        assert_eq!(both.token_threshold, Some(9_000));
        assert_eq!(both.token_threshold_auto, None);
        assert_eq!(
            (both.profile.as_str(), both.hot_zone_radius),
            ("agents", Some(4))
        );
        let differs = differences(Some(&own), &both);
        let expected = ("token_threshold".into(), String::new(), "9000".into());
        assert_eq!(differs, [expected]);
    }
}
