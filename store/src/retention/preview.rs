//! Counts what retention would delete now, with the statements by which it finds what it deletes.

use std::collections::BTreeMap;

use anneal_core::caller::{Caller, TenantId};

use super::{
    idle,
    rules::{KeptDays, RetentionLimit, TenantLimits, TrimLimits, days_column},
    trim, versions,
    walk::Walk,
};
use crate::{Store, error::StoreError};

/// Rows that a limit keeps no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedDeletion {
    /// The limit.
    pub limit: RetentionLimit,
    /// The agent that has a limit of its own. None: all agents, or all others.
    pub agent: Option<String>,
    /// Rows of the limit's table.
    pub rows: u64,
    /// The messages of these conversations; 0 for other limits.
    pub messages: u64,
}

/// Counts rows and messages, by agent.
#[derive(Default)]
struct Counts(BTreeMap<Option<String>, (u64, u64)>);

impl Counts {
    /// Adds rows of an agent, to those of all others if the agent has no limit of its own.
    fn add(&mut self, kept: &KeptDays, agent: String, (rows, messages): (i64, i64)) {
        let agent = kept.agents.contains_key(&agent).then_some(agent);
        let (all_rows, all_messages) = self.0.entry(agent).or_default();
        *all_rows += rows.unsigned_abs();
        *all_messages += messages.unsigned_abs();
    }

    fn into_deletions(self, limit: RetentionLimit) -> impl Iterator<Item = PlannedDeletion> {
        self.0
            .into_iter()
            .map(move |(agent, (rows, messages))| PlannedDeletion {
                limit,
                agent,
                rows,
                messages,
            })
    }
}

impl Store {
    /// Counts what retention would delete of a tenant now, by limit and agent. Leaves out limits
    /// that would delete nothing.
    pub async fn plan_retention(
        &self,
        tenant: TenantId,
        limits: &TenantLimits,
    ) -> Result<Vec<PlannedDeletion>, StoreError> {
        let caller = Caller::of(tenant);
        let idle = self.count_idle_conversations(caller, &limits.idle).await?;
        let old = self.count_old_versions(caller, &limits.withdrawn).await?;
        let trimmed = self.count_trimmed_rows(caller, limits.trim).await?;
        let idle = idle.into_deletions(RetentionLimit::IdleDays);
        let old = old.into_deletions(RetentionLimit::WithdrawnDays);
        let trimmed = trimmed.into_iter().map(|(limit, rows)| PlannedDeletion {
            limit,
            agent: None,
            rows,
            messages: 0,
        });
        let all = idle.chain(old).chain(trimmed);
        Ok(all.filter(|planned| planned.rows > 0).collect())
    }

    async fn count_idle_conversations(
        &self,
        caller: Caller,
        kept: &KeptDays,
    ) -> Result<Counts, StoreError> {
        let mut counts = Counts::default();
        let Some(days) = kept.columns() else {
            return Ok(counts);
        };
        let mut walk = Walk::Start;
        while walk != Walk::Ended {
            let mut db = self.reads.checkout(caller).await?;
            let page = idle::read_page(&mut db, caller, &days, walk).await;
            let page = db.settle(page).await?;
            walk = idle::walk_after(&page);
            for row in page.into_iter().filter(|row| row.is_idle) {
                counts.add(kept, row.agent_id, (1, row.messages));
            }
        }
        Ok(counts)
    }

    async fn count_old_versions(
        &self,
        caller: Caller,
        kept: &KeptDays,
    ) -> Result<Counts, StoreError> {
        let mut counts = Counts::default();
        let Some(days) = kept.columns() else {
            return Ok(counts);
        };
        let mut walk = Walk::Start;
        while walk != Walk::Ended {
            let mut db = self.reads.checkout(caller).await?;
            let page = versions::read_page(&mut db, caller, &days, walk, None).await;
            let page = db.settle(page).await?;
            walk = versions::walk_after(&page);
            for row in page {
                counts.add(kept, row.agent_id, (row.old_versions, 0));
            }
        }
        Ok(counts)
    }

    async fn count_trimmed_rows(
        &self,
        caller: Caller,
        limits: TrimLimits,
    ) -> Result<BTreeMap<RetentionLimit, u64>, StoreError> {
        let mut counts = BTreeMap::new();
        let mut walk = Walk::Start;
        while walk != Walk::Ended && !limits.keeps_all() {
            let mut db = self.reads.checkout(caller).await?;
            let (ids, after) = trim::read_page(&mut db, caller, walk).await?;
            let rows = sqlx::query_file!(
                "sql/count_trimmed_rows.sql",
                caller.tenant().0,
                &ids,
                i64::from(limits.prefix_versions),
                days_column(limits.model_call_days),
                days_column(limits.request_days),
                days_column(limits.dead_job_days),
            )
            .fetch_one(&mut *db)
            .await?;
            db.release().await?;
            walk = after;
            for (limit, more) in [
                (RetentionLimit::PrefixVersions, rows.prefixes),
                (RetentionLimit::ModelCallDays, rows.calls),
                (RetentionLimit::RequestDays, rows.requests),
                (RetentionLimit::DeadJobDays, rows.dead_jobs),
            ] {
                *counts.entry(limit).or_default() += more.unsigned_abs();
            }
        }
        Ok(counts)
    }
}
