//! The settings that people try and store: how each is shown, and how one policy gives it to
//! another.

use anneal_core::{policy::SessionSettings, tokens::Tokens};
use anneal_proto::{convert::policy, v1 as pb};
use anneal_web::what_if::{Change, label};

/// A setting of a policy.
struct Setting {
    /// Its name in forms.
    name: &'static str,
    /// Its value as text. None: the policy does not set it.
    show: fn(&pb::Policy) -> Option<String>,
    /// Makes the second policy set it as the first does.
    give: fn(&pb::Policy, &mut pb::Policy),
}

const SETTINGS: [Setting; 10] = [
    Setting {
        name: "profile",
        show: |it| text(&it.profile),
        give: |from, to| to.profile.clone_from(&from.profile),
    },
    Setting {
        name: "model",
        show: |it| text(&it.model),
        give: |from, to| to.model.clone_from(&from.model),
    },
    Setting {
        name: "window_tokens",
        show: |it| number(it.window_tokens),
        give: |from, to| to.window_tokens = from.window_tokens,
    },
    Setting {
        name: "token_threshold",
        show: token_threshold,
        give: |from, to| {
            to.token_threshold = from.token_threshold;
            to.token_threshold_auto = from.token_threshold_auto;
            to.token_threshold_below_window = from.token_threshold_below_window;
        },
    },
    Setting {
        name: "max_message_count",
        show: |it| number(it.max_message_count),
        give: |from, to| to.max_message_count = from.max_message_count,
    },
    Setting {
        name: "keep_recent",
        show: keep_recent,
        give: |from, to| {
            to.keep_recent_turns = from.keep_recent_turns;
            to.keep_recent_tokens = from.keep_recent_tokens;
            to.keep_recent_percent = from.keep_recent_percent;
            to.keep_recent_from_last_user_message = from.keep_recent_from_last_user_message;
        },
    },
    Setting {
        name: "large_message_threshold",
        show: |it| number(it.large_message_threshold),
        give: |from, to| to.large_message_threshold = from.large_message_threshold,
    },
    Setting {
        name: "hot_zone_radius",
        show: |it| number(it.hot_zone_radius),
        give: |from, to| to.hot_zone_radius = from.hot_zone_radius,
    },
    Setting {
        name: "hot_zone_calls",
        show: |it| number(it.hot_zone_calls),
        give: |from, to| to.hot_zone_calls = from.hot_zone_calls,
    },
    Setting {
        name: "cooling",
        show: |it| match it.cooling() {
            pb::Cooling::Unspecified => None,
            pb::Cooling::Strict => Some("strict".to_owned()),
            pb::Cooling::Stepped => Some("stepped".to_owned()),
        },
        give: |from, to| to.cooling = from.cooling,
    },
];

/// Stands for all settings in [`without`].
const ALL: &str = "all";

fn text(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| value.to_owned())
}

fn number(value: Option<impl Into<u64>>) -> Option<String> {
    value.map(|value| value.into().to_string())
}

fn token_threshold(policy: &pb::Policy) -> Option<String> {
    match policy {
        pb::Policy {
            token_threshold: Some(tokens),
            ..
        } => Some(tokens.to_string()),
        pb::Policy {
            token_threshold_below_window: Some(tokens),
            ..
        } => Some(format!("{tokens} below the window")),
        pb::Policy {
            token_threshold_auto: Some(true),
            ..
        } => Some("where it costs least".to_owned()),
        _ => None,
    }
}

fn keep_recent(policy: &pb::Policy) -> Option<String> {
    match policy {
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
        pb::Policy {
            keep_recent_from_last_user_message: Some(true),
            ..
        } => Some("from the last user message on".to_owned()),
        _ => None,
    }
}

/// The settings that a policy sets, as name and value.
pub(super) fn set_by(policy: &pb::Policy) -> Vec<(&'static str, String)> {
    let set = SETTINGS.iter();
    set.filter_map(|setting| Some((setting.name, (setting.show)(policy)?)))
        .collect()
}

/// The value of a setting as text; empty: the policy does not set it, or there is none of this
/// name.
pub(super) fn shown(policy: &pb::Policy, name: &str) -> String {
    let found = SETTINGS.iter().find(|setting| setting.name == name);
    let shown = found.and_then(|setting| (setting.show)(policy));
    shown.unwrap_or_default()
}

/// The policy with the settings of another one over its own.
pub(super) fn over(mut base: pb::Policy, tried: &pb::Policy) -> pb::Policy {
    for setting in &SETTINGS {
        if (setting.show)(tried).is_some() {
            (setting.give)(tried, &mut base);
        }
    }
    base
}

/// The policy without the setting of this name; `all`: without any.
pub(super) fn without(mut policy: pb::Policy, name: &str) -> pb::Policy {
    let none = pb::Policy::default();
    if name == ALL {
        return none;
    }
    if let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) {
        (setting.give)(&none, &mut policy);
    }
    policy
}

/// The policy with the value of every setting that the server or a profile gives it. A policy that
/// would be refused is returned as it is.
pub(super) fn in_force(session: &SessionSettings, own: &pb::Policy) -> pb::Policy {
    match policy::parse(Some(own.clone()), session, Tokens::ZERO) {
        Ok(overrides) => session.resolved(&overrides).into(),
        Err(_) => own.clone(),
    }
}

/// The settings in which two policies differ, or in which one has its own value and the other the
/// default.
pub(super) fn differences(
    session: &SessionSettings,
    now: &pb::Policy,
    then: &pb::Policy,
) -> Vec<Change> {
    let (force_now, force_then) = (in_force(session, now), in_force(session, then));
    let changed = SETTINGS.iter().filter_map(|setting| {
        let show = setting.show;
        let shown = |own: &pb::Policy, force: &pb::Policy| match (show(own), show(force)) {
            (Some(own), _) => own,
            (None, Some(value)) => format!("{value} (default)"),
            (None, None) => "default".to_owned(),
        };
        let (before, after) = (shown(now, &force_now), shown(then, &force_then));
        (before != after).then(|| Change {
            name: setting.name,
            label: label(setting.name),
            now: before,
            then: after,
        })
    });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> pb::Policy {
        pb::Policy {
            profile: "agents".into(),
            token_threshold_auto: Some(true),
            hot_zone_radius: Some(4),
            ..pb::Policy::default()
        }
    }

    #[test]
    fn tried_settings_replace_the_conversations_own_one_by_one() {
        let tried = pb::Policy {
            token_threshold: Some(9_000),
            ..pb::Policy::default()
        };
        let both = over(own(), &tried);
        assert_eq!(both.token_threshold, Some(9_000));
        assert_eq!(both.token_threshold_auto, None);
        assert_eq!(
            (both.profile.as_str(), both.hot_zone_radius),
            ("agents", Some(4))
        );
    }

    #[test]
    fn a_difference_names_what_is_in_force_before_and_after() {
        let session = SessionSettings::default();
        let then = pb::Policy {
            hot_zone_radius: None,
            max_message_count: Some(6),
            ..own()
        };
        let differs = differences(&session, &own(), &then);
        let told: Vec<_> = differs
            .iter()
            .map(|it| (it.name, it.now.as_str(), it.then.as_str()))
            .collect();
        let expected = [
            ("max_message_count", "0 (default)", "6"),
            ("hot_zone_radius", "4", "5 (default)"),
        ];
        assert_eq!(told, expected);
        assert_eq!(differs[0].label, "Checkpoint at messages");
    }

    #[test]
    fn a_setting_goes_back_to_the_default_alone_or_with_all_others() {
        assert_eq!(without(own(), "hot_zone_radius").hot_zone_radius, None);
        assert_eq!(without(own(), "hot_zone_radius").profile, "agents");
        assert_eq!(without(own(), ALL), pb::Policy::default());
        assert_eq!(without(own(), "unknown"), own());
    }

    #[test]
    fn every_setting_has_a_label() {
        for setting in &SETTINGS {
            assert_ne!(label(setting.name), "", "{}", setting.name);
        }
    }
}
