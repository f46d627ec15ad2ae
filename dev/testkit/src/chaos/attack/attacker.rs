//! Performs the attacks of a plan.

use std::{cell::RefCell, sync::Arc};

use futures::future::join_all;
use tokio::time::{Instant, timeout};

use super::{
    plan::{ATTACKS_AT_ONCE, AttackPlan, PlannedAttack},
    running_attack::{AttackContext, RunningAttack},
};

impl AttackContext {
    /// Performs the planned attacks, several at a time.
    pub(super) async fn perform(self: Arc<Self>, plan: &AttackPlan) {
        let next = RefCell::new(plan.attacks.iter());
        let slots = (0..ATTACKS_AT_ONCE).map(|_| async {
            loop {
                let planned = next.borrow_mut().next();
                let Some(planned) = planned else { return };
                self.run_attack(planned).await;
            }
        });
        join_all(slots).await;
    }

    async fn run_attack(self: &Arc<Self>, planned: &PlannedAttack) {
        let name = planned.attack.name();
        let running = RunningAttack::new(Arc::clone(self), name, planned.seed);
        self.tallies.begin_attack(name);
        let end = Instant::now() + planned.lasts;
        // The future is boxed and passed by value, so that the timeout drops it. This closes the
        // connections of the attack at once.
        let repeated = Box::pin(async {
            while Instant::now() < end {
                planned.attack.perform(&running).await;
                running.pace().await;
            }
        });
        let _ = timeout(planned.lasts, repeated).await;
        self.tallies.end_attack(name);
    }
}
