//! The attacker: performs the attacks of its plan.

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
        let over = Instant::now() + planned.lasts;
        // Boxed, so that its connections are closed as soon as the attack is over.
        let again = Box::pin(async {
            while Instant::now() < over {
                planned.attack.perform(&running).await;
                running.pace().await;
            }
        });
        let _ = timeout(planned.lasts, again).await;
        self.tallies.end_attack(name);
    }
}
