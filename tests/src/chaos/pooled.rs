//! Everything goes through PgBouncer in transaction mode, which is killed as well.

use std::sync::Arc;

use super::{
    campaign::{Campaign, Report, Stage},
    cluster::Cluster,
    findings::Findings,
};
use crate::Pooler;

/// Steps of the plan between two kills of the pooler.
const BETWEEN: usize = 5;

/// Runs a campaign behind PgBouncer, with the proxy between it and PostgreSQL. None where there is no PgBouncer.
pub async fn pooled(campaign: &Campaign, cluster: &mut Cluster) -> Option<Report> {
    if !Pooler::is_installed().await {
        return None;
    }
    let campaign = Campaign { is_pooled: true, ..campaign.clone() };
    let mut stage = Stage::set(&campaign, cluster, Arc::<Findings>::default()).await;
    for steps in campaign.plan.steps.chunks(BETWEEN) {
        stage.act(steps).await;
        stage.pooler.as_mut()?.crash().await;
        stage.nemesis.scene.tally.one("poolers killed");
        stage.nemesis.goes_on(20).await;
    }
    Some(stage.end().await)
}
