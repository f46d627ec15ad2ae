//! The limits of retention, as they apply to one tenant.

use std::collections::BTreeMap;

/// The longest time, in days, for which a limit keeps something: a hundred years.
pub const MAX_KEPT_DAYS: u32 = 36_500;

/// A limit of retention, by the setting of `[retention]` that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetentionLimit {
    /// Days for which a conversation is kept after its newest message.
    IdleDays,
    /// Days for which content is kept after it was withdrawn or replaced.
    WithdrawnDays,
    /// Recorded beginnings of contexts that are kept of each conversation.
    PrefixVersions,
    /// Days for which reported model calls are kept.
    ModelCallDays,
    /// Days for which the answers of calls are kept, so that a repetition gets the same one.
    RequestDays,
    /// Days for which dead jobs are kept.
    DeadJobDays,
}

impl RetentionLimit {
    /// All limits.
    pub const ALL: [Self; 6] = [
        Self::IdleDays,
        Self::WithdrawnDays,
        Self::PrefixVersions,
        Self::ModelCallDays,
        Self::RequestDays,
        Self::DeadJobDays,
    ];

    /// The key of the setting.
    pub const fn setting(self) -> &'static str {
        match self {
            Self::IdleDays => "idle_days",
            Self::WithdrawnDays => "withdrawn_days",
            Self::PrefixVersions => "prefix_versions",
            Self::ModelCallDays => "model_call_days",
            Self::RequestDays => "request_days",
            Self::DeadJobDays => "dead_job_days",
        }
    }

    /// The table whose rows it limits.
    pub const fn table(self) -> &'static str {
        match self {
            Self::IdleDays => "ai_conversation",
            Self::WithdrawnDays => "ai_message_version",
            Self::PrefixVersions => "ai_context_prefix",
            Self::ModelCallDays => "ai_model_call",
            Self::RequestDays => "ai_request",
            Self::DeadJobDays => "ai_job_dead",
        }
    }
}

/// For how many days something is kept, by the agent of its conversation. 0: for ever.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeptDays {
    /// Of conversations whose agent is not in `agents`.
    pub general: u32,
    /// By the agent's name.
    pub agents: BTreeMap<String, u32>,
}

impl KeptDays {
    /// The shortest time after which something is deleted. None: everything is kept for ever.
    pub fn shortest(&self) -> Option<u32> {
        let all = std::iter::once(&self.general).chain(self.agents.values());
        all.copied().filter(|days| *days > 0).min()
    }

    /// As parameters of a statement. None: everything is kept for ever.
    pub(super) fn columns(&self) -> Option<DayColumns> {
        Some(DayColumns {
            shortest: days_column(self.shortest()?),
            general: days_column(self.general),
            agents: self.agents.keys().cloned().collect(),
            days: self.agents.values().copied().map(days_column).collect(),
        })
    }
}

/// Days as parameters of a statement.
pub(super) struct DayColumns {
    pub(super) shortest: i32,
    pub(super) general: i32,
    pub(super) agents: Vec<String>,
    pub(super) days: Vec<i32>,
}

/// Days as a parameter of a statement, at most [`MAX_KEPT_DAYS`].
pub(super) fn days_column(days: u32) -> i32 {
    i32::try_from(days.min(MAX_KEPT_DAYS)).unwrap_or(i32::MAX)
}

/// The limits of tables that grow with the use of conversations. 0: all rows are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrimLimits {
    /// Recorded beginnings of contexts that are kept of each conversation: the newest ones.
    pub prefix_versions: u32,
    /// Days for which reported model calls are kept.
    pub model_call_days: u32,
    /// Days for which the answers of calls are kept, except those of appends, which stay.
    pub request_days: u32,
    /// Days for which dead jobs are kept.
    pub dead_job_days: u32,
}

impl TrimLimits {
    /// The limits that are not 0.
    pub(super) fn in_force(self) -> impl Iterator<Item = (RetentionLimit, u32)> {
        let all = [
            (RetentionLimit::PrefixVersions, self.prefix_versions),
            (RetentionLimit::ModelCallDays, self.model_call_days),
            (RetentionLimit::RequestDays, self.request_days),
            (RetentionLimit::DeadJobDays, self.dead_job_days),
        ];
        all.into_iter().filter(|(_, kept)| *kept > 0)
    }

    /// Whether all rows are kept.
    pub fn keeps_all(&self) -> bool {
        *self == Self::default()
    }
}

/// The limits of one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantLimits {
    /// How long a conversation is kept after its newest message.
    pub idle: KeptDays,
    /// How long content is kept after it was withdrawn or replaced.
    pub withdrawn: KeptDays,
    /// What is kept in other tables.
    pub trim: TrimLimits,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_days_are_those_of_an_agent_or_of_all_others_and_0_means_never() {
        let days = |general, agents: &[(&str, u32)]| KeptDays {
            general,
            agents: agents
                .iter()
                .map(|(agent, days)| ((*agent).to_owned(), *days))
                .collect(),
        };
        assert_eq!(days(0, &[]).shortest(), None);
        assert_eq!(days(0, &[("a", 0)]).shortest(), None);
        assert_eq!(days(30, &[("a", 0)]).shortest(), Some(30));
        assert_eq!(days(0, &[("a", 90), ("b", 7)]).shortest(), Some(7));
        assert!(days(0, &[("a", 0)]).columns().is_none());
    }

    #[test]
    fn days_beyond_a_century_are_a_century() {
        assert_eq!(days_column(u32::MAX), 36_500);
        assert_eq!(days_column(7), 7);
    }
}
