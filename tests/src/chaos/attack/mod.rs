//! Campaigns of one tenant against another. An attacker with every permission performs costly calls
//! at random, several attacks at a time, while a neighbour does ordinary work. The campaign checks
//! the promises to the neighbour, its latencies, the health probes, the servers' memory and the
//! logs. All choices follow from one seed.
//!
//! `plan` chooses the attacks, `kind` lists them, `attacker` performs them; `bodies`, `callers`,
//! `connections`, `floods`, `jobs`, `reads` and `turns` implement them on `running_attack`, which
//! makes their calls, and `tallies` counts what they do. `neighbour` is the client under test,
//! `watched_conversation` checks its promises.

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
mod neighbour;
mod neighbour_state;
mod plan;
mod reads;
mod running_attack;
mod stored_conversations;
mod tallies;
mod turns;
mod watched_conversation;

pub use campaign::{NeighbourCampaign, NeighbourReport};
pub use kind::Attack;
pub use plan::AttackPlan;
