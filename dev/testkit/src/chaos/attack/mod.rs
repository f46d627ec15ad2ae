//! Campaigns of one tenant against another. An attacker with every permission performs costly calls
//! at random, several attacks at a time, while a neighbor does ordinary work. The campaign checks
//! the promises to the neighbor, its latencies, the health probes, the servers' memory and the
//! logs. All choices follow from one seed.
//!
//! - `campaign`: one run. `installation`: the attacked servers, worker, PostgreSQL and model.
//!   `model`: the model that answers both tenants.
//! - `plan`: which attack happens when. `kind`: the list of attacks. `attacker`: performs the plan.
//! - `bodies`, `callers`, `connections`, `floods`, `jobs`, `reads`, `turns`: the attacks by what
//!   they use. `stored_conversations`: conversations that some of them need.
//! - `running_attack`: makes the calls of an attack. `tallies`: counts what attacks do.
//! - `neighbor`: a client of the neighbor. `neighbor_state`: the state that these clients share.
//! - `watched_conversation`: the promises about one conversation. `latencies`: the latencies that
//!   the campaign checks.

mod attacker;
mod bodies;
mod callers;
mod campaign;
mod connections;
mod floods;
mod installation;
mod jobs;
mod kind;
mod latencies;
mod model;
mod neighbor;
mod neighbor_state;
mod plan;
mod reads;
mod running_attack;
mod stored_conversations;
mod tallies;
mod turns;
mod watched_conversation;

pub use campaign::{NeighborCampaign, NeighborReport};
pub use kind::Attack;
pub use plan::AttackPlan;
