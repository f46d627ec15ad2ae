//! The operator's settings for retention, and which of them apply to a tenant and an agent.

use std::collections::BTreeSet;

use anneal_store::{KeptDays, MAX_KEPT_DAYS, TenantLimits, TrimLimits};
use serde::{Deserialize, Serialize};

/// How long things are kept, and how fast they are deleted then. 0 days: never.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionSettings {
    /// Days after its newest message after which a conversation is deleted.
    pub idle_days: u32,
    /// Days after which content that was withdrawn or replaced by an edit is erased.
    pub withdrawn_days: u32,
    /// Days after which reported model calls are deleted.
    pub model_call_days: u32,
    /// Days after which the answers of calls with a request id are deleted, except those of
    /// appends. A call that is repeated later is executed again.
    pub request_days: u32,
    /// Days after which dead jobs are deleted.
    pub dead_job_days: u32,
    /// Versions of the beginning of its contexts that are kept of each conversation, the newest
    /// ones; 0: all. Only the newest one is used.
    pub prefix_versions: u32,
    /// Seconds between two rounds of a worker that look for idle conversations. For everything else
    /// it looks once per hour, in rounds of their own.
    pub interval_seconds: u32,
    /// Most conversations that a worker deletes per second.
    pub conversations_per_second: u32,
    /// Other days for tenants and agents.
    pub rules: Vec<RetentionRule>,
}

/// Days that apply to the conversations of a tenant, of an agent, or of an agent of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionRule {
    /// The tenant's name. None: every tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The agent's name. None: every agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// As [`RetentionSettings::idle_days`]. None: those of a less specific rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_days: Option<u32>,
    /// As [`RetentionSettings::withdrawn_days`]. None: those of a less specific rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withdrawn_days: Option<u32>,
}

impl Default for RetentionSettings {
    fn default() -> Self {
        Self {
            idle_days: 0,
            withdrawn_days: 0,
            model_call_days: 0,
            request_days: 0,
            dead_job_days: 0,
            prefix_versions: 100,
            interval_seconds: 60,
            conversations_per_second: 100,
            rules: Vec::new(),
        }
    }
}

impl RetentionSettings {
    /// Checks the settings. The error says which one to change.
    pub fn check(&self) -> Result<(), RetentionSettingsError> {
        let days = [
            ("idle_days", self.idle_days),
            ("withdrawn_days", self.withdrawn_days),
            ("model_call_days", self.model_call_days),
            ("request_days", self.request_days),
            ("dead_job_days", self.dead_job_days),
        ];
        for (key, days) in days {
            check_range(format!("retention.{key}"), days, (0, MAX_KEPT_DAYS))?;
        }
        for (key, number, most) in [
            ("interval_seconds", self.interval_seconds, 86_400),
            (
                "conversations_per_second",
                self.conversations_per_second,
                10_000,
            ),
        ] {
            check_range(format!("retention.{key}"), number, (1, most))?;
        }
        let mut seen = BTreeSet::new();
        for (rule, number) in self.rules.iter().zip(1..) {
            rule.check(number)?;
            if !seen.insert((&rule.tenant, &rule.agent)) {
                return Err(RetentionSettingsError::Duplicate(number));
            }
        }
        Ok(())
    }

    /// The limits of a tenant. For each of the days, the most specific rule wins that has them: of
    /// the agent of the tenant, of the tenant, of the agent, and then the general ones.
    pub fn limits_of(&self, tenant: &str) -> TenantLimits {
        TenantLimits {
            idle: self.kept_days(tenant, self.idle_days, |rule| rule.idle_days),
            withdrawn: self.kept_days(tenant, self.withdrawn_days, |rule| rule.withdrawn_days),
            trim: self.trim_limits(),
        }
    }

    /// Whether a tenant may have days after which conversations or versions are deleted.
    pub(crate) fn has_days(&self) -> bool {
        let of_rules = self
            .rules
            .iter()
            .flat_map(|rule| [rule.idle_days, rule.withdrawn_days])
            .flatten();
        [self.idle_days, self.withdrawn_days]
            .into_iter()
            .chain(of_rules)
            .any(|days| days > 0)
    }

    /// The limits that are the same for every tenant.
    pub(crate) const fn trim_limits(&self) -> TrimLimits {
        TrimLimits {
            prefix_versions: self.prefix_versions,
            model_call_days: self.model_call_days,
            request_days: self.request_days,
            dead_job_days: self.dead_job_days,
        }
    }

    /// The names of the tenants that have rules.
    pub fn named_tenants(&self) -> BTreeSet<&str> {
        self.rules
            .iter()
            .filter_map(|rule| rule.tenant.as_deref())
            .collect()
    }

    fn kept_days(
        &self,
        tenant: &str,
        general: u32,
        days_of: impl Fn(&RetentionRule) -> Option<u32>,
    ) -> KeptDays {
        let find = |tenant: Option<&str>, agent: Option<&str>| {
            let is_meant = |rule: &&RetentionRule| {
                rule.tenant.as_deref() == tenant && rule.agent.as_deref() == agent
            };
            self.rules.iter().find(is_meant).and_then(&days_of)
        };
        let of_tenant = find(Some(tenant), None);
        let general_of_tenant = of_tenant.unwrap_or(general);
        let agents = self
            .rules
            .iter()
            .filter_map(|rule| rule.agent.as_deref())
            .map(|agent| {
                let days = find(Some(tenant), Some(agent))
                    .or(of_tenant)
                    .or_else(|| find(None, Some(agent)))
                    .unwrap_or(general);
                (agent.to_owned(), days)
            })
            .filter(|(_, days)| *days != general_of_tenant);
        KeptDays {
            general: general_of_tenant,
            agents: agents.collect(),
        }
    }
}

impl RetentionRule {
    /// Checks the rule with this number.
    fn check(&self, number: usize) -> Result<(), RetentionSettingsError> {
        if self.tenant.is_none() && self.agent.is_none() {
            return Err(RetentionSettingsError::NoSubject(number));
        }
        if self.idle_days.is_none() && self.withdrawn_days.is_none() {
            return Err(RetentionSettingsError::NoDays(number));
        }
        for (key, days) in [
            ("idle_days", self.idle_days),
            ("withdrawn_days", self.withdrawn_days),
        ] {
            let setting = format!("{key} of rule {number} in retention.rules");
            check_range(setting, days.unwrap_or_default(), (0, MAX_KEPT_DAYS))?;
        }
        Ok(())
    }
}

/// Why settings of retention are refused. Rules are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RetentionSettingsError {
    /// A number is too small or too large.
    #[error("{setting} is {number}; it must be from {least} to {most}")]
    OutOfRange {
        /// The setting.
        setting: String,
        /// Its value.
        number: u32,
        /// The least possible value.
        least: u32,
        /// The greatest possible value.
        most: u32,
    },
    /// A rule names neither a tenant nor an agent.
    #[error(
        "rule {0} in retention.rules names neither a tenant nor an agent: set retention.idle_days and \
         retention.withdrawn_days instead"
    )]
    NoSubject(usize),
    /// A rule sets nothing.
    #[error("rule {0} in retention.rules has neither idle_days nor withdrawn_days")]
    NoDays(usize),
    /// A rule is for the same tenant and agent as an earlier one.
    #[error("rule {0} in retention.rules is for the same tenant and agent as an earlier one")]
    Duplicate(usize),
}

fn check_range(
    setting: String,
    number: u32,
    (least, most): (u32, u32),
) -> Result<(), RetentionSettingsError> {
    if number < least || number > most {
        return Err(RetentionSettingsError::OutOfRange {
            setting,
            number,
            least,
            most,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(
        tenant: Option<&str>,
        agent: Option<&str>,
        (idle_days, withdrawn_days): (Option<u32>, Option<u32>),
    ) -> RetentionRule {
        RetentionRule {
            tenant: tenant.map(str::to_owned),
            agent: agent.map(str::to_owned),
            idle_days,
            withdrawn_days,
        }
    }

    fn kept(general: u32, agents: &[(&str, u32)]) -> KeptDays {
        KeptDays {
            general,
            agents: agents
                .iter()
                .map(|(agent, days)| ((*agent).to_owned(), *days))
                .collect(),
        }
    }

    #[test]
    fn by_default_only_versions_of_beginnings_are_deleted() {
        let settings = RetentionSettings::default();
        assert_eq!(settings.check(), Ok(()));
        let limits = settings.limits_of("acme");
        assert_eq!(
            (limits.idle, limits.withdrawn),
            (kept(0, &[]), kept(0, &[]))
        );
        let only = TrimLimits {
            prefix_versions: 100,
            ..TrimLimits::default()
        };
        assert_eq!(limits.trim, only);
    }

    #[test]
    fn the_most_specific_rule_wins_key_by_key() {
        let settings = RetentionSettings {
            idle_days: 90,
            withdrawn_days: 30,
            rules: vec![
                rule(None, Some("support"), (Some(60), Some(6))),
                rule(None, Some("lab"), (Some(7), None)),
                rule(Some("acme"), None, (Some(365), None)),
                rule(Some("acme"), Some("lab"), (None, Some(1))),
                rule(Some("acme"), Some("audit"), (Some(0), None)),
            ],
            ..RetentionSettings::default()
        };
        assert_eq!(settings.check(), Ok(()));
        let acme = settings.limits_of("acme");
        // The tenant's rule wins over those of its agents for every tenant.
        assert_eq!(acme.idle, kept(365, &[("audit", 0)]));
        assert_eq!(acme.withdrawn, kept(30, &[("lab", 1), ("support", 6)]));
        let other = settings.limits_of("other");
        assert_eq!(other.idle, kept(90, &[("lab", 7), ("support", 60)]));
        assert_eq!(other.withdrawn, kept(30, &[("support", 6)]));
        assert_eq!(settings.named_tenants(), BTreeSet::from(["acme"]));
    }

    #[test]
    fn settings_that_mean_nothing_are_refused_with_their_names() {
        let error_of = |change: fn(&mut RetentionSettings)| {
            let mut settings = RetentionSettings::default();
            change(&mut settings);
            let error = settings.check().expect_err("they are refused");
            error.to_string()
        };
        assert_eq!(
            error_of(|settings| settings.idle_days = 36_501),
            "retention.idle_days is 36501; it must be from 0 to 36500"
        );
        assert_eq!(
            error_of(|settings| settings.interval_seconds = 0),
            "retention.interval_seconds is 0; it must be from 1 to 86400"
        );
        assert_eq!(
            error_of(|settings| {
                settings.rules = vec![rule(Some("a"), None, (Some(1), Some(36_501)))];
            }),
            "withdrawn_days of rule 1 in retention.rules is 36501; it must be from 0 to 36500"
        );
        let refused = |rules: Vec<RetentionRule>| {
            let settings = RetentionSettings {
                rules,
                ..RetentionSettings::default()
            };
            settings.check().expect_err("they are refused")
        };
        assert_eq!(
            refused(vec![rule(None, None, (Some(1), None))]),
            RetentionSettingsError::NoSubject(1)
        );
        assert_eq!(
            refused(vec![rule(Some("a"), None, (None, None))]),
            RetentionSettingsError::NoDays(1)
        );
        let twice = [(Some(1), None), (None, Some(1))].map(|days| rule(Some("a"), None, days));
        assert_eq!(
            refused(twice.to_vec()),
            RetentionSettingsError::Duplicate(2)
        );
    }
}
