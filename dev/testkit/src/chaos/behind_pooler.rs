//! A campaign behind PgBouncer in transaction mode. PgBouncer is killed too.

use std::sync::Arc;

use super::{
    campaign::{Campaign, Report, RunningCampaign},
    cluster::Cluster,
    findings::Findings,
};
use crate::Pooler;

/// Number of steps of the plan between two kills of PgBouncer.
const STEPS_PER_KILL: usize = 5;

/// Runs a campaign behind PgBouncer, with the proxy between PgBouncer and PostgreSQL. None if
/// PgBouncer is not installed.
pub async fn run_behind_pooler(campaign: &Campaign, cluster: &mut Cluster) -> Option<Report> {
    if !Pooler::is_available().await {
        return None;
    }
    let campaign = Campaign {
        is_pooled: true,
        ..campaign.clone()
    };
    let mut running = RunningCampaign::start(&campaign, cluster, Arc::<Findings>::default()).await;
    for steps in campaign.plan.steps.chunks(STEPS_PER_KILL) {
        running.run_steps(steps).await;
        running.pooler.as_mut()?.crash().await;
        running.injector.state.tally.increment("poolers killed");
        running.injector.wait_for_appends(20).await;
    }
    Some(running.finish().await)
}
